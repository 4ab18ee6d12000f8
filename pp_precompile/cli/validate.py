"""``pp-precompile validate STORE``: does a build fit itself, this host, and a job."""

from collections.abc import Sequence

import msgspec

from pp_precompile.cli.arguments import Parsed, Parser, parse
from pp_precompile.cli.choose import all_or_one
from pp_precompile.cli.explain import print_differences, readable
from pp_precompile.cli.output import SHORT, print_findings, print_json
from pp_precompile.cli.verdicts import BuildReport, damaged, print_verdicts, report
from pp_precompile.contract.digest import Digest
from pp_precompile.contract.environment import host_environment
from pp_precompile.contract.errors import PrecompileError
from pp_precompile.contract.manifest import Manifest
from pp_precompile.graph.check import check_build, check_request, selected
from pp_precompile.graph.finding import Finding, errors, from_error
from pp_precompile.graph.host import comparable
from pp_precompile.graph.nearest import Nearest, nearest
from pp_precompile.graph.request import Request
from pp_precompile.store.store import Store


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a job asks for, and, if the store has no such build, which comes nearest."""

    build: Digest
    found: bool
    nearest: Nearest | None


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON document; docs/validate.md describes it."""

    schema: str = "pp_precompile.validate/1"
    store: str
    fits: bool
    job: JobReport | None
    findings: list[Finding]
    builds: list[BuildReport]


def run(argv: Sequence[str]) -> int:
    """Validate builds; returns 0 if all fit, 1 if there is an error among the findings."""
    parser = Parser("validate", "Check builds against themselves, this host, and a job.", job=True)
    parser.add_argument("--build", metavar="ID", help="first digits of a build's id; else all")
    parser.add_argument(
        "--stage", metavar="K", type=int, action="append", help="read this stage's blobs only"
    )
    parser.add_argument(
        "--rank", metavar="R", type=int, action="append", help="read the blobs of this rank only"
    )
    parser.takes_trusted_keys()
    parsed = parse(parser, argv)
    if parsed is None:
        return 0
    store = parsed.store()
    request = parsed.request()
    document = _all(parsed, store) if request is None else _for_job(parsed, store, request)
    _print(document, as_json=parsed.options.json)
    return 0 if document.fits else 1


def _all(parsed: Parsed, store: Store) -> Document:
    builds = [_build(parsed, store, build) for build in all_or_one(store, parsed.options.build)]
    return _document(store, builds)


def _for_job(parsed: Parsed, store: Store, request: Request) -> Document:
    asked = request.build_id
    wanted = store.builds.resolve(parsed.options.build) if parsed.options.build else asked
    if wanted in store.builds.ids():
        job = JobReport(build=asked, found=wanted == asked, nearest=None)
        return _document(store, [_build(parsed, store, wanted, request)], job=job)
    manifests = {manifest.build_id: manifest for manifest in readable(store)}
    near = nearest(request.factors, manifests.values())
    missing = Finding(
        code="PPC101",
        message="the store has no build for this job",
        expected=f"build {asked}",
        found=f"build {near.build} comes nearest: {len(near.differs)} factors differ"
        if near
        else "no build",
        hint="build it with 'pp-precompile build' and the job's arguments",
    )
    parts = check_request(manifests[near.build], request) if near else []
    # Single factors stand in the table of differences; here are those that need a picture.
    findings = [missing, *(f for f in parts if f.code not in ("PPC605", "PPC102"))]
    job = JobReport(build=asked, found=False, nearest=near)
    return _document(store, [], findings, job)


def _build(
    parsed: Parsed, store: Store, build: Digest, request: Request | None = None
) -> BuildReport:
    try:
        manifest = store.builds.read(build)
    except PrecompileError as error:
        if error.exit_code == 2:
            raise
        return damaged(build, from_error(error))
    findings = _check(parsed, store, manifest)
    if request is not None:
        findings += check_request(manifest, request)
    stages = selected(manifest, parsed.options.stage, parsed.options.rank)
    return report(manifest, findings, stages)


def _check(parsed: Parsed, store: Store, manifest: Manifest) -> list[Finding]:
    host, remarks = comparable(manifest, host_environment())
    findings = check_build(
        manifest,
        host=host,
        read_blob=store.blobs.get,
        stages=parsed.options.stage,
        ranks=parsed.options.rank,
    )
    return [*findings, *remarks]


def _document(
    store: Store,
    builds: list[BuildReport],
    findings: Sequence[Finding] = (),
    job: JobReport | None = None,
) -> Document:
    return Document(
        store=store.place,
        fits=not errors(findings) and all(build.fits for build in builds),
        job=job,
        findings=list(findings),
        builds=builds,
    )


def _print(document: Document, *, as_json: bool) -> None:
    if as_json:
        print_json(document)
    else:
        for build in document.builds:
            print_verdicts(build)
        if document.job and document.job.nearest:
            print_differences(document.job.nearest)
    print_findings(document.findings, "this job")
    for build in document.builds:
        print_findings(build.findings, f"build {build.build[:SHORT]}")
