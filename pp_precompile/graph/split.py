"""Every module of the model is in exactly one stage, in the order of the model."""

import itertools
import re
from collections.abc import Iterator, Sequence

from pp_precompile.contract.errors import Where
from pp_precompile.contract.manifest import Manifest
from pp_precompile.graph.finding import Finding, listed

Split = Sequence[Sequence[str]]
"""Module FQNs for each stage."""

_HINT = "correct parallelism.module_fqns_per_model_part and build again"

_ENDS = ("tok_embeddings", "norm", "lm_head")
"""Modules that torchtitan's decoders have beside their layers."""

_SHOWN = 4
_LAYER = re.compile(r"layers\.(\d{1,9})")
_COUNT = re.compile(r"\w+ of (\d{1,9})")


def check_split(manifest: Manifest) -> Iterator[Finding]:
    """Yield PPC511 for a module in two stages, PPC512 for one in none, PPC513 for wrong order."""
    owners: dict[str, list[int]] = {}
    for stage in manifest.stages:
        for name in stage.modules:
            owners.setdefault(name, []).append(stage.index)
    for name, stages in owners.items():
        if len(stages) > 1:
            yield Finding(
                code="PPC511",
                message=f"module {name} is in more than one stage",
                where=Where(stage=stages[1], field=name),
                expected=f"{name} in stage {stages[0]} only",
                found=f"stages {listed(stages)}",
                hint=_HINT,
            )
    yield from _missing(manifest, owners)
    yield from _order(manifest)


def _missing(manifest: Manifest, owners: dict[str, list[int]]) -> Iterator[Finding]:
    layers = {int(match[1]) for name in owners if (match := _LAYER.fullmatch(name))}
    declared = _COUNT.fullmatch(manifest.factors.get("model.layers", ""))
    if declared is None and not layers:
        # Stages of a model that is none of torchtitan's: nothing says what it consists of.
        return
    count = int(declared[1]) if declared else max(layers, default=-1) + 1
    # Lazily: a made-up index of a billion must not be counted up to.
    absent = (f"layers.{i}" for i in range(count) if i not in layers)
    missing = [*itertools.islice(absent, _SHOWN), *(n for n in _ENDS if n not in owners)]
    beyond = [f"layers.{i}" for i in sorted(layers) if i >= count]
    if missing or beyond:
        yield Finding(
            code="PPC512",
            message="the stages do not hold the model's modules",
            where=Where(field="split"),
            expected=f"{count} layers, {', '.join(_ENDS)}",
            found=f"in no stage: {listed(missing)}; not in the model: {listed(beyond)}",
            hint=_HINT,
        )


def _order(manifest: Manifest) -> Iterator[Finding]:
    previous = (-1, "")
    for stage in manifest.stages:
        for name in stage.modules:
            match = _LAYER.fullmatch(name)
            if match is None:
                continue
            if int(match[1]) < previous[0]:
                yield Finding(
                    code="PPC513",
                    message=f"{name} stands behind {previous[1]}",
                    where=Where(stage=stage.index, field=name),
                    expected="layers in the order of the model",
                    found=listed(stage.modules),
                    hint=_HINT,
                )
                return
            previous = (int(match[1]), name)


def check_split_asked(stored: Split, asked: Split) -> Iterator[Finding]:
    """Yield PPC601, with both splits side by side, if they differ."""
    if [list(names) for names in stored] == [list(names) for names in asked]:
        return
    pairs = range(max(len(stored), len(asked)))
    different = next(i for i in pairs if _at(stored, i) != _at(asked, i))
    yield Finding(
        code="PPC601",
        message="the stored split is not the one that the job asks for",
        where=Where(stage=different, field="split"),
        expected=_text(asked),
        found=_text(stored),
        hint="build with the job's split, or give the job the build's",
    )


def _at(split: Split, stage: int) -> list[str] | None:
    return list(split[stage]) if stage < len(split) else None


def _text(split: Split) -> str:
    return " | ".join(f"{i}: {' '.join(names)}" for i, names in enumerate(split))
