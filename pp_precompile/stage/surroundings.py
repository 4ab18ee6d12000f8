"""What compiling a program depends on beside its graph, taken along to another process.

A worker process starts with torch's defaults. Whatever the process that traces has changed, or
imported, or joined, reaches the compiler from here and from nowhere else.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from pp_precompile.contract.errors import CompileError, Where
from pp_precompile.contract.key import differing
from pp_precompile.stage.portable import PREFIX
from pp_precompile.stage.private_torch import register_group
from pp_precompile.stage.settings import process_factors

_FLAGS = (
    (torch.utils.deterministic, "fill_uninitialized_memory"),
    (torch.backends.cudnn, "allow_tf32"),
    (torch.backends.cudnn, "deterministic"),
    (torch.backends.cudnn, "benchmark"),
    (torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"),
)
"""Switches that are attributes, each with the object that has it."""


def _nothing() -> None:
    """Prepare nothing."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """A process group by its logical name and the global ranks in it."""

    name: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """The state of a process that traces, as far as compiling may ask for it.

    ``prepare`` is called first in the other process: it imports what defines the operations of the
    graphs. ``rank`` and ``world_size`` are 0 without a process group. ``settings`` are Inductor's,
    ``modes`` torch's own, ``factors`` what both must come to (:func:`process_factors`).
    """

    prepare: Callable[[], None]
    rank: int
    world_size: int
    groups: tuple[Group, ...]
    settings: Mapping[str, Any]
    modes: Mapping[str, Any]
    factors: Mapping[str, str]

    def enter(self) -> None:
        """Make this process like the one that was described; may be called again with another.

        Raises:
            CompileError: PPC304 if settings that are part of keys differ all the same.
        """
        self.prepare()
        self._join_groups()
        _set_modes(self.modes)
        _change_settings(self.settings)
        changed = differing(process_factors(), self.factors)
        if changed:
            raise CompileError(
                "PPC304",
                "a worker process could not take over the compiler's settings",
                where=Where(field=", ".join(changed)),
                expected="settings that can be pickled and set again",
                hint="build with --jobs 1",
            )

    def _join_groups(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()
        _members.clear()
        if self.world_size == 0:
            return
        dist.init_process_group("fake", rank=self.rank, world_size=self.world_size)
        for group in self.groups:
            # torch's registry holds groups weakly.
            _members[group.name] = dist.new_group(list(group.ranks))
            register_group(group.name, _members[group.name])


_members: dict[str, dist.ProcessGroup] = {}
"""The groups that this process joined, by logical name."""


def describe_surroundings(
    meshes: Iterable[DeviceMesh] = (), prepare: Callable[[], None] = _nothing
) -> Surroundings:
    """Describe this process.

    Args:
        meshes: one-dimensional meshes with names, over which stages communicate.
        prepare: imports what graphs may need; must be picklable.
    """
    joined = dist.is_initialized()
    return Surroundings(
        prepare=prepare,
        rank=dist.get_rank() if joined else 0,
        world_size=dist.get_world_size() if joined else 0,
        groups=tuple(_groups(meshes)),
        settings=_settings(),
        modes=_modes(),
        factors=process_factors(),
    )


def _groups(meshes: Iterable[DeviceMesh]) -> Iterable[Group]:
    for mesh in meshes:
        for dim, name in enumerate(mesh.mesh_dim_names or ()):
            ranks = dist.get_process_group_ranks(mesh.get_group(dim))
            yield Group(name=PREFIX + name, ranks=tuple(ranks))


def _settings() -> dict[str, Any]:
    import torch._inductor.config as inductor

    settings: dict[str, Any] = inductor.save_config_portable()
    return settings


def _change_settings(wanted: Mapping[str, Any]) -> None:
    """Set what differs, and nothing else: some settings cannot be set to what they read as."""
    import torch._inductor.config as inductor

    present = _settings()
    inductor.load_config({k: v for k, v in wanted.items() if present.get(k) != v})


def _modes() -> dict[str, Any]:
    return {
        "matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "default_dtype": torch.get_default_dtype(),
        "flags": [getattr(owner, name) for owner, name in _FLAGS],
    }


def _set_modes(modes: Mapping[str, Any]) -> None:
    torch.set_float32_matmul_precision(modes["matmul_precision"])
    torch.use_deterministic_algorithms(modes["deterministic"], warn_only=modes["warn_only"])
    torch.set_default_dtype(modes["default_dtype"])
    for (owner, name), value in zip(_FLAGS, modes["flags"], strict=True):
        setattr(owner, name, value)
