"""A build was made for one kind of host: compare it with this one, by name."""

from pp_precompile.contract.environment import Environment
from pp_precompile.contract.errors import StaleBuildError
from pp_precompile.contract.key import differing
from pp_precompile.contract.manifest import Manifest


def check_host(manifest: Manifest, host: Environment) -> None:
    """Refuse a build for another software, device or CPU instruction set, in either direction.

    Raises:
        StaleBuildError: PPC102 with every difference by name.
    """
    stored = manifest.environment.factors()
    differences = differing(host.factors(), stored)
    if older := _older_libc(manifest.environment.libc, host.libc):
        differences["environment.libc"] = older
    if differences:
        raise StaleBuildError(
            "PPC102",
            f"build {manifest.build_id[:12]} was made for another host",
            expected="; ".join(f"{name} = {theirs}" for name, (_, theirs) in differences.items()),
            found="; ".join(f"{name} = {ours}" for name, (ours, _) in differences.items()),
            hint="build on this kind of host, or run on the kind that it was built for",
        )


def _older_libc(built: str, host: str) -> tuple[str, str] | None:
    """Return (host's, build's) C library if the host's is older: kernels may need newer symbols."""
    (built_name, built_version), (name, version) = _split(built), _split(host)
    if name == built_name and version < built_version:
        return host, built
    return None


def _split(libc: str) -> tuple[str, tuple[int, ...]]:
    name, _, version = libc.partition("-")
    return name, tuple(int(part) for part in version.split(".") if part.isdigit())
