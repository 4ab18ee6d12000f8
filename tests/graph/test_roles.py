"""Which program an action runs, for stages with either, both or no kind of gradient."""

import msgspec
import pytest

from pp_precompile.contract.program import ROLES
from pp_precompile.contract.stage import StageRecord
from pp_precompile.contract.tensor import NamedTensor, TensorSpec
from pp_precompile.graph.roles import gradients, role_of
from tests.manifests import ACTIVATION, WEIGHT, make_stage

TABLE = {
    # (gradients for arguments, for parameters): programs of B, I, W
    (True, True): ("backward", "backward_input", "backward_weight"),
    (True, False): ("backward", "backward", None),
    (False, True): ("backward", None, "backward"),
    (False, False): (None, None, None),
}


@pytest.mark.parametrize("have", TABLE)
def test_the_parts_of_a_backward(have: tuple[bool, bool]) -> None:
    assert tuple(role_of(kind, *have) for kind in "BIW") == TABLE[have]


@pytest.mark.parametrize("have", TABLE)
def test_other_actions_do_not_depend_on_gradients(have: tuple[bool, bool]) -> None:
    roles = {kind: role_of(kind, *have) for kind in ("F", "UNSHARD", "REDUCE_GRAD")}
    assert roles == {"F": "forward", "UNSHARD": "unshard", "REDUCE_GRAD": "reduce_grad"}
    assert role_of("SEND_F", *have) is role_of("RESHARD", *have) is None


def test_every_role_but_the_loss_and_the_overlap_is_that_of_one_action() -> None:
    kinds = ("F", "B", "I", "W", "UNSHARD", "REDUCE_GRAD")
    assert {role_of(kind, True, True) for kind in kinds} == set(ROLES) - {"loss", "overlap"}


def frozen(tensor: TensorSpec) -> TensorSpec:
    return msgspec.structs.replace(tensor, requires_grad=False)


def named(*tensors: TensorSpec) -> tuple[NamedTensor, ...]:
    return tuple(NamedTensor(name=str(i), tensor=tensor) for i, tensor in enumerate(tensors))


def of_kind(stage: StageRecord, kind: str) -> StageRecord:
    """``stage`` whose forward reads its parameter as a value of another kind."""
    forward = stage.programs["forward"]
    weight, *rest = forward.inputs
    inputs = (msgspec.structs.replace(weight, kind=kind), *rest)
    programs = {**stage.programs, "forward": msgspec.structs.replace(forward, inputs=inputs)}
    return msgspec.structs.replace(stage, programs=programs)


def test_gradients_of_a_stage() -> None:
    first, second = make_stage(0), make_stage(1)
    assert gradients(first) == (False, True)
    assert gradients(second) == (True, True)
    assert gradients(of_kind(second, "unsharded")) == (True, True)
    name = second.parameters[0].name
    fixed = (NamedTensor(name=name, tensor=frozen(WEIGHT)),)
    assert gradients(msgspec.structs.replace(second, parameters=fixed)) == (True, False)
    inputs = named(frozen(ACTIVATION), ACTIVATION)
    assert gradients(msgspec.structs.replace(second, arguments=inputs)) == (True, True)


def test_a_parameter_that_forward_does_not_read_has_no_gradient_in_backward() -> None:
    assert gradients(of_kind(make_stage(1), "buffer")) == (True, False)
