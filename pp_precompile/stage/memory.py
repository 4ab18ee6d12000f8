"""What a microbatch keeps alive between its forward and its backward.

torch's partitioner decides what is saved. By itself it looks for the cheapest way in time, and
since it sees only one microbatch it would save gathered or converted parameters once for each one
in flight. Values that come from parameters alone are computed again in the backward instead: the
parameters themselves stay alive anyway. Beyond that, a job may ask for activations to be computed
again (activation checkpointing).
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import fx
from torch._functorch._aot_autograd import descriptors as d
from torch.utils.checkpoint import CheckpointPolicy

from pp_precompile.stage import private_torch

_RECOMPUTED = (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE)


@dataclass(frozen=True, kw_only=True)
class Checkpointing:
    """Which activations a backward computes again; by default those where that costs no time.

    ``tag`` writes a ``CheckpointPolicy`` into ``meta["recompute"]`` of nodes of a joint graph.
    ``budget`` is the part of the default's activation memory that may be used, from 0 to 1, where
    nothing is tagged.
    """

    tag: Callable[[fx.GraphModule], None] | None = None
    budget: float = 1.0


NO_CHECKPOINTING = Checkpointing()


def tag_joint(joint: fx.GraphModule, tag: Callable[[fx.GraphModule], None] | None) -> None:
    """Tag what the backward computes again, by ``tag`` and by this module's own rules (in place).

    Operations that draw random numbers are saved whatever ``tag`` says: programs hold no state of a
    generator that could draw the same ones again. Parameters come last: nobody may save them.
    """
    if tag is not None:
        tag(joint)
        _save_random_values(joint)
    recompute_parameter_values(joint)
    for node in joint.graph.nodes:
        if node.meta.get("recompute") in _RECOMPUTED:
            # The partitioner saves what goes from one region to another. All is one region here,
            # since policies tag such values themselves, and parameters must not become one.
            node.meta["ac_graph_id"] = 0


def recompute_parameter_values(joint: fx.GraphModule) -> None:
    """Tag every value that depends on parameters alone for recomputation (in place)."""
    from_parameters: set[fx.Node] = set()
    for node in joint.graph.nodes:
        if node.op == "placeholder":
            if _is_parameter(node.meta.get("desc")):
                from_parameters.add(node)
        elif (
            node.op == "call_function"
            and node.all_input_nodes
            and from_parameters.issuperset(node.all_input_nodes)
            and isinstance(node.target, torch._ops.OpOverload)
        ):
            from_parameters.add(node)
            node.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE


def _save_random_values(joint: fx.GraphModule) -> None:
    random: set[fx.Node] = set()
    for node in joint.graph.nodes:
        parts = node.target is operator.getitem and node.args[0] in random
        if "recompute" in node.meta and (parts or private_torch.is_random(node)):
            random.add(node)
            node.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def _is_parameter(desc: object) -> bool:
    while isinstance(desc, d.SubclassGetAttrAOTInput):
        desc = desc.base
    return isinstance(desc, d.ParamAOTInput)
