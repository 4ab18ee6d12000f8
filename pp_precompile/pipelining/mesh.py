"""The ranks of a job: one pipeline, or replicas of it that train on other parts of the batch.

All replicas run the same programs, which know nothing of the others: whoever trains averages the
gradients over them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from pp_precompile.contract.errors import UsageError
from pp_precompile.contract.mesh import MeshSpec

PIPELINE = "pp"
"""The mesh dimension along which the ranks of one pipeline lie."""

_DIVIDED = frozenset({"dp_shard", "fsdp", "cp", "tp", "ep", "efsdp"})
"""Dimensions along which ranks hold parts of a stage and not the whole of it."""


@dataclass(frozen=True, kw_only=True)
class JobRanks:
    """The ranks that agree on a build, and the pipeline of this one.

    Agreement counts them as the user's mesh lists them. A build counts them with the pipeline
    outermost: ``order`` has, for each rank of ``mesh``, its number in the agreement.
    """

    mesh: MeshSpec
    ranks: tuple[int, ...]
    order: tuple[int, ...]
    pipeline: Any

    @property
    def rank(self) -> int:
        """This rank's number in the agreement."""
        return self.ranks.index(dist.get_rank())


def job_ranks(mesh: DeviceMesh | None) -> JobRanks:
    """Return what ``mesh`` says of the job; all ranks are one pipeline if it is None.

    A mesh of one dimension is one pipeline, whatever its name.

    Raises:
        UsageError: PPC002 if it does not say which dimension is the pipeline, has one along which
            stages would be divided, or does not have this rank.
    """
    if mesh is None:
        return _one_pipeline(dist.group.WORLD)
    if mesh.get_coordinate() is None:
        raise UsageError(
            "PPC002",
            "this rank is not on the mesh",
            expected=f"a mesh with rank {dist.get_rank()}",
            found=f"one of ranks {mesh.mesh.flatten().tolist()}",
            hint="call stages() on the ranks of the mesh only",
        )
    if mesh.ndim == 1:
        return _one_pipeline(mesh.get_group())
    names = mesh.mesh_dim_names or ()
    sizes = tuple(mesh.mesh.shape)
    _check_names(names)
    spec = mesh_spec(dict(zip(names, sizes, strict=True)))
    numbers = torch.arange(mesh.mesh.numel()).view(sizes)
    return JobRanks(
        mesh=spec,
        ranks=tuple(mesh.mesh.flatten().tolist()),
        order=tuple(numbers.movedim(names.index(PIPELINE), 0).flatten().tolist()),
        pipeline=mesh.get_group(PIPELINE),
    )


def _one_pipeline(group: Any) -> JobRanks:
    ranks = tuple(dist.get_process_group_ranks(group))
    return JobRanks(
        mesh=mesh_spec({PIPELINE: len(ranks)}),
        ranks=ranks,
        order=tuple(range(len(ranks))),
        pipeline=group,
    )


def mesh_spec(sizes: Mapping[str, int]) -> MeshSpec:
    """Return a mesh as a build has it: the pipeline outermost, and no dimension of one rank.

    Args:
        sizes: of the mesh dimensions by name; the order of all but the pipeline's counts.

    Raises:
        UsageError: PPC002 for a mesh without a pipeline, with a dimension along which stages would
            be divided, or with a size below 1.
    """
    _check_names(tuple(sizes))
    if min(sizes.values()) < 1:
        raise UsageError(
            "PPC002",
            "a mesh dimension has no ranks",
            expected="sizes of 1 or more",
            found=", ".join(f"{name}={size}" for name, size in sizes.items()),
            hint="leave the dimension out",
        )
    replicas = {n: size for n, size in sizes.items() if n != PIPELINE and size > 1}
    return MeshSpec(dims=(PIPELINE, *replicas), sizes=(sizes[PIPELINE], *replicas.values()))


def _check_names(names: Sequence[str]) -> None:
    if PIPELINE not in names:
        raise UsageError(
            "PPC002",
            "the mesh does not say which of its dimensions is the pipeline",
            expected=f"a dimension named {PIPELINE}, and others for replicas of the pipeline",
            found=f"dimensions {list(names)}" if names else "dimensions without names",
            hint=f"name it with mesh_dim_names=, such as ('dp_replicate', '{PIPELINE}')",
        )
    divided = sorted(_DIVIDED.intersection(names))
    if divided:
        raise UsageError(
            "PPC002",
            f"the mesh has a dimension {divided[0]}, along which a stage would be divided",
            expected="the pipeline, and dimensions whose ranks hold whole stages",
            found=f"dimensions {list(names)}",
            hint="use torchtitan's front end for sharded stages, or name a dimension of replicas "
            "dp_replicate",
        )
