"""Shortening the list of faults of a run that broke a rule, as far as the rule still breaks."""

from collections.abc import Callable, Sequence
from typing import Final

from rillnode.node.simulation.interpreter import one_by_one
from rillnode.node.simulation.results import Result

RUNS_MAX: Final = 60
"""Runs that shortening may take: what is left then is short enough."""


def shrink(result: Result, again: Callable[[Sequence[int]], Result]) -> Result:
    """Find a run with few faults that breaks the first rule that `result` has broken.

    Leaves out halves, then quarters, down to single faults (delta debugging), for as long as the
    rule still breaks. The answer may be `result` itself.

    Args:
        result: of the run with all faults.
        again: repeats the run with the faults of these numbers only.
    """
    rule = result.violations[0].rule
    best, runs = result, 0
    parts = 1
    while len(best.faults) > 0 and parts <= len(best.faults) and runs < RUNS_MAX:
        numbers = [fault.number for fault in best.faults]
        shorter: Result | None = None
        for chunk in one_by_one(_chunks(numbers, parts)):
            attempt = again([one for one in numbers if one not in chunk])
            runs += 1
            if any(violation.rule == rule for violation in attempt.violations):
                shorter = attempt
                break
            if runs == RUNS_MAX:
                break
        if shorter is None:
            parts *= 2
        else:
            best, parts = shorter, max(1, parts - 1)
    return best


def _chunks(numbers: Sequence[int], parts: int) -> list[Sequence[int]]:
    size = max(1, -(-len(numbers) // parts))
    return [numbers[at : at + size] for at in range(0, len(numbers), size)]
