"""The environment: stable, without torch, and every part of it keyed or named as not."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from pp_precompile.contract import environment
from pp_precompile.contract.encoding import decode
from pp_precompile.contract.environment import Device, Environment, cpu_device, host_environment
from tests.manifests import make_environment

READ = """
import sys
from pp_precompile.contract.encoding import encode
from pp_precompile.contract.environment import host_environment
data = encode(host_environment())
assert not {"torch", "torchtitan", "numpy"} & set(sys.modules), sorted(sys.modules)
sys.stdout.write(data.hex())
"""


def read_elsewhere() -> Environment:
    done = subprocess.run([sys.executable, "-c", READ], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return decode(bytes.fromhex(done.stdout), Environment, what="the other process's environment")


def test_two_processes_read_the_same_and_import_no_torch() -> None:
    assert read_elsewhere() == read_elsewhere() == host_environment()


def test_this_host_has_what_programs_depend_on() -> None:
    host = host_environment()
    assert host.torch
    assert len(host.torch_record) == 64
    assert host.device == cpu_device()
    assert host.device.features == tuple(sorted(host.device.features))


def test_another_device_is_taken_as_given() -> None:
    gpu = Device(type="cuda", name="a GPU", capability="9.0", features=())
    assert host_environment(gpu).device == gpu
    assert host_environment(gpu).torch == host_environment().torch


def factors_after(**changes: object) -> dict[str, str]:
    return msgspec.structs.replace(make_environment(), **changes).factors()


@pytest.mark.parametrize("field", [f.name for f in msgspec.structs.fields(Environment)])
def test_every_field_is_keyed_or_known_not_to_be(field: str) -> None:
    if field == "device":
        gpu = Device(type="cuda", name="x", capability="9.0", features=())
        assert factors_after(device=gpu) != factors_after()
    else:
        # On a newer C library equal programs run: compared at load, not keyed.
        assert (factors_after(**{field: "x"}) == factors_after()) == (field == "libc")


@pytest.mark.parametrize(
    ("change", "keyed"),
    [
        ({"type": "xpu"}, True),
        ({"capability": "avx512"}, True),
        ({"features": ("avx2",)}, True),
        ({"name": "another CPU"}, False),
    ],
    ids=lambda change: str(change),
)
def test_which_parts_of_a_cpu_are_keyed(change: dict[str, object], keyed: bool) -> None:
    device = msgspec.structs.replace(make_environment().device, **change)
    assert (factors_after(device=device) != factors_after()) == keyed


def test_the_name_of_a_gpu_is_keyed() -> None:
    one = Device(type="cuda", name="a", capability="9.0", features=())
    other = msgspec.structs.replace(one, name="b")
    assert factors_after(device=one) != factors_after(device=other)


CPUINFO = """processor\t: 0
model name\t: A CPU @ 2 GHz
flags\t\t: fpu avx2 fma sse2 {more}

processor\t: 1
model name\t: Another
flags\t\t: fpu
"""


@pytest.mark.parametrize(
    ("text", "capability", "features"),
    [
        (CPUINFO.format(more=""), "avx2", ("avx2", "fma", "sse2")),
        (
            CPUINFO.format(more="avx512f avx512dq avx512vl avx512bw"),
            "avx512",
            ("avx2", "avx512bw", "avx512dq", "avx512f", "avx512vl", "fma", "sse2"),
        ),
        ("processor\t: 0\nFeatures\t: fp asimd sve crc32\n", "sve", ("asimd", "fp", "sve")),
        ("processor\t: 0\n", "scalar", ()),
    ],
    ids=["avx2", "avx512", "arm", "none"],
)
def test_cpu_facts(
    text: str,
    capability: str,
    features: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(environment, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(environment, "_cpu_facts", environment._cpu_facts.__wrapped__)
    device = cpu_device()
    assert (device.capability, device.features) == (capability, features)
