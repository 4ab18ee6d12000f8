"""The ZB-H1 schedule: 1F1B with the backward in two parts, in no more memory.

From "Zero Bubble Pipeline Parallelism" (Qi, Wan, Huang, Lin; arXiv 2401.10241), section 2.1. torch
has no such schedule by name; its zero-bubble schedules place two stages on each rank.

The order is that of 1F1B, with the gradient of the inputs (I) where 1F1B has its backward. The
stage before waits for that one alone, so it goes on earlier. The gradients of the weights (W) may
come at any time after. Rank ``p`` falls ``p`` microbatches behind with them: in 1F1B it keeps ``p``
fewer microbatches alive than rank 0, so the most that any rank keeps does not grow. Those that it
still has to do at the end fill the time in which 1F1B waits.
"""


def zb_h1(ranks: int, microbatches: int) -> list[list[str]]:
    """Return the actions of each rank, one stage a rank.

    Raises:
        ValueError: if there are fewer microbatches than ranks: the delay would be longer than the
            step.
    """
    if microbatches < ranks:
        raise ValueError(f"{microbatches} microbatches for {ranks} ranks: as many are needed")
    return [_of_rank(rank, ranks, microbatches) for rank in range(ranks)]


def _of_rank(rank: int, ranks: int, microbatches: int) -> list[str]:
    ahead = ranks - 1 - rank
    actions = [f"{rank}F{number}" for number in range(ahead)]
    for number in range(microbatches):
        if ahead + number < microbatches:
            actions.append(f"{rank}F{ahead + number}")
        actions.append(f"{rank}I{number}")
        if number >= rank:
            actions.append(f"{rank}W{number - rank}")
    return actions + [f"{rank}W{microbatches - rank + left}" for left in range(rank)]
