"""Schedule tables: one text for one action, and who runs what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp_precompile.contract.schedule import Action, parse_actions
from tests.manifests import make_schedule

WITH_MICROBATCH = ("F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B")
OF_A_STAGE = ("UNSHARD", "RESHARD", "REDUCE_GRAD")

NUMBERS = st.integers(0, 999_999_999)
ACTIONS = st.builds(Action, NUMBERS, st.sampled_from(WITH_MICROBATCH), NUMBERS) | st.builds(
    Action, NUMBERS, st.sampled_from(OF_A_STAGE), st.none()
)


@given(ACTIONS)
def test_actions_come_back_as_they_were(action: Action) -> None:
    assert Action.parse(str(action)) == action


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("2F0", Action(2, "F", 0)),
        ("10SEND_B12", Action(10, "SEND_B", 12)),
        ("3REDUCE_GRAD", Action(3, "REDUCE_GRAD", None)),
    ],
)
def test_known_actions(text: str, action: Action) -> None:
    assert Action.parse(text) == action


@pytest.mark.parametrize(
    "text",
    [
        *("", "F0", "2F", "2", "2X0", "2f0", "2F0 ", " 2F0", "2F0\n", "-1F0", "02F0", "2F00"),
        *("2UNSHARD1", "2SEND_F", "2FORWARD0", "٣F0", "9999999999F0", "(0F1;1B0)OVERLAP_F_B"),
    ],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an action such as '2F0' or '1UNSHARD'"):
        Action.parse(text)


@given(st.text("0123456789FBIWSEND_RCVUHAGT", max_size=12))
def test_whatever_is_read_is_the_only_text_of_its_action(text: str) -> None:
    try:
        action = Action.parse(text)
    except ValueError:
        return
    assert str(action) == text


@given(ACTIONS)
def test_a_cell_of_one_action_is_that_action(action: Action) -> None:
    assert parse_actions(str(action)) == (action,)


@pytest.mark.parametrize("backward", ["B", "I"])
def test_overlapped_actions_come_in_the_order_written(backward: str) -> None:
    pair = (Action(0, "F", 4), Action(1, backward, 10))
    assert parse_actions(f"(0F4;1{backward}10)OVERLAP_F_B") == pair
    assert parse_actions(f"(1{backward}10;0F4)OVERLAP_F_B") == pair[::-1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(0F4;1F0)OVERLAP_F_B", "does not overlap a forward with a backward"),
        ("(0F4;1W0)OVERLAP_F_B", "does not overlap a forward with a backward"),
        ("(0F4;1UNSHARD)OVERLAP_F_B", "does not overlap a forward with a backward"),
        ("(0F4;1X0)OVERLAP_F_B", "'1X0' is not an action"),
        ("(0F4; 1B0)OVERLAP_F_B", "' 1B0' is not an action"),
        ("(0F4)OVERLAP_F_B", "is not an action"),
        ("(0F4;1B0;2F0)OVERLAP_F_B", "is not an action"),
        ("(0F4;1B0)OVERLAP", "is not an action"),
        ("0F4;1B0", "is not an action"),
        ("((0F4;1B0)OVERLAP_F_B;1B0)OVERLAP_F_B", "is not an action"),
    ],
)
def test_other_cells_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_actions(text)


def test_stages_and_owners() -> None:
    table = make_schedule(stages=6, ranks=2, microbatches=2)
    assert table.stages == 6
    assert [table.owner(stage) for stage in range(6)] == [0, 1, 0, 1, 0, 1]
    with pytest.raises(KeyError):
        table.owner(6)
