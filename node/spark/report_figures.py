"""Calculates a report's figures and series from the gold tables, without Spark.

Times of series are the beginnings of *steps*: as many minutes as keep a series short.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from rillnode.node.spark.tables import CHAINS, GOLD, LAG, MINUTES, PUBLISHERS, GoldTable
from rillnode.node.spark.upsert import read_rows

STEPS_MAX: Final = 240
"""Points of a series: more than a line on a screen shows."""
TOP_MAX: Final = 15
LINES_MAX: Final = 4
"""Consumers in the plot of the lag: as many as lines have colours."""
_MINUTE: Final = timedelta(minutes=1)

Row = Mapping[str, Any]
Series = list[tuple[datetime, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """A report's contents.

    Attributes:
        first: first minute that anything is known of, None if nothing is.
        last: last minute that anything is known of.
        step: length of a step of the series.
        totals: sums over all minutes, by name.
        series: values per step, by name; a step without events has no value.
        streams: one row per stream, the busiest first.
        publishers: one row per stream and publisher, the busiest first.
        chains: one row per chain with gaps, late messages or duplicates, the worst first.
        lag: one row per consumer, stream and partition, as of the last minute.
        consumers: entries behind per step, by consumer, the furthest behind first.
    """

    first: datetime | None
    last: datetime | None
    step: timedelta
    totals: dict[str, float]
    series: dict[str, Series]
    streams: list[dict[str, Any]]
    publishers: list[dict[str, Any]]
    chains: list[dict[str, Any]]
    lag: list[dict[str, Any]]
    consumers: dict[str, Series]


def collect(gold: str, since: datetime | None = None) -> Figures:
    """Read the gold tables and work out what there is to tell.

    Args:
        gold: the tables' directory or URI.
        since: the first minute, None for all.
    """
    rows = {table.name: _rows(gold, table, since) for table in GOLD}
    minutes, chains = rows[MINUTES.name], rows[CHAINS.name]
    publishers, lag = rows[PUBLISHERS.name], rows[LAG.name]
    times = [row["minute"] for group in rows.values() for row in group]
    first, last = min(times, default=None), max(times, default=None)
    step = _step(first, last)

    def per_step(
        group: Iterable[Row], name: str, combine: Callable[[list[float]], float] = sum
    ) -> Series:
        found: dict[datetime, list[float]] = defaultdict(list)
        for row in group:
            if row[name] is not None and first is not None:
                found[first + (row["minute"] - first) // step * step].append(row[name])
        return [(time, combine(values)) for time, values in sorted(found.items())]

    seconds = step.total_seconds()
    return Figures(
        first=first,
        last=last,
        step=step,
        totals=_totals(minutes, chains, publishers),
        series={
            "messages/s": [(at, count / seconds) for at, count in per_step(minutes, "messages")],
            "bytes/s": [(at, size / seconds) for at, size in per_step(minutes, "bytes")],
            "latency p50": per_step(minutes, "latency_p50_ms", _middle),
            "latency p95": per_step(minutes, "latency_p95_ms", max),
            "landing p50": per_step(minutes, "landing_p50_ms", _middle),
            "landing p95": per_step(minutes, "landing_p95_ms", max),
            "gaps": per_step(chains, "gaps"),
            "late": per_step(chains, "late"),
            "duplicates": per_step(minutes, "duplicates"),
            "malformed": per_step(minutes, "malformed"),
        },
        streams=_grouped(
            minutes, ("stream",), ("messages", "bytes", "malformed", "forged", "duplicates")
        ),
        publishers=_grouped(publishers, ("stream", "publisher"), ("messages", "bytes")),
        chains=_troubled(chains),
        lag=_latest(lag),
        consumers=_lag_series(lag, first, step),
    )


def _rows(gold: str, table: GoldTable, since: datetime | None) -> list[dict[str, Any]]:
    return read_rows(f"{gold.rstrip('/')}/{table.name}", table, since).to_pylist()


def _step(first: datetime | None, last: datetime | None) -> timedelta:
    if first is None or last is None:
        return _MINUTE
    minutes = (last - first) // _MINUTE + 1
    return _MINUTE * -(-minutes // STEPS_MAX)


def _totals(
    minutes: Sequence[Row], chains: Sequence[Row], publishers: Sequence[Row]
) -> dict[str, float]:
    names = ("messages", "bytes", "malformed", "forged", "duplicates")
    totals: dict[str, float] = {name: sum(row[name] for row in minutes) for name in names}
    totals |= {name: sum(row[name] for row in chains) for name in ("gaps", "late")}
    totals["streams"] = len({row["stream"] for row in minutes})
    totals["publishers"] = len({row["publisher"] for row in publishers})
    return totals


def _grouped(
    rows: Iterable[Row], keys: tuple[str, ...], sums: tuple[str, ...]
) -> list[dict[str, Any]]:
    """The groups with the largest first sums."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for row in rows:
        found = groups.setdefault(tuple(row[key] for key in keys), [0] * len(sums))
        for at, name in enumerate(sums):
            found[at] += row[name]
    largest = sorted(groups.items(), key=lambda item: (-item[1][0], item[0]))[:TOP_MAX]
    return [
        {**dict(zip(keys, key, strict=True)), **dict(zip(sums, values, strict=True))}
        for key, values in largest
    ]


def _troubled(chains: Sequence[Row]) -> list[dict[str, Any]]:
    faults = ("gaps", "late", "duplicates")
    keys = ("stream", "partition", "publisher", "chain")
    wrong = [{**row, "faults": sum(row[name] for name in faults)} for row in chains]
    found = _grouped([row for row in wrong if row["faults"]], keys, ("faults", *faults))
    return [{name: row[name] for name in (*keys, *faults)} for row in found]


def _latest(lag: Sequence[Row]) -> list[dict[str, Any]]:
    keys = ("consumer", "stream", "partition")
    # Rows come in order, so that the last one stays.
    latest = {tuple(row[key] for key in keys): row for row in lag}
    names = (*keys, "next_index", "committed_index", "rows_behind")
    return [{name: row[name] for name in names} for _, row in sorted(latest.items())]


def _lag_series(lag: Sequence[Row], first: datetime | None, step: timedelta) -> dict[str, Series]:
    """The largest lag of each consumer in each step, all of its partitions together."""
    per_minute: dict[tuple[str, datetime], float] = defaultdict(float)
    for row in lag:
        per_minute[row["consumer"], row["minute"]] += row["rows_behind"]
    largest: dict[str, dict[datetime, float]] = defaultdict(dict)
    for (consumer, minute), behind in per_minute.items():
        at = minute if first is None else first + (minute - first) // step * step
        largest[consumer][at] = max(behind, largest[consumer].get(at, 0.0))
    worst = sorted(largest, key=lambda consumer: (-max(largest[consumer].values()), consumer))
    return {consumer: sorted(largest[consumer].items()) for consumer in worst[:LINES_MAX]}


def _middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
