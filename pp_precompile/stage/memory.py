"""What a microbatch keeps alive between its forward and its backward.

Without help the partitioner saves gathered or converted parameters per microbatch in flight, since
it sees only one microbatch. Values that come from parameters alone are computed again in the
backward instead: the parameters themselves stay alive anyway.
"""

import torch
from torch import fx
from torch._functorch._aot_autograd import descriptors as d
from torch.utils.checkpoint import CheckpointPolicy


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
            # The partitioner orders recomputed regions by this number; these are one region.
            node.meta["ac_graph_id"] = 0


def _is_parameter(desc: object) -> bool:
    while isinstance(desc, d.SubclassGetAttrAOTInput):
        desc = desc.base
    return isinstance(desc, d.ParamAOTInput)
