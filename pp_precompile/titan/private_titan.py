"""Every private part of torchtitan that is used, in one place.

Checked with torchtitan 0.3.0 on torch 2.14.1 and 2.15.0.
"""

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from torch import fx, nn
from torch.utils.checkpoint import CheckpointPolicy

from pp_precompile.contract.errors import PrecompileError

CHECKED = ("0.3",)
"""The torchtitan versions (major.minor) that this module was checked with."""


def check_version() -> None:
    """Refuse a torchtitan that this module was not checked with.

    Raises:
        PrecompileError: PPC006.
    """
    found = version("torchtitan")
    if ".".join(found.split(".")[:2]) not in CHECKED:
        raise PrecompileError(
            "PPC006",
            "this torchtitan was not checked with pp_precompile",
            expected=f"torchtitan {' or '.join(CHECKED)}",
            found=f"torchtitan {found}",
            hint="install a supported torchtitan, or a newer pp_precompile",
        )


def generate_split(parallel_dims: Any, parallelism: Any, model_config: Any) -> list[list[str]]:
    """Return torchtitan's own split of a decoder into stages, as module FQNs for each stage.

    Raises:
        ValueError: if the layers cannot be split that way.
    """
    from torchtitan.distributed.pipeline_parallel import (
        _generate_llm_fqn_per_model_part,
        _get_pipeline_metadata,
    )

    return _generate_llm_fqn_per_model_part(
        *_get_pipeline_metadata(parallel_dims, parallelism, model_config)
    )


def stages_of_rank(pp_rank: int, pp_degree: int, schedule: str, stages: int) -> tuple[int, ...]:
    """Return the stage indices of a pipeline rank (loop or V placement, by the schedule)."""
    from torchtitan.distributed.pipeline_parallel import _get_pp_rank_to_stage_indices_mapping

    return _get_pp_rank_to_stage_indices_mapping(pp_rank, pp_degree, schedule, stages)


def split_module(model: nn.Module, names: tuple[str, ...]) -> nn.Module:
    """Return a copy of ``model`` that holds only the modules called ``names``."""
    from torchtitan.distributed.pipeline_parallel import _split_module

    return _split_module(model, list(names))


def forget_wrapped_classes() -> None:
    """Let simple_fsdp wrap modules anew.

    It keeps a wrapped class for each class of modules, and with it the mesh and the precision of
    the first job in this process, which a second job must not get.
    """
    from torchtitan.experiments.graph_trainer import simple_fsdp

    simple_fsdp._wrap_class_cache.clear()


def tag_activations(joint: fx.GraphModule, *, policy: str) -> None:
    """Tag what is saved and what is computed again, as graph_trainer's ``policy`` says (in place).

    ``policy`` is ``default``, ``eager`` or ``full``. torchtitan makes the tags for a graph of
    forward, loss and backward; the joint graph of a stage has the same metadata: the module that an
    operation belongs to, and whether it is part of the backward.

    graph_trainer's own ``full`` saves what may draw random numbers, and with it all attention of
    torch, which has a dropout. Here operations are looked at one by one in :mod:`stage.memory`.
    """
    from torchtitan.experiments.graph_trainer import memory_policy

    policies: dict[str, Callable[[fx.Node], CheckpointPolicy]] = {
        "default": memory_policy._make_default_memory_policy(),
        "eager": memory_policy._make_eager_memory_policy(),
        "full": lambda node: CheckpointPolicy.MUST_RECOMPUTE,
    }
    memory_policy.tag_sac_policy(joint, policy_fn=policies[policy])


__all__ = [
    "CHECKED",
    "check_version",
    "forget_wrapped_classes",
    "generate_split",
    "split_module",
    "stages_of_rank",
    "tag_activations",
]
