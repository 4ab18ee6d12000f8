from collections import Counter

from benchmarks.measure import order


def test_ways_take_turns_at_going_first() -> None:
    turns = list(order(["a", "b", "c"], 3))
    assert [way for _, way in turns] == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    assert Counter(repetition for repetition, _ in turns) == {0: 3, 1: 3, 2: 3}
