from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import warm_start
from benchmarks.front_ends import FRONT_ENDS
from benchmarks.job import STRICT, Job
from benchmarks.losses import printed
from tests.benchmarks.outcomes import outcome

JOB = Job(module="m", config="c", degree=2, steps=3)


def test_all_ways_share_the_job_and_differ_in_how_it_is_compiled() -> None:
    shared = JOB.arguments()
    assert JOB.precompiled(Path("/s"), *STRICT) == [
        *shared,
        *("--compile.precompile", "--compile.precompile_artifact_dir", "/s"),
        *("--compile.precompile_policy", "strict"),
    ]
    assert JOB.eager() == [*shared, "--compile.mode", "None", "--compile.no-enable"]


def test_front_ends_differ_in_the_words_that_turn_them_on() -> None:
    of = {name: replace(JOB, front_end=end) for name, end in FRONT_ENDS.items()}
    shared = JOB.arguments()
    words = {name: job.precompiled(Path("/s"))[len(shared) :] for name, job in of.items()}
    folder = ["--compile.precompile_artifact_dir", "/s"]
    assert words["block"] == words["pipe"] == ["--compile.precompile", *folder]
    assert words["graph_pp"][:3] == [
        *("--compile.precompile", "--compile.precompile_engine", "graph_pp"),
    ]
    assert of["block"].eager() == [*shared, "--compile.no-enable"]
    assert of["pipe"].eager() == shared


def test_ranks_are_pipeline_times_data_parallel() -> None:
    assert JOB.ranks == 2
    sharded = Job(module="m", config="c", degree=2, steps=3, shard=2)
    assert sharded.ranks == 4
    words = sharded.arguments()
    assert words[words.index("--parallelism.data_parallel_shard_degree") + 1] == "2"


@pytest.mark.parametrize(
    "words", [["--degree", "3"], ["--shard", "3"], ["--steps", "1"], ["--repeat", "0"]]
)
def test_options_that_cannot_work_are_usage_errors(words: list[str]) -> None:
    with pytest.raises(SystemExit) as error:
        warm_start.main(words)
    assert error.value.code == 2


def test_losses_are_printed_as_torchtitan_does() -> None:
    assert printed(outcome(1.0, (8.071459, 7.8))) == "8.07146, 7.80000"
