"""Signatures: whose builds are read where keys are trusted, and what a key's file must be."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from pp_precompile.contract.encoding import encode
from pp_precompile.contract.errors import CorruptError, StoreError, UntrustedError
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.signature import Signature, Signatures, signed_message
from pp_precompile.store.keys import PrivateKey, PublicKey, generate, read_private, read_public
from pp_precompile.store.store import Store, open_store
from tests.manifests import make_manifest


@pytest.fixture
def key(tmp_path: Path) -> PrivateKey:
    generate(tmp_path / "key")
    return read_private(tmp_path / "key")


@pytest.fixture
def other(tmp_path: Path) -> PrivateKey:
    generate(tmp_path / "other")
    return read_private(tmp_path / "other")


@pytest.fixture
def build(store: Store) -> Manifest:
    manifest = make_manifest(2, put=store.blobs.put)
    store.builds.publish(manifest)
    return manifest


def sign(store: Store, build: Manifest, key: PrivateKey) -> Signature:
    return store.builds.signatures.add(build.build_id, store.builds.raw(build.build_id), key)


def trusting(store: Store, *keys: PublicKey) -> Store:
    return open_store(store.root, create=False, trusted=keys)


def test_a_signed_build_is_read_and_others_are_not(
    store: Store, build: Manifest, key: PrivateKey, other: PrivateKey
) -> None:
    sign(store, build, key)
    assert trusting(store, key.public).builds.read(build.build_id) == build
    assert trusting(store, other.public, key.public).builds.read(build.build_id) == build
    with pytest.raises(UntrustedError) as caught:
        trusting(store, other.public).builds.read(build.build_id)
    assert (caught.value.code, caught.value.exit_code) == ("PPC209", 1)
    assert key.public.id[:12] in str(caught.value.found)
    assert other.public.id[:12] in str(caught.value.expected)


def test_several_keys_sign_beside_each_other(
    store: Store, build: Manifest, key: PrivateKey, other: PrivateKey
) -> None:
    for one in (key, other, key):
        sign(store, build, one)
    assert len(store.builds.signatures.of(build.build_id)) == 2
    for one in (key, other):
        assert trusting(store, one.public).builds.read(build.build_id) == build


def _flip(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


TAMPERED: dict[str, Callable[[Store, Manifest, Signature], object]] = {
    "no signature": lambda s, b, _: s.builds.signatures.remove(b.build_id),
    "another signature's bytes": lambda s, b, one: s.builds.signatures.put(
        b.build_id, [msgspec.structs.replace(one, value=_flip(one.value))]
    ),
    "a signature that is too short": lambda s, b, one: s.builds.signatures.put(
        b.build_id, [msgspec.structs.replace(one, value=b"")]
    ),
    "another algorithm": lambda s, b, one: s.builds.signatures.put(
        b.build_id, [msgspec.structs.replace(one, algorithm="none")]
    ),
    "a trusted key's name over another key's signature": lambda s, b, one: s.builds.signatures.put(
        b.build_id, [msgspec.structs.replace(one, value=bytes(64))]
    ),
    "a changed manifest": lambda s, b, _: s.builds.path(b.build_id).write_bytes(
        msgspec.structs.replace(b, stages=(b.stages[0],) * 2).to_bytes()
    ),
    "a manifest that is no msgpack": lambda s, b, _: s.builds.path(b.build_id).write_bytes(
        b"\xc1" * 100
    ),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_what_was_tampered_with_is_refused_before_it_is_decoded(
    store: Store, build: Manifest, key: PrivateKey, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    TAMPERED[name](store, build, sign(store, build, key))
    decoded: list[object] = []
    monkeypatch.setattr(Manifest, "from_bytes", lambda *_, **__: decoded.append(1))
    with pytest.raises(UntrustedError, match="PPC209"):
        trusting(store, key.public).builds.read(build.build_id)
    assert decoded == []


def test_the_signature_of_another_build_does_not_count(
    store: Store, build: Manifest, key: PrivateKey
) -> None:
    stranger = make_manifest(1, put=store.blobs.put)
    store.builds.publish(stranger)
    signature = sign(store, stranger, key)
    store.builds.signatures.put(build.build_id, [signature])
    with pytest.raises(UntrustedError):
        trusting(store, key.public).builds.read(build.build_id)


def test_a_damaged_file_of_signatures(store: Store, build: Manifest, key: PrivateKey) -> None:
    one = sign(store, build, key)
    path = store.builds.path(build.build_id).with_suffix(".sig")
    for data in (b"\x80", b"\xc1", encode(Signatures(signatures=(one, one)))):
        path.write_bytes(data)
        with pytest.raises(CorruptError, match="PPC205"):
            trusting(store, key.public).builds.read(build.build_id)


def test_publishing_again_keeps_a_signature_that_still_fits(
    store: Store, build: Manifest, key: PrivateKey
) -> None:
    sign(store, build, key)
    store.builds.publish(build)
    assert trusting(store, key.public).builds.read(build.build_id) == build
    changed = msgspec.structs.replace(
        build, stages=(msgspec.structs.replace(build.stages[0], modules=("new",)), build.stages[1])
    )
    store.builds.publish(changed)
    assert build.build_id not in store.builds.signatures
    store.builds.remove(build.build_id)
    sign_again = make_manifest(2, put=store.blobs.put)
    store.builds.publish(sign_again)
    sign(store, sign_again, key)
    store.builds.remove(build.build_id)
    assert list(store.builds.path(build.build_id).parent.iterdir()) == []


def test_keys_are_files_as_openssl_writes_them(tmp_path: Path) -> None:
    public = generate(tmp_path / "key")
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert read_public([tmp_path / "key.pub"]) == (public,)
    assert read_private(tmp_path / "key").public == public
    for command in (
        ["openssl", "pkey", "-in", "key", "-noout", "-text"],
        ["openssl", "pkey", "-pubin", "-in", "key.pub", "-noout", "-text"],
    ):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert "ED25519" in done.stdout, done.stderr


def test_openssl_verifies_what_is_specified(
    tmp_path: Path, store: Store, build: Manifest, key: PrivateKey
) -> None:
    (tmp_path / "sig").write_bytes(sign(store, build, key).value)
    (tmp_path / "message").write_bytes(b"pp_precompile manifest " + build.manifest_id.encode())
    assert signed_message(build.manifest_id) == (tmp_path / "message").read_bytes()
    words = "openssl pkeyutl -verify -pubin -inkey key.pub -rawin -in message -sigfile sig".split()
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "Verified Successfully" in done.stdout, done.stderr


def test_keys_are_never_overwritten(tmp_path: Path, key: PrivateKey) -> None:
    before = (tmp_path / "key").read_bytes()
    with pytest.raises(StoreError, match="PPC212"):
        generate(tmp_path / "key")
    (tmp_path / "new.pub").write_text("something of the user's")
    with pytest.raises(StoreError, match="PPC212"):
        generate(tmp_path / "new")
    assert (tmp_path / "key").read_bytes() == before
    assert not (tmp_path / "new").exists()


def test_keys_that_cannot_be_used(tmp_path: Path, key: PrivateKey) -> None:
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    wrong = X25519PrivateKey.generate()
    (tmp_path / "x.pub").write_bytes(
        wrong.public_key().public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo)
    )
    (tmp_path / "x").write_bytes(
        wrong.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    )
    (tmp_path / "x").chmod(0o600)
    (tmp_path / "text").write_text("no key")
    (tmp_path / "text").chmod(0o600)
    for name in ("missing", "text", "x.pub", "key"):
        with pytest.raises(StoreError, match="PPC212"):
            read_public([tmp_path / name])
    for name in ("missing", "text", "x", "key.pub"):
        with pytest.raises(StoreError, match="PPC212"):
            read_private(tmp_path / name)
    (tmp_path / "key").chmod(0o640)
    with pytest.raises(StoreError, match="chmod 600"):
        read_private(tmp_path / "key")
    (tmp_path / "key.pub").chmod(0o666)
    with pytest.raises(StoreError, match="world-writable"):
        read_public([tmp_path / "key.pub"])
