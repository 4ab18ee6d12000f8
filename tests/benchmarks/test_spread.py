import pytest

from benchmarks.spread import ratio, spread


def test_median_and_spread() -> None:
    three = spread([5.0, 1.0, 3.0])
    assert (three.median, three.low, three.high) == (3.0, 1.0, 5.0)
    assert three.as_dict() == {"median": 3.0, "min": 1.0, "max": 5.0, "samples": [5.0, 1.0, 3.0]}


def test_ratios_pair_what_ran_in_the_same_repetition() -> None:
    assert ratio([10.0, 40.0], [1.0, 2.0]).samples == (10.0, 20.0)


def test_nothing_measured_is_an_error() -> None:
    with pytest.raises(ValueError, match="no samples"):
        spread([])


def test_ratios_need_equally_many_samples() -> None:
    with pytest.raises(ValueError, match="shorter"):
        ratio([1.0, 2.0], [1.0])


@pytest.mark.parametrize(
    ("samples", "text"),
    [
        ([120.4], "120 s"),
        ([12.34], "12.3 s"),
        ([1.234], "1.23 s"),
        ([0.1234], "0.123 s"),
        ([2.0, 1.0, 12.0], "2.00 s (1.00–12.0)"),
    ],
)
def test_text(samples: list[float], text: str) -> None:
    assert spread(samples).text(" s") == text
