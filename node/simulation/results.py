"""Results of runs: what one has given, as the JSON document, and means over many."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from statistics import fmean
from typing import Any, Final

from rillnode.node.simulated.history import Event, Violation
from rillnode.node.simulation.faults import Fault
from rillnode.node.simulation.interpreter import one_by_one
from rillnode.node.simulation.scenario import Scenario

EVENTS_TOLD_MAX: Final = 30
"""Events before something broke that are told."""


@dataclass(slots=True)
class Result:
    """The result of one run.

    Attributes:
        seed: decided everything.
        trace_hash: the same for every run of the scenario with this seed and these faults.
        faults: those that happened.
        violations: what was broken.
        events: what happened, the first of all `events_count`.
        virtual_seconds: how long it took there, `wall_seconds` here.
        healed_seconds: from the end of the last fault until every client had everything; None if
            that never came. This and what follows is of runs with clients of the simulation's.
        latencies_ms: from push to confirm, each entry.
        deliveries_ms: from push to each follower, each entry.
    """

    seed: int
    trace_hash: str = ""
    faults: Sequence[Fault] = ()
    violations: Sequence[Violation] = ()
    events: Sequence[Event] = field(default=(), repr=False)
    events_count: int = 0
    virtual_seconds: float = 0.0
    wall_seconds: float = 0.0
    healed_seconds: float | None = None
    pushed: int = 0
    latencies_ms: list[float] = field(default_factory=list[float])
    deliveries_ms: list[float] = field(default_factory=list[float])
    bytes_sent: dict[str, int] = field(default_factory=dict[str, int])
    network: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def confirmed(self) -> int:
        """How many entries were confirmed."""
        return len(self.latencies_ms)

    @property
    def delivered(self) -> int:
        """How many entries have come to followers, each as often as to one."""
        return len(self.deliveries_ms)

    @property
    def told(self) -> str:
        """What was broken and what came before that, in lines for people."""
        lines = [f"seed {self.seed}: {one.rule}: {one.text}" for one in self.violations]
        events = [one for one in self.events if one.at <= self.violations[0].at]
        lines += [
            f"  {one.at:9.3f} s  {one.who}: {one.what} {one.text}".rstrip()
            for one in events[-EVENTS_TOLD_MAX:]
        ]
        return "\n".join([*lines, f"  {self.violations[0].at:9.3f} s  broken"])


def percentile(ordered: Sequence[float], percent: int) -> float:
    """The value that so many percent of the ordered values do not exceed; 0 if there are none."""
    return ordered[max(0, -(-percent * len(ordered) // 100) - 1)] if ordered else 0.0


def distribution(values: Sequence[float]) -> dict[str, float]:
    """Mean and percentiles of milliseconds."""
    ordered = sorted(values)
    figures = {"mean_ms": fmean(ordered) if ordered else 0.0}
    figures |= {f"p{percent}_ms": percentile(ordered, percent) for percent in (50, 90, 99)}
    figures["max_ms"] = percentile(ordered, 100)
    return {name: round(value, 3) for name, value in figures.items()}


def document(target: str, result: Result, scenario: Scenario | None = None) -> dict[str, Any]:
    """One run, as `rillnode sim run` writes it.

    Args:
        target: what the command line names.
        result: of the run.
        scenario: None for one of the user's own, whose document is the same for every run.
    """
    found: dict[str, Any] = {
        "name": target,
        "seed": result.seed,
        "trace_hash": result.trace_hash,
        "events": result.events_count,
        "virtual_seconds": round(result.virtual_seconds, 3),
    }
    if scenario is not None:
        about = {"name": scenario.name, "mode": scenario.mode, "seed": result.seed}
        found = {**about, "nodes": scenario.nodes, **found, **about}
        found |= {
            "wall_seconds": round(result.wall_seconds, 3),
            "pushed": result.pushed,
            "confirmed": result.confirmed,
            "delivered": result.delivered,
            "healed_seconds": result.healed_seconds,
            "confirm": distribution(result.latencies_ms),
            "delivery": distribution(result.deliveries_ms),
            "bytes_sent": result.bytes_sent,
            "network": result.network,
        }
    found["faults"] = [str(fault) for fault in result.faults]
    found["violations"] = [
        {"rule": one.rule, "at": round(one.at, 3), "text": one.text} for one in result.violations
    ]
    if result.violations:
        numbers = ",".join(str(fault.number) for fault in result.faults) or "none"
        command = f"rillnode sim run {quote(target)} --seed {result.seed} --faults {numbers}"
        found["repeat"] = command
    return found


def summary(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Many runs of a scenario: means of their figures, and which broke rules."""
    broken: dict[str, int] = {}
    for one in documents:
        for rule in dict.fromkeys(violation["rule"] for violation in one["violations"]):
            broken[rule] = broken.get(rule, 0) + 1
    failed = [one for one in documents if one["violations"]]
    return {
        **{key: documents[0][key] for key in ("name", "mode")},
        "seeds": len(documents),
        "failed_seeds": [one["seed"] for one in failed],
        "rules_broken": broken,
        **{key: mean(documents, key) for key in ("confirm", "delivery")},
        "virtual_seconds": round(sum(one["virtual_seconds"] for one in documents), 3),
        "wall_seconds": round(sum(one["wall_seconds"] for one in documents), 3),
        "runs": [{"seed": one["seed"], "trace_hash": one["trace_hash"]} for one in documents],
        "repeat": [one["repeat"] for one in failed],
    }


def mean(documents: Sequence[Mapping[str, Any]], key: str) -> dict[str, float]:
    """The mean of each figure of a table that all documents have."""
    tables = [one[key] for one in documents]
    return {name: round(fmean(table[name] for table in tables), 3) for name in tables[0]}


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Every figure of a document that is a number or a text, by its name."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{name}.")  # pyright: ignore[reportUnknownArgumentType]
        elif not isinstance(value, list):
            found[prefix + name] = value
    return found


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
