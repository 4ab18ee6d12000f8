"""Make a traced graph independent of the rank that traced it.

Collectives carry the name of a process group, which differs from rank to rank and from run to
run. It is replaced by a logical name that says which mesh dimension is meant; whoever loads the
program binds that name to its own group. Device meshes themselves are carried along by DTensor
but used by nobody, and are dropped.
"""

from collections.abc import Iterable

import torch
from torch import fx
from torch.distributed.device_mesh import DeviceMesh

from pp_precompile.contract.errors import CompileError
from pp_precompile.stage import private_torch

PREFIX = "pp_precompile/"

_GROUP_ARGUMENTS = ("group_name", "group")


def logical_groups(meshes: Iterable[DeviceMesh]) -> dict[str, str]:
    """Return this rank's group names with their logical names, for every dimension of ``meshes``.

    The logical name of mesh dimension ``fsdp`` is ``pp_precompile/fsdp``.
    """
    names: dict[str, str] = {}
    for mesh in meshes:
        for dim, name in enumerate(mesh.mesh_dim_names or ()):
            names[mesh.get_group(dim).group_name] = PREFIX + name
    return names


def register_logical_groups(meshes: Iterable[DeviceMesh]) -> None:
    """Bind the logical names to this rank's groups in this process."""
    for mesh in meshes:
        for dim, name in enumerate(mesh.mesh_dim_names or ()):
            private_torch.register_group(PREFIX + name, mesh.get_group(dim))


def coordinate(name: str) -> int:
    """Return this rank's coordinate along mesh dimension ``name``, whose group was registered."""
    return private_torch.resolve_group(PREFIX + name).rank()


def use_logical_groups(graph: fx.GraphModule, names: dict[str, str]) -> None:
    """Replace group names in ``graph`` (in place) by their logical names.

    Raises:
        CompileError: PPC304 for a group that is no dimension of the job's meshes.
    """
    for node in graph.graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        for position, argument in enumerate(node.target._schema.arguments):
            if argument.name not in _GROUP_ARGUMENTS:
                continue
            if position < len(node.args) and isinstance(node.args[position], str):
                node.update_arg(position, _logical(node.args[position], names, node))
            elif isinstance(node.kwargs.get(argument.name), str):
                name = _logical(node.kwargs[argument.name], names, node)
                node.update_kwarg(argument.name, name)
    graph.recompile()


def _logical(name: str, names: dict[str, str], node: fx.Node) -> str:
    if name in names:
        return names[name]
    raise CompileError(
        "PPC304",
        f"the collective {node.target} uses a process group that is no mesh dimension",
        expected=f"one of {sorted(set(names.values()))}",
        found=f"group {name!r}",
        hint="use groups of the job's device mesh in the model",
    )


def is_data(value: object) -> bool:
    """Tell whether a graph value is data (a tensor or an integer) and not, say, a mesh."""
    return isinstance(value, torch.Tensor | torch.SymInt | int) and not isinstance(value, bool)


def drop_unused_inputs(graph: fx.GraphModule) -> None:
    """Erase inputs that are not data and that nothing uses any more (in place).

    Raises:
        CompileError: PPC304 if one is still used: it could not be handed over at run time.
    """
    for node in list(graph.graph.nodes):
        if node.op != "placeholder" or is_data(node.meta.get("val")):
            continue
        if node.users:
            raise CompileError(
                "PPC304",
                "the traced program computes with a value that is no tensor",
                found=f"{node.meta.get('desc')} used by {next(iter(node.users))}",
                hint="report this model: its programs cannot be made independent of the rank",
            )
        graph.graph.erase_node(node)
    graph.graph.lint()
    graph.recompile()
