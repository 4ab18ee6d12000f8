"""What a job's configuration says about saving activations, or computing them again.

torchtitan has two settings. ``compile.memory_policy`` is graph_trainer's and decides if it was
changed; left at its default, ``activation_checkpoint`` decides, which torchtitan's other trainers
go by. decision record 9 has the reasons.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

from torchtitan.distributed.activation_checkpoint import FullAC, MemoryBudgetAC, SelectiveAC

from pp_precompile.stage.memory import Checkpointing
from pp_precompile.titan import private_titan
from pp_precompile.titan.config import CoreCompileConfig

Mode = Literal["none", "default", "eager", "full", "budget"]

_OF_CORE: dict[Mode, Mode] = {"default": "eager"}
"""The core trainer's selective checkpointing also computes every second product again."""

_OF_POLICY: dict[str, Mode] = {"eager": "eager", "full": "full"}

_OF_CONFIG: dict[type, Mode] = {
    type(None): "none",
    SelectiveAC.Config: "default",
    FullAC.Config: "full",
    MemoryBudgetAC.Config: "budget",
}


def checkpointing(config: Any) -> Checkpointing:
    """Return what a job's stages compute again in backward.

    ``config`` passed :func:`unsupported`.
    """
    mode = _mode(config)
    if mode == "none":
        return Checkpointing()
    if mode == "budget":
        return Checkpointing(budget=config.activation_checkpoint.memory_budget)
    return Checkpointing(tag=partial(private_titan.tag_activations, policy=mode))


def unsupported(config: Any) -> Iterator[tuple[str, object, str]]:
    """Yield the fields that ask for what cannot be done: name, value, what can be done."""
    policy, chosen = _policy(config), config.activation_checkpoint
    if policy not in {"default", *_OF_POLICY}:
        # Copies between device and host need streams of their own, around and not in programs.
        yield "compile.memory_policy", policy, "default, eager or full"
    elif policy == "default" and type(chosen) not in _OF_CONFIG:
        name = f"{type(chosen).__module__}.{type(chosen).__qualname__}"
        yield "activation_checkpoint", name, "torchtitan's none, selective, full or memory-budget"
    elif _mode(config) == "budget" and not 0 <= chosen.memory_budget <= 1:
        yield "activation_checkpoint.memory_budget", chosen.memory_budget, "0 to 1"
    elif _mode(config) == "default":
        yield from _unsupported_selection(chosen)


def _unsupported_selection(chosen: SelectiveAC.Config) -> Iterator[tuple[str, object, str]]:
    found = chosen.force_recompute_mm_shapes_by_fqns
    usual = SelectiveAC.Config().force_recompute_mm_shapes_by_fqns
    if found and found != usual:
        # graph_trainer's policy, which is used, does not know it.
        yield "activation_checkpoint.force_recompute_mm_shapes_by_fqns", found, str(usual)


def _mode(config: Any) -> Mode:
    own = _OF_CONFIG[type(config.activation_checkpoint)]
    if isinstance(config.compile, CoreCompileConfig):
        return _OF_CORE.get(own, own)
    return _OF_POLICY.get(_policy(config)) or own


def _policy(config: Any) -> str:
    """Return graph_trainer's memory policy; the core trainer has none."""
    if isinstance(config.compile, CoreCompileConfig):
        return "default"
    policy: str = config.compile.memory_policy
    return policy
