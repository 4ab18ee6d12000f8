"""What a build depends on beyond its configuration: software, device, instruction set.

All of it is read without importing torch, so that a login node can check a build in well under a
second: versions and digests of installed files from the distributions' metadata
(:mod:`pp_precompile.contract.installed`), CPU features from ``/proc/cpuinfo``.
"""

import functools
import platform
import sys
from pathlib import Path

import msgspec

from pp_precompile.contract.digest import digest_bytes
from pp_precompile.contract.installed import installed_version, package_digest

_CPUINFO = Path("/proc/cpuinfo")

_ISA_PREFIXES = ("sse", "ssse", "avx", "fma", "f16c", "bmi", "amx", "abm", "popcnt", "movbe")
_ISA_PREFIXES_ARM = ("asimd", "sve", "bf16", "i8mm", "fphp", "dotprod", "fp")

_VECTOR_ISAS: tuple[tuple[str, frozenset[str]], ...] = (
    ("avx512", frozenset({"avx512f", "avx512dq", "avx512vl", "avx512bw", "fma"})),
    ("avx2", frozenset({"avx2", "fma"})),
    ("sve", frozenset({"sve"})),
    ("neon", frozenset({"asimd"})),
)
"""Vector instruction sets, widest first, by the CPU features that they need (as in Inductor)."""


class Device(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The device that programs run on.

    ``capability`` is the vector instruction set of a CPU or the compute capability of a GPU
    (``9.0``); ``features`` the CPU's instruction-set flags, which native code may use all of.
    """

    type: str
    name: str
    capability: str
    features: tuple[str, ...]


class Environment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Software and device of one host, as far as they reach compiled programs.

    A name with ``_record`` is the digest of what the package is made of: the list of its wheel's
    files, wherever and by whom it was installed, or the sources of a checkout.
    """

    python: str
    platform: str
    libc: str
    torch: str
    torch_record: str
    torchtitan: str
    torchtitan_record: str
    triton: str
    pp_precompile: str
    pp_precompile_source: str
    device: Device

    def factors(self) -> dict[str, str]:
        """Return the key factors: all but the CPU's marketing name and the C library's version.

        Those two are compared at load time only: equal programs run on differently named CPUs, and
        on a newer C library.
        """
        plain = msgspec.to_builtins(self)
        device = plain.pop("device")
        del plain["libc"]
        factors = {f"environment.{name}": value for name, value in plain.items()}
        factors["environment.device.type"] = device["type"]
        factors["environment.device.capability"] = device["capability"]
        factors["environment.device.features"] = " ".join(device["features"])
        if device["type"] != "cpu":
            factors["environment.device.name"] = device["name"]
        return factors


def cpu_device() -> Device:
    """Describe this host's CPU without a compiler."""
    name, features = _cpu_facts()
    known = frozenset(features)
    capability = next((isa for isa, needs in _VECTOR_ISAS if needs <= known), "scalar")
    return Device(type="cpu", name=name, capability=capability, features=features)


@functools.cache
def host_environment(device: Device | None = None) -> Environment:
    """Describe this host; ``device`` is its CPU unless the caller asked a GPU's driver."""
    return Environment(
        python=f"{sys.implementation.name}-{sys.version_info[0]}.{sys.version_info[1]}",
        platform=f"{platform.system().lower()}-{platform.machine()}",
        libc="-".join(platform.libc_ver()),
        torch=installed_version("torch"),
        torch_record=package_digest("torch"),
        torchtitan=installed_version("torchtitan"),
        torchtitan_record=package_digest("torchtitan"),
        triton=installed_version("triton"),
        pp_precompile=own_version(),
        pp_precompile_source=_own_source(),
        device=device or cpu_device(),
    )


def own_version() -> str:
    """Return the version of this package."""
    from pp_precompile import __version__

    return __version__


@functools.cache
def _cpu_facts() -> tuple[str, tuple[str, ...]]:
    fields: dict[str, str] = {}
    if _CPUINFO.exists():
        for line in _CPUINFO.read_text().split("\n\n", 1)[0].splitlines():
            key, _, value = line.partition(":")
            fields.setdefault(key.strip().lower(), value.strip())
    arm = "features" in fields
    flags = fields.get("features" if arm else "flags", "").split()
    prefixes = _ISA_PREFIXES_ARM if arm else _ISA_PREFIXES
    name = fields.get("model name") or platform.processor() or platform.machine()
    return name, tuple(sorted({flag for flag in flags if flag.startswith(prefixes)}))


def _own_source() -> str:
    """Digest of our sources that can reach a program: everything in ``stage``."""
    folder = Path(__file__).parent.parent / "stage"
    parts = [
        f"{path.name}\0{path.read_text(encoding='utf-8')}\0" for path in sorted(folder.glob("*.py"))
    ]
    return digest_bytes("".join(parts).encode())
