"""Which program an action runs: the one place that says what the parts of a backward are.

Where a schedule runs the gradients of inputs (I) and of weights (W) apart, a stage has two programs
for them only if it has both kinds of gradient. The first stage takes token ids, which need none: it
does nothing at I, and its whole backward at W. A stage with frozen weights does the reverse.
"""

from pp_precompile.contract.program import Role
from pp_precompile.contract.stage import Unit


def gradients(stage: Unit) -> tuple[bool, bool]:
    """Tell whether a stage's backward has gradients for (arguments, parameters).

    Parameters count that the forward program reads, as they are or gathered; those that the loss
    alone reads get their gradient from it, and those whose gradient forward returns need no other.
    """
    forward = stage.programs["forward"]
    read = {v.name for v in forward.inputs if v.kind in ("parameter", "unsharded")}
    read -= {v.name for v in forward.outputs if v.kind == "parameter_gradient"}
    return (
        any(item.tensor.requires_grad for item in stage.arguments),
        any(item.tensor.requires_grad and item.name in read for item in stage.parameters),
    )


def role_of(kind: str, arguments: bool, parameters: bool) -> Role | None:
    """Return the program that an action of ``kind`` runs; None if it computes nothing.

    Args:
        kind: of an :class:`~pp_precompile.contract.schedule.Action`.
        arguments: whether the stage's backward has gradients for arguments.
        parameters: whether it has gradients for parameters.

    A stage without a program of its own for UNSHARD or REDUCE_GRAD does that work in its others.
    """
    if kind in ("B", "I", "W"):
        return _backward(kind, arguments, parameters)
    return _OTHERS.get(kind)


def backward_ways(stage: Unit) -> tuple[tuple[Role, ...], ...]:
    """Return the programs of each way in which a stage's backward can run: whole, in two parts.

    A build has one or the other, or both for a schedule that uses both. A stage that computes
    nothing in a backward has none. Parts of which one is missing are still a way: what it lacks is
    then missed by the checks that look at each way.
    """
    ways: tuple[tuple[Role, ...], ...] = (("backward",), ("backward_input", "backward_weight"))
    return tuple(way for way in ways if not stage.programs.keys().isdisjoint(way))


_OTHERS: dict[str, Role] = {
    "F": "forward",
    "UNSHARD": "unshard",
    "REDUCE_GRAD": "reduce_grad",
}


def _backward(kind: str, arguments: bool, parameters: bool) -> Role | None:
    if arguments and parameters:
        return _PARTS[kind]
    done_here = {"B": arguments or parameters, "I": arguments, "W": parameters}[kind]
    return "backward" if done_here else None


_PARTS: dict[str, Role] = {
    "B": "backward",
    "I": "backward_input",
    "W": "backward_weight",
}
