"""Which modules belong to which stage."""

from typing import Any

from pp_precompile.contract.errors import UsageError
from pp_precompile.titan import private_titan

Split = tuple[tuple[str, ...], ...]
"""Module FQNs for each stage."""


def stage_split(parallel_dims: Any, parallelism: Any, model_config: Any) -> Split:
    """Return the split that torchtitan makes for this job; one stage without pipeline parallelism.

    Raises:
        UsageError: PPC004 if the layers cannot be cut into that many stages, or an explicit split
            (``module_fqns_per_model_part``) leaves a layer out or names one twice.
    """
    layers = [f"layers.{i}" for i in range(len(model_config.layers))]
    whole = ("tok_embeddings", *layers, "norm", "lm_head")
    if parallel_dims.pp == 1:
        return (whole,)
    split = parallelism.module_fqns_per_model_part
    if split is None:
        try:
            split = private_titan.generate_split(parallel_dims, parallelism, model_config)
        except ValueError as error:
            raise _unsplittable(parallelism, len(layers), error) from error
    result = tuple(tuple(names) for names in split)
    _check_complete(result, whole)
    if len(result) % parallel_dims.pp != 0:
        raise UsageError(
            "PPC004",
            "the stages cannot be dealt out evenly to the pipeline ranks",
            expected=f"a multiple of {parallel_dims.pp} stages",
            found=f"{len(result)} stages",
            hint="change parallelism.module_fqns_per_model_part",
        )
    return result


def _unsplittable(parallelism: Any, layers: int, error: ValueError) -> UsageError:
    return UsageError(
        "PPC004",
        f"the model cannot be cut into the stages asked for: {error}",
        expected=f"at most one stage for each of the {layers} layers, counting the weights of "
        "embedding and head",
        found=f"pipeline_parallel_degree {parallelism.pipeline_parallel_degree} with schedule "
        f"{parallelism.pipeline_parallel_schedule}",
        hint="lower --parallelism.pipeline_parallel_degree, or change "
        "--parallelism.pipeline_parallel_layers_per_stage or the first and last stage's weights",
    )


def _check_complete(split: Split, whole: tuple[str, ...]) -> None:
    named = [name for stage in split for name in stage]
    missing = [name for name in whole if name not in named]
    repeated = sorted({name for name in named if named.count(name) > 1})
    if missing or repeated:
        raise UsageError(
            "PPC004",
            "the split does not hold every module exactly once",
            expected="each layer, the embedding, the norm and the head in exactly one stage",
            found=f"missing {missing or 'none'}, more than once {repeated or 'none'}",
            hint="correct parallelism.module_fqns_per_model_part",
        )
