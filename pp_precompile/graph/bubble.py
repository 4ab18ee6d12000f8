"""How much of a step the ranks of a schedule wait.

At unit times this is enough to compare schedules, and no prediction of a time; the simulation and
its assumptions are those of :mod:`~pp_precompile.graph.simulate`.
"""

from fractions import Fraction

from pp_precompile.contract.schedule import ScheduleTable
from pp_precompile.graph.simulate import Simulation, simulate


def bubble_fraction(schedule: ScheduleTable) -> Fraction:
    """Return the part of all ranks' time in a step in which they wait, at unit times.

    Raises:
        ValueError: if the schedule waits for itself, or computes nothing.
    """
    return bubble_of(simulate(schedule))


def bubble_of(simulation: Simulation) -> Fraction:
    """Return the part of all ranks' time in a simulated step in which they wait: 0 to below 1.

    It is 1 - busy / (step * ranks), with the busy times of all ranks added up.

    Raises:
        ValueError: if no time passes in the step.
    """
    ranks = range(len(simulation.table.ranks))
    work = sum(Fraction(simulation.busy(rank)) for rank in ranks)
    if not work:
        raise ValueError("the schedule computes nothing")
    # Times that are floats are rounded: the sum of a rank's may exceed the end of its last action.
    return max(Fraction(0), 1 - work / (Fraction(simulation.step) * len(ranks)))


def step_units(schedule: ScheduleTable) -> int:
    """Return the units of time from the first action of a step to the end of its last.

    Raises:
        ValueError: if the schedule waits for itself.
    """
    return int(simulate(schedule).step)
