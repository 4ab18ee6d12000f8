"""Run a command in a process of its own, and see whether it imported torch."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from pp_precompile.contract.environment import host_environment
from pp_precompile.contract.manifest import Manifest
from pp_precompile.store.store import Store, open_store
from tests.graph.builds import INTERLEAVED, PP4, rekeyed
from tests.graph.fakes import with_fake_blobs

ROOT = Path(__file__).parent.parent.parent

_RUN = """
import sys
from pp_precompile.cli import main
code = main(sys.argv[1:])
heavy = sorted({"torch", "torchtitan"} & set(sys.modules))
print("heavy imports:", *heavy, file=sys.stderr)
sys.exit(code)
"""


@dataclass(frozen=True)
class Result:
    """How a command ended; ``heavy`` are those of torch and torchtitan that it imported."""

    code: int
    out: str
    err: str
    heavy: tuple[str, ...]

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def command(*arguments: object) -> Result:
    """Run ``pp-precompile`` with these arguments."""
    done = subprocess.run(
        [sys.executable, "-c", _RUN, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    *err, last = done.stderr.rstrip("\n").split("\n")
    assert last.startswith("heavy imports:"), done.stderr
    heavy = tuple(last.split()[2:])
    return Result(code=done.returncode, out=done.stdout, err="\n".join(err), heavy=heavy)


def of_this_host(manifest: Manifest, store: Store) -> Manifest:
    """Publish a real build as if it had been made on this host, and return it."""
    here = msgspec.structs.replace(manifest, environment=host_environment())
    published = with_fake_blobs(rekeyed(here), store.blobs.put)
    store.builds.publish(published)
    return published


def filled(path: Path) -> tuple[Store, Manifest, Manifest]:
    """Make a store with the two real builds: four ranks with 1F1B, two ranks interleaved."""
    store = open_store(path, create=True)
    return store, of_this_host(PP4, store), of_this_host(INTERLEAVED, store)
