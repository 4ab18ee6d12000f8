"""What ranks say when no stored build fits: words only, which nothing may keep from being said."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from pp_precompile.contract.digest import Digest
from pp_precompile.contract.errors import StoreError
from pp_precompile.runtime.verdict import Request, explain, refusal
from tests.manifests import some_digest


class _Builds:
    def ids(self) -> list[Digest]:
        raise StoreError("PPC211", "cannot list s3://bucket/store/builds", exit_code=2)


JOB: Any = SimpleNamespace(build_id=some_digest("build"), factors={"a": "b"}, how_to_build="")
GONE: Any = SimpleNamespace(builds=_Builds())
REQUESTS = [Request(host="h", build_id=JOB.build_id, miss="PPC211: gone", writable=False)]


def test_a_remote_store_that_is_gone_does_not_keep_a_job_from_compiling(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        explain(JOB, REQUESTS, GONE)
    assert "no stored build fits, compiling" in caplog.text
    assert "cannot list s3://bucket/store/builds" in caplog.text


def test_a_strict_job_is_refused_with_its_own_code() -> None:
    assert refusal(JOB, REQUESTS, GONE).code == "PPC101"
