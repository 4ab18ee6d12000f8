"""How many microbatches are under way in a stage at once."""

from collections import Counter

from pp_precompile.contract.schedule import ScheduleTable, parse_actions

_CHANGE = {"F": 1, "B": -1, "W": -1}


def in_flight(schedule: ScheduleTable) -> dict[int, int]:
    """Return, by stage, the most microbatches that are between forward and backward at once.

    A backward in two parts ends with the second one, W.
    """
    most: dict[int, int] = {stage: 0 for held in schedule.stages_of_rank for stage in held}
    now: Counter[int] = Counter()
    for texts in schedule.actions:
        for text in texts:
            for action in parse_actions(text):
                now[action.stage] += _CHANGE.get(action.kind, 0)
                most[action.stage] = max(most.get(action.stage, 0), now[action.stage])
    return most
