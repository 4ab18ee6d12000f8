"""What one stage sends, the next one receives: derived from the schedule, or as it is written.

torch derives the communication of the schedules that it knows from their forwards and backwards;
a schedule file may also write it out. Derived communication matches by construction.

Between ranks, overlapped actions are one: torch sends what either computed after both, and starts
neither before both have received what they need.
"""

import itertools
from collections.abc import Iterator

from pp_precompile.contract.errors import Where
from pp_precompile.graph.finding import Finding, listed
from pp_precompile.graph.timetable import Place, Timetable, describe

Transfer = tuple[Place, Place]
"""Where a value becomes available on one rank, and where another action first needs it."""

_MOST = 20
_HINT = "correct the schedule's sends and receives, or leave them all out to have them derived"


def transfers(timetable: Timetable) -> Iterator[Transfer]:
    """Yield every pair of actions in different stages of which the second waits for the first.

    Between stages of one rank, and wherever the schedule does not write its communication out,
    these are the computations themselves; else the send and the receive. Between ranks, where two
    actions are overlapped, it is the last of them that others wait for, and the first that waits.
    """
    microbatches = timetable.microbatches
    for before, after in timetable.neighbours():
        apart = timetable.owner[before] != timetable.owner[after]
        for sender, receiver, kind in ((before, after, "F"), (after, before, "B")):
            if timetable.written and apart:
                first, second = [f"SEND_{kind}"], [f"RECV_{kind}"]
            else:
                first = second = ["F"] if kind == "F" else ["B", "I"]
            for microbatch in range(microbatches):
                start = timetable.place(sender, *first, microbatch=microbatch)
                end = timetable.place(receiver, *second, microbatch=microbatch)
                if start is not None and end is not None:
                    yield _transfer(timetable, start, end)


def _transfer(timetable: Timetable, start: Place, end: Place) -> Transfer:
    if start[0] == end[0]:
        return start, end
    return (start[0], timetable.cell(start).last), (end[0], timetable.cell(end).first)


def check_pairs(timetable: Timetable) -> Iterator[Finding]:
    """Yield PPC523 where written communication lacks one of its two sides, or has one too many."""
    if not timetable.written:
        return
    looked_at = range(timetable.microbatches)
    faults = (
        finding
        for before, after in timetable.neighbours()
        for sender, receiver, kind in ((before, after, "F"), (after, before, "B"))
        for microbatch in looked_at
        for finding in _pair(timetable, sender, receiver, kind, microbatch)
    )
    yield from itertools.islice(faults, _MOST)
    for (stage, kind, _), places in timetable.places.items():
        beyond = kind in ("SEND_F", "RECV_B") and stage == timetable.stages - 1
        before = kind in ("SEND_B", "RECV_F") and stage == 0
        if beyond or before:
            yield Finding(
                code="PPC523",
                message=f"stage {stage} has no neighbour to exchange that value with",
                where=Where(stage=stage, rank=places[0][0], field="schedule.actions"),
                expected="communication between stages only",
                found=listed(describe(timetable, place) for place in places),
                hint=_HINT,
            )


def _pair(
    timetable: Timetable, sender: int, receiver: int, kind: str, microbatch: int
) -> Iterator[Finding]:
    sends = timetable.places.get((sender, f"SEND_{kind}", microbatch), [])
    receives = timetable.places.get((receiver, f"RECV_{kind}", microbatch), [])
    apart = timetable.owner[sender] != timetable.owner[receiver]
    if len(sends) == len(receives) == (1 if apart else 0):
        return
    rank = timetable.owner[sender]
    value = "activation" if kind == "F" else "gradient"
    yield Finding(
        code="PPC523",
        message=f"the {value} of microbatch {microbatch} from stage {sender} to {receiver} is not "
        "sent and received once",
        where=Where(stage=sender, rank=rank, field="schedule.actions"),
        expected=f"one {sender}SEND_{kind}{microbatch} on rank {rank} and one "
        f"{receiver}RECV_{kind}{microbatch} on rank {timetable.owner[receiver]}"
        if apart
        else f"no communication: rank {rank} runs both stages",
        found=listed(describe(timetable, place) for place in (*sends, *receives)),
        hint=_HINT,
    )


def check_channels(timetable: Timetable) -> Iterator[Finding]:
    """Yield PPC526 where a rank receives in another order than its peer sends.

    Between two ranks values are told apart by their order alone: a stage would take another
    microbatch's activation for its own.
    """
    if not timetable.written:
        return
    sent: dict[tuple[int, int], list[Transfer]] = {}
    for transfer in transfers(timetable):
        (sender, _), (receiver, _) = transfer
        if sender != receiver:
            sent.setdefault((sender, receiver), []).append(transfer)
    for (sender, receiver), pairs in sent.items():
        by_send = sorted(pairs)
        by_receive = sorted(pairs, key=lambda pair: pair[1])
        for one, other in zip(by_send, by_receive, strict=True):
            if one != other:
                yield Finding(
                    code="PPC526",
                    message=f"rank {receiver} receives in another order than rank {sender} sends",
                    where=Where(rank=receiver, field="schedule.actions"),
                    expected=f"{describe(timetable, one[1])} first, because "
                    f"{describe(timetable, one[0])} is",
                    found=f"{describe(timetable, other[1])} first",
                    hint=_HINT,
                )
                break
