"""Sums up runs: the JSON document, and means over many runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from statistics import fmean
from typing import Any

from rillnode.node.simulation.run import Result
from rillnode.node.simulation.scenario import Scenario


def percentile(ordered: Sequence[float], part: float) -> float:
    """The value that this part of the ordered values does not exceed; 0 where there are none."""
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, max(0, -(-int(part * 1_000) * len(ordered) // 1_000) - 1))]


def distribution(values: Sequence[float]) -> dict[str, float]:
    """Mean and percentiles of milliseconds."""
    ordered = sorted(values)
    return {
        "mean_ms": round(fmean(ordered), 3) if ordered else 0.0,
        "p50_ms": round(percentile(ordered, 0.5), 3),
        "p90_ms": round(percentile(ordered, 0.9), 3),
        "p99_ms": round(percentile(ordered, 0.99), 3),
        "max_ms": round(ordered[-1], 3) if ordered else 0.0,
    }


def document(scenario: Scenario, path: Path, result: Result) -> dict[str, Any]:
    """One run, as `rillnode sim run` writes it."""
    found: dict[str, Any] = {
        "name": scenario.name,
        "mode": scenario.mode,
        "seed": result.seed,
        "nodes": scenario.nodes,
        "trace_hash": result.trace_hash,
        "events": result.events_count,
        "virtual_seconds": round(result.virtual_seconds, 3),
        "wall_seconds": round(result.wall_seconds, 3),
        "pushed": result.pushed,
        "confirmed": result.confirmed,
        "delivered": result.delivered,
        "healed_seconds": result.healed_seconds,
        "confirm": distribution(result.latencies_ms),
        "delivery": distribution(result.deliveries_ms),
        "bytes_sent": result.bytes_sent,
        "network": result.network,
        "faults": [str(fault) for fault in result.faults],
        "violations": [
            {"rule": one.rule, "at": round(one.at, 3), "text": one.text}
            for one in result.violations
        ],
    }
    if result.violations:
        found["repeat"] = repeat_command(path, result)
    return found


def repeat_command(path: Path, result: Result) -> str:
    """The command that repeats a run exactly."""
    numbers = ",".join(str(fault.number) for fault in result.faults)
    return f"rillnode sim run {quote(str(path))} --seed {result.seed} --faults {numbers or 'none'}"


def summary(scenario: Scenario, documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Many runs of a scenario: means of their figures, and which broke rules."""
    broken: dict[str, int] = {}
    for one in documents:
        for rule in dict.fromkeys(violation["rule"] for violation in one["violations"]):
            broken[rule] = broken.get(rule, 0) + 1
    failed = [one for one in documents if one["violations"]]
    return {
        "name": scenario.name,
        "mode": scenario.mode,
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
