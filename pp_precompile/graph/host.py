"""A build was made for one kind of host: compare it with this one, by name, in both directions."""

import re
from collections.abc import Iterator

import msgspec

from pp_precompile.contract.environment import Environment
from pp_precompile.contract.errors import Where
from pp_precompile.contract.key import differing
from pp_precompile.contract.manifest import Manifest
from pp_precompile.graph.finding import Finding, Severity, listed

_NUMBER = re.compile(r"[0-9]{1,9}")

_FEATURES = "environment.device.features"


def check_host(manifest: Manifest, host: Environment) -> Iterator[Finding]:
    """Yield PPC102 for each difference in software, device or CPU instruction set.

    A CPU of another name with the same instruction set, as mixed clusters have, is a warning.
    """
    stored = manifest.environment
    for name, (ours, theirs) in differing(host.factors(), stored.factors()).items():
        if name == _FEATURES:
            yield _features(set((theirs or "").split()), set((ours or "").split()))
        else:
            yield _finding(name, theirs or "none", ours or "none")
    if _is_older(host.libc, stored.libc):
        yield _finding("environment.libc", f"{stored.libc} or newer", host.libc)
    if stored.device.type == host.device.type == "cpu" and stored.device.name != host.device.name:
        yield _finding(
            "environment.device.name", stored.device.name, host.device.name, severity="warning"
        )


def comparable(manifest: Manifest, host: Environment) -> tuple[Environment, list[Finding]]:
    """Return what of ``host``, described by its CPU, can be compared with a build for a GPU.

    Only torch can ask a GPU's driver. Without it the software is compared, and a warning says that
    the device was not.
    """
    device = manifest.environment.device
    if device.type in ("cpu", host.device.type):
        return host, []
    remark = _finding(
        "environment.device",
        f"{device.name}, capability {device.capability}",
        "not looked at: the driver is asked when training starts",
        severity="warning",
    )
    return msgspec.structs.replace(host, device=device), [remark]


def _features(built: set[str], here: set[str]) -> Finding:
    """Name the instruction-set flags that make the difference, not the dozens that do not."""
    return _finding(
        _FEATURES,
        f"the CPU features of the build's host, with {listed(sorted(built - here), most=99)}",
        f"without these, and with {listed(sorted(here - built), most=99)} instead",
    )


def _finding(field: str, expected: str, found: str, *, severity: Severity = "error") -> Finding:
    return Finding(
        code="PPC102",
        message="the build was made for another host",
        where=Where(field=field),
        expected=expected,
        found=found,
        hint="build on this kind of host, or run on the kind that it was built for",
        severity=severity,
    )


def _is_older(host: str, built: str) -> bool:
    """Tell whether the host's C library is the older one: kernels may need newer symbols."""
    (name, version), (built_name, built_version) = _split(host), _split(built)
    return name == built_name and version < built_version


def _split(libc: str) -> tuple[str, tuple[int, ...]]:
    name, _, version = libc.partition("-")
    return name, tuple(int(part) for part in version.split(".") if _NUMBER.fullmatch(part))
