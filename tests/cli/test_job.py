"""``validate`` and ``explain`` with a job's arguments: torchtitan evaluates them."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.commands import ROOT, command, filled

JOB = ("@configs/llama3_debug_pp4.args",)

# What a build of the job would publish, with stand-ins for the programs' bytes.
_PUBLISH = """
import sys
from pathlib import Path
import msgspec
from pp_precompile.titan import cpu_platform
cpu_platform.enable()
from pp_precompile.contract.recipe import expand
from pp_precompile.store.store import open_store
from pp_precompile.titan.arguments import parse
from pp_precompile.titan.request import evaluate
from tests.cli.commands import of_this_host
from tests.graph.builds import PP4
store = open_store(Path(sys.argv[1]), create=True)
request = evaluate(parse(expand(sys.argv[2:])))
like = msgspec.structs.replace(PP4, factors=request.factors, schedule=request.schedule)
print(of_this_host(like, store).build_id, request.build_id)
"""


class Published(NamedTuple):
    store: Path
    build: str


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """A store with two builds of other jobs, and that of the job."""
    store = tmp_path_factory.mktemp("store")
    filled(store)
    done = subprocess.run(
        [sys.executable, "-c", _PUBLISH, str(store), *JOB],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    build, asked = done.stdout.split()
    assert build == asked
    return Published(store, build)


def test_the_build_of_the_job_is_found_and_fits(published: Published) -> None:
    result = command("validate", published.store, "--json", "--", *JOB)
    assert result.code == 0, result.err
    assert "torch" in result.heavy
    assert "evaluating the job's configuration imports torch" in result.err
    document = result.json
    assert document["job"] == {"build": published.build, "found": True, "nearest": None}
    assert [item["build"] for item in document["builds"]] == [published.build]


def test_without_a_build_for_the_job_the_nearest_one_is_explained(published: Published) -> None:
    store, build = published
    other = (*JOB, "--parallelism.pipeline_parallel_schedule", "GPipe")
    result = command("validate", store, "--", *other)
    assert result.code == 1
    assert "this job: PPC101: the store has no build for this job" in result.err
    assert "PPC602" in result.err
    assert "0F4 (rank 0, position 4)" in result.err
    assert f"3 factors differ from build {build[:12]}" in result.out
    assert "schedule.name" in result.out

    explained = command("explain", store, "--json", "--", *other).json
    assert explained["nearest"]["build"] == build
    assert [item["factor"] for item in explained["nearest"]["differs"]] == [
        "parallelism.pipeline_parallel_schedule",
        "schedule.name",
        "schedule.table",
    ]

    named = command("validate", store, "--build", build, "--json", "--", *other)
    assert named.code == 1
    codes = [finding["code"] for finding in named.json["builds"][0]["findings"]]
    assert codes == ["PPC602", "PPC602", "PPC605"]
    assert named.json["job"]["found"] is False
