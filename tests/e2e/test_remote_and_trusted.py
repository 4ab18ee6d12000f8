"""A job whose store is a bucket, and a job that loads only what a trusted key signed."""

from pathlib import Path

import pytest

from pp_precompile.cli.main import main
from pp_precompile.store.store import open_store
from tests.e2e import launch
from tests.e2e.conftest import few_layers_arguments as arguments
from tests.store import s3

pytestmark = pytest.mark.torchrun

URL = f"s3://{s3.BUCKET}/store"
STRICT = ("--compile.precompile_policy", "strict")
STEPS = ("--training.steps", "2")


@pytest.mark.timeout(900)
def test_unsigned_is_refused_and_signed_from_a_bucket_trains(cache: Path, tmp_path: Path) -> None:
    environment = launch.environment(cache)
    store = tmp_path / "store"
    live = launch.train(arguments(2, store, *STEPS), environment, tmp_path / "live", ranks=2)
    assert live.code == 0, live.output
    assert main(["keygen", str(tmp_path / "key")]) == 0
    trusted = ("--compile.precompile_trusted_keys", str(tmp_path / "key.pub"))

    # Policy auto: an unsigned build is no miss that compiling could cure.
    refused = launch.train(
        arguments(2, store, *STEPS, *trusted), environment, tmp_path / "refused", ranks=2
    )
    assert refused.code != 0
    assert refused.own_output.count("\nPPC209: ") + refused.own_output.count("\nPPC401: ") == 2
    assert "no signature" in refused.output
    assert all(refused.rank(rank)["ours"]["loaded"] == 0 for rank in range(2))
    assert all(refused.rank(rank)["ours"]["compiled"] == 0 for rank in range(2))

    [build] = open_store(store, create=False).builds.ids()
    assert main(["sign", str(store), "--key", str(tmp_path / "key")]) == 0
    with s3.server() as line:
        s3.make_bucket(line)
        with s3.set_environment(s3.environment(line)):
            assert main(["push", str(store), URL]) == 0
        line.requests.clear()
        host = launch.fresh_host(tmp_path / "host") | s3.environment(line)
        loaded = launch.train(_at_url(*trusted), host, tmp_path / "far", ranks=2)
        assert loaded.code == 0, loaded.output
        assert loaded.same_numbers(live)
        assert all(loaded.compiler_counts(rank) == {} for rank in range(2))
        # One download a host, not a rank.
        assert line.count("GET", f"{build}.msgpack") == 1
        for digest in open_store(store, create=False).builds.read(build).blobs():
            assert line.count("GET", digest) == 1
        assert line.count("PUT", "") == 0


def _at_url(*words: str) -> list[str]:
    """The same job with the bucket as its store, strict."""
    here = Path("a-folder")
    return [URL if word == str(here) else word for word in arguments(2, here, *STEPS, *STRICT)] + [
        *words
    ]
