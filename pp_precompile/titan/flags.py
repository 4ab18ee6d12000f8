"""The flags that turn precompiled programs on, for any of torchtitan's compile sections."""

from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from pp_precompile.runtime.job import Policy

C = TypeVar("C")


@dataclass(kw_only=True)
class PrecompileFlags:
    """What a compile section needs beside torchtitan's own fields."""

    precompile: bool = False
    """Load compiled programs from the store, or compile and store them."""

    precompile_artifact_dir: str = ""
    """The store: a folder or URL. Without it ``$PP_PRECOMPILE_DIR``, else ``precompile`` below the
    dump folder."""

    precompile_policy: Policy = "auto"
    """
    What to do if no stored build fits this job:
        auto: compile what is missing, store it, and train.
        strict: stop all ranks before anything is compiled.
    """

    precompile_trusted_keys: list[str] = field(default_factory=list)
    """
    Files of public keys (``pp-precompile keygen`` makes them). If there are any, a build that none
    of them signed stops all ranks, and what a job compiles itself is neither stored nor reused.
    """


def with_flags(kind: type[C], section: Any) -> C:
    """Return torchtitan's ``section`` as one of ``kind``, with the flags at their defaults."""
    return kind(**{f.name: getattr(section, f.name) for f in fields(section)})
