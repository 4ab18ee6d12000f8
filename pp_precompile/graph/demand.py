"""Which programs a schedule runs, by stage: what a build for it has to hold."""

from collections.abc import Sequence

from pp_precompile.contract.program import ROLES, Role
from pp_precompile.contract.schedule import ScheduleTable, parse_actions
from pp_precompile.contract.stage import StageRecord
from pp_precompile.graph.roles import gradients, role_of

_ONCE_A_STEP: tuple[Role, ...] = ("unshard", "reduce_grad")


def demand(
    schedule: ScheduleTable, stages: Sequence[StageRecord], *, loss: bool
) -> list[tuple[int, Role]]:
    """Return stage and role of every program that ``schedule`` runs, in the order of use.

    Programs that gather and reduce once a step are run under every schedule, where a stage has
    them; so is the loss, on the last stage, if it is a program (:func:`~.loss.has_loss`). Where a
    stage runs by blocks, each of them needs the program.
    """
    kinds: dict[int, set[str]] = {}
    for texts in schedule.actions:
        for text in texts:
            for action in parse_actions(text):
                kinds.setdefault(action.stage, set()).add(action.kind)
    found: list[tuple[int, Role]] = []
    for stage in stages:
        ran = kinds.get(stage.index, set()) - {"UNSHARD", "REDUCE_GRAD"}
        roles = {role_of(kind, *gradients(unit)) for kind in ran for unit in stage.units}
        roles |= {role for role in _ONCE_A_STEP if role in stage.programs}
        if loss and stage.index == len(stages) - 1:
            roles.add("loss")
        found += [(stage.index, role) for role in ROLES if role in roles]
    return found
