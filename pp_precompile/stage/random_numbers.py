"""Random numbers under tensor parallelism: the same for whole tensors, others for each shard.

torchtitan gives all tensor-parallel ranks one seed. Where a tensor is whole on each of them, they
must drop the same elements, or they would compute with different tensors; where each has a shard,
other ones, as DTensor takes care of on GPUs when it runs eagerly. Traced programs know local
tensors only, so random operations are marked while they are traced as operations on DTensors. Those
on shards then draw from a seed to which the rank's coordinate was added.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from pp_precompile.contract.errors import CompileError, Where
from pp_precompile.stage import private_torch
from pp_precompile.stage.boundary import Meshes

_MARK = "pp_precompile_shards"

_SPREAD = 0x5851F42D4C957F2D
"""A large odd number (Knuth's multiplier for MMIX): seeds of neighbouring ranks lie far apart."""


@contextlib.contextmanager
def marked() -> Iterator[None]:
    """Mark random operations on DTensors that are traced inside with their shards' dimensions."""

    def mark(dimensions: tuple[str, ...]) -> Any:
        return torch.fx.traceback.annotate({_MARK: dimensions})

    with private_torch.random_operations(mark):
        yield


def distribute(
    forward: fx.GraphModule, coordinates: dict[str, fx.Node], meshes: Meshes, where: Where
) -> None:
    """Let marked operations on shards draw other numbers on each rank (in place).

    Args:
        forward: a traced forward program.
        coordinates: the inputs that stand for this rank's coordinates, by mesh dimension.
        meshes: the meshes of the job.
        where: names the stage in errors.

    Raises:
        CompileError: PPC304 under tensor parallelism for random numbers other than dropout's, and
            for those drawn for plain tensors, of which nobody knows whether they are shards.
    """
    if all("tp" not in (mesh.mesh_dim_names or ()) or mesh.size() == 1 for mesh in meshes):
        return
    for node in list(forward.graph.nodes):
        if not private_torch.is_random(node):
            continue
        dimensions = node.meta.get("custom", {}).get(_MARK)
        is_dropout = node.target is torch.ops.aten.native_dropout.default
        if dimensions is None or (dimensions and not is_dropout):
            raise _unknown(node, where)
        if dimensions:
            _drop_by_rank(forward.graph, node, [coordinates[name] for name in dimensions])
    forward.graph.lint()
    forward.recompile()


def _drop_by_rank(graph: fx.Graph, node: fx.Node, coordinates: list[fx.Node]) -> None:
    """Replace a dropout and its two results, values and mask."""
    source, rate = node.args[0], node.args[1]
    aten = torch.ops.aten
    assert isinstance(source, fx.Node)
    assert isinstance(rate, float)
    value = source.meta["val"]
    seed_of, uniform = private_torch.seeded_random()

    def add(target: Any, *args: Any) -> fx.Node:
        new = graph.call_function(target, args)
        with value.fake_mode:
            new.meta["val"] = target(*fx.node.map_arg(args, lambda n: n.meta["val"]))
        return new

    with graph.inserting_before(node):
        seed = add(seed_of, value.device)
        for coordinate in coordinates:
            seed = add(aten.add.Tensor, seed, add(aten.mul.Tensor, coordinate, _SPREAD))
        kept = add(aten.gt.Scalar, add(uniform, list(value.shape), seed, "rand"), rate)
        scaled = add(aten.mul.Tensor, source, 1.0 / (1.0 - rate))
        dropped = add(aten.mul.Tensor, kept, scaled)
    for user in list(node.users):
        user.replace_all_uses_with((dropped, kept)[user.args[1]])
        graph.erase_node(user)
    graph.erase_node(node)


def _unknown(node: fx.Node, where: Where) -> CompileError:
    return CompileError(
        "PPC304",
        "a stage draws random numbers of a kind that tensor parallelism cannot spread over ranks",
        where=where,
        expected="dropout of distributed tensors",
        found=str(node.target),
        hint="switch it off, or train without tensor parallelism or --compile.precompile",
    )
