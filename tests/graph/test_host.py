"""Another host is refused by name, in both directions; the one that built never is."""

from typing import Any

import msgspec
import pytest

from pp_precompile.contract.environment import Environment
from pp_precompile.graph.check import check_build
from pp_precompile.graph.finding import Finding
from pp_precompile.graph.host import comparable
from tests.graph.builds import PP4, edited

BUILT = PP4.environment


def other(**changes: Any) -> Environment:
    return msgspec.structs.replace(BUILT, **changes)


def device(**changes: Any) -> Environment:
    return other(device=msgspec.structs.replace(BUILT.device, **changes))


def found(host: Environment) -> list[Finding]:
    return check_build(PP4, host=host)


def test_the_host_that_built_it_always_fits() -> None:
    assert found(BUILT) == []


SOFTWARE = [name for name in BUILT.factors() if ".device." not in name]


@pytest.mark.parametrize("name", SOFTWARE)
def test_each_piece_of_software_counts(name: str) -> None:
    [finding] = found(other(**{name.removeprefix("environment."): "another"}))
    assert (finding.code, finding.where.field) == ("PPC102", name)
    assert (finding.expected, finding.found) == (BUILT.factors()[name] or "none", "another")


def test_a_host_with_fewer_cpu_features_is_refused() -> None:
    fewer = tuple(f for f in BUILT.device.features if not f.startswith("avx512"))
    findings = found(device(features=fewer, capability="avx2"))
    assert [(f.code, f.where.field) for f in findings] == [
        ("PPC102", "environment.device.capability"),
        ("PPC102", "environment.device.features"),
    ]
    assert "with avx512" in findings[1].expected
    assert "avx512_bitalg, " in findings[1].expected
    assert findings[1].found == "without these, and with none instead"


def test_a_host_with_more_cpu_features_is_refused() -> None:
    more = tuple(sorted((*BUILT.device.features, "avx10")))
    [finding] = found(device(features=more))
    assert finding.code == "PPC102"
    assert finding.found == "without these, and with avx10 instead"


def test_a_cpu_of_another_name_is_a_warning() -> None:
    [finding] = found(device(name="another CPU"))
    assert (finding.code, finding.severity) == ("PPC102", "warning")


@pytest.mark.parametrize(
    ("libc", "fits"),
    [("glibc-2.36", True), ("glibc-2.100", True), ("glibc-2.35", False), ("glibc-2", False)],
)
def test_an_older_c_library_is_refused(libc: str, fits: bool) -> None:
    assert BUILT.libc == "glibc-2.36"
    assert [f.where.field for f in found(other(libc=libc))] == (
        [] if fits else ["environment.libc"]
    )


def test_an_artifact_for_a_gpu_is_refused_on_a_host_without_one() -> None:
    gpu = {"type": "cuda", "name": "a GPU", "capability": "9.0", "features": []}
    manifest = edited(lambda v: v["environment"].update(device=gpu))
    fields = {f.where.field: f for f in check_build(manifest, host=BUILT)}
    assert fields["environment.device.type"].expected == "cuda"
    assert fields["environment.device.type"].found == "cpu"


def test_without_a_driver_to_ask_a_gpu_build_is_compared_in_software() -> None:
    gpu = {"type": "cuda", "name": "a GPU", "capability": "9.0", "features": []}
    manifest = edited(lambda v: v["environment"].update(device=gpu))
    host, [remark] = comparable(manifest, BUILT)
    assert check_build(manifest, host=host) == []
    assert (remark.code, remark.severity) == ("PPC102", "warning")
    assert comparable(PP4, BUILT) == (BUILT, [])
