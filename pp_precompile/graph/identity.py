"""A build's key factors and its content tell the same story.

The build id covers the factors alone. Where content and factors describe one fact, they are
compared, so that content which was edited or mixed up does not pass under another build's id.
"""

from collections.abc import Iterable, Iterator, Sequence

from pp_precompile.contract import consistency
from pp_precompile.contract.digest import digest_bytes
from pp_precompile.contract.encoding import encode
from pp_precompile.contract.errors import Where
from pp_precompile.contract.key import differing
from pp_precompile.contract.manifest import FORMAT, Manifest
from pp_precompile.contract.mesh import MeshSpec
from pp_precompile.contract.schedule import ScheduleTable
from pp_precompile.contract.stage import StageRecord
from pp_precompile.contract.tensor import NamedTensor
from pp_precompile.graph.finding import Finding


def plan_factors(
    mesh: MeshSpec, split: Sequence[Sequence[str]], schedule: ScheduleTable
) -> dict[str, str]:
    """Return the key factors that describe mesh, split and schedule."""
    factors = {f"split[{i}]": " ".join(names) for i, names in enumerate(split)}
    factors["mesh"] = str(mesh)
    factors["schedule.name"] = schedule.name
    factors["schedule.microbatches"] = str(schedule.microbatches)
    factors["schedule.microbatch_size"] = str(schedule.microbatch_size)
    factors["schedule.table"] = digest_bytes(encode(schedule))
    return factors


def input_factors(name: str, items: Iterable[NamedTensor]) -> dict[str, str]:
    """Return the key factors for inputs, each as ``name.position`` or ``name.keyword``."""
    return {f"{name}.{item.name}": f"{item.tensor} stride {item.tensor.stride}" for item in items}


def content_factors(manifest: Manifest) -> dict[str, str]:
    """Return every factor that the content of ``manifest`` determines."""
    stages = manifest.stages
    factors = plan_factors(manifest.mesh, [stage.modules for stage in stages], manifest.schedule)
    factors |= manifest.environment.factors()
    for stage in {0, len(stages) - 1}:
        factors |= input_factors(f"inputs.stage[{stage}]", stages[stage].arguments)
    factors |= input_factors("inputs.keyword", stages[0].keywords)
    return factors | input_factors("inputs.loss", _loss_arguments(stages[-1]))


def _loss_arguments(last: StageRecord) -> list[NamedTensor]:
    """Return what the loss is called with; without the prediction where forward computes it."""
    role, kind = ("forward", "loss_argument") if last.returns_loss else ("loss", "argument")
    program = last.programs.get(role)
    return [
        NamedTensor(name=value.name, tensor=value.tensor)
        for value in (program.inputs if program else ())
        if value.kind == kind and value.tensor is not None
    ]


_PREFIXES = ("split[", "schedule.", "environment.", "inputs.")


def check_content(manifest: Manifest) -> Iterator[Finding]:
    """Yield PPC509 for each factor that the content contradicts, lacks, or has beyond."""
    told = {
        name: value
        for name, value in manifest.factors.items()
        if name == "mesh" or name.startswith(_PREFIXES)
    }
    for name, (factor, content) in differing(told, content_factors(manifest)).items():
        yield Finding(
            code="PPC509",
            message="the content is not what the key factors say",
            where=Where(field=name),
            expected="no such factor" if factor is None else factor,
            found="none" if content is None else content,
        )


def check_form(manifest: Manifest) -> Iterator[Finding]:
    """Yield PPC206 for another format, PPC205 for a manifest that contradicts itself.

    A manifest that was read has passed this; one that was just made, or changed, need not.
    """
    if manifest.format != FORMAT:
        yield Finding(
            code="PPC206",
            message="the manifest has another format",
            where=Where(field="format"),
            expected=f"format {FORMAT}",
            found=f"format {manifest.format}",
            hint="read it with the pp_precompile version that wrote it, or build again",
        )
    for reason in consistency.contradictions(manifest):
        yield Finding(
            code="PPC205",
            message="the manifest contradicts itself",
            expected="references and numbers that agree",
            found=reason[:300],
            hint="delete it and build again",
        )
