"""The demo's report: Spark reads the Delta table, counts it and asks it three questions.

Which keys have most events, which events have the largest number (earthquakes: the strongest), and
how many events there were in each hour. The last two adapt to events without such a field.
"""

import argparse
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from matplotlib.dates import ConciseDateFormatter
from matplotlib.figure import Figure
from pyspark.sql import Column, DataFrame, functions as f
from rich.bar import Bar
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rillnode.node.spark.frames import read_delta
from rillnode.node.spark.session import open_session

LEVELS = " ▁▂▃▄▅▆▇█"
DAYS_SHOWN = 31
HOURS_FILLED = 2_400
ENTRY = ("stream", "partition", "index")

LAND = Path(__file__).parent / "data" / "land.json"
PLACES_SHOWN = 20_000

Hours = dict[datetime, int]
Place = tuple[float, float, float]

BAR_WIDTH = 40

Point = tuple[str, float]
"""A label and its value."""


def main(args: argparse.Namespace) -> None:
    """Read, count, report."""
    console = Console(highlight=False)
    spark = open_session(
        "rillnode demo",
        master="local[2]",
        work_dir=args.work,
        settings={"spark.sql.shuffle.partitions": "1"},
    )
    try:
        rows = read_delta(spark, str(args.table)).cache()
        counts = {
            "rows": rows.count(),
            "duplicates": rows.count() - rows.select(*ENTRY).distinct().count(),
        }
        args.counts.write_text(json.dumps(counts))
        console.print()
        console.print(keys_chart(rows, path(args.key_field)))
        top = top_table(rows, path(args.top_field), path(args.label_field))
        if top.rows:
            console.print()
            console.print(top)
        hours = hours_of(rows, json_time(path(args.time_field))) or hours_of(
            rows, f.col("received_at")
        )
        console.print()
        console.print(days_chart(hours))
        untimed = counts["rows"] - sum(hours.values())
        if untimed:
            console.print(f"{untimed:,} events without a time are not shown")
        found = places(rows, path(args.top_field))
        size = args.top_field.rpartition(".")[2]
        save_picture(args.picture, found, size, hours, counts["rows"])
    finally:
        spark.stop()


def path(field: str) -> str:
    """The JSON path of a field whose parts are joined by dots."""
    return "$" + "".join(f"['{part}']" for part in field.split("."))


def keys_chart(rows: DataFrame, key: str) -> Table:
    """Events per key; those without one are counted by partition."""
    partition = f.concat(f.lit("partition "), f.col("partition"))
    counted = events_per_key(rows, f.coalesce(json_text(key), partition)).collect()
    points = [(str(row["key"]), float(row["events"])) for row in counted]
    return bar_table("Events per key", points)


def top_table(rows: DataFrame, number: str, label: str) -> Table:
    """The five events with the largest numbers."""
    table = Table("", "number", "entry", title="Top five", title_justify="left", box=None)
    name = f.coalesce(json_text(label), f.col("stream"))
    for row in top_by(rows, json_number(number), label=name).collect():
        entry = f"{row['stream']} {row['partition']}:{row['index']}"
        table.add_row(Text(str(row["label"])), f"{row['number']:g}", Text(entry, style="dim"))
    return table


def hours_of(rows: DataFrame, time: Column) -> Hours:
    """Events per hour, with the hours between that have none."""
    found: Hours = {
        row["hour"].replace(tzinfo=UTC): row["events"]
        for row in events_per_hour(rows, time).collect()
    }
    if not found:
        return {}
    first, last = min(found), max(found)
    span = (last - first) // timedelta(hours=1) + 1
    if span > HOURS_FILLED:
        return found
    every = (first + timedelta(hours=number) for number in range(span))
    return {hour: found.get(hour, 0) for hour in every}


def days_chart(hours: Hours) -> Table:
    """One line per day, one character per hour."""
    table = Table("", "00    06    12    18", "events", title="Events per hour (UTC)", box=None)
    table.title_justify = "left"
    table.columns[2].justify = "right"
    largest = max(hours.values())
    days = sorted({hour.date() for hour in hours})
    for day in days[-DAYS_SHOWN:]:
        line = [
            hours.get(datetime(day.year, day.month, day.day, hour, tzinfo=UTC), 0)
            for hour in range(24)
        ]
        text = "".join(LEVELS[-(-8 * events // largest)] for events in line)
        table.add_row(str(day), Text(text, style="cyan"), f"{sum(line):,}")
    return table


def places(rows: DataFrame, number: str) -> list[Place]:
    """Longitude, latitude and size of the events that say where they were, weakest first."""
    longitude, latitude = (json_number(f"$['geometry']['coordinates'][{at}]") for at in (0, 1))
    size = f.coalesce(json_number(number), f.lit(0.0))
    found = rows.select(longitude.alias("x"), latitude.alias("y"), size.alias("size"))
    placed = found.where("x is not null and y is not null")
    strongest = placed.orderBy(f.desc("size")).limit(PLACES_SHOWN).collect()
    return [(row["x"], row["y"], row["size"]) for row in reversed(strongest)]


def save_picture(
    picture: Path, found: Sequence[Place], size_name: str, hours: Hours, rows: int
) -> None:
    """Draw where the events were, and how many there were in each hour."""
    figure = Figure(figsize=(12, 8.5 if found else 3.2), layout="constrained", facecolor="#fbfcfd")
    figure.suptitle(f"{rows:,} events, as the Delta table has them", fontsize=17, x=0.02, ha="left")
    heights = [3, 1] if found else [1]
    charts = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    if found:
        world = charts[0]
        for ring in json.loads(LAND.read_bytes()):
            outline = [one / 10 for one in ring]
            world.fill(outline[::2], outline[1::2], color="#dfe6ec", linewidth=0)
        x, y, size = zip(*found, strict=True)
        area = [4 + 0.8 * max(0.0, min(one, 9.0)) ** 3 for one in size]
        dots = world.scatter(x, y, s=area, c=size, cmap="plasma_r", alpha=0.65, linewidths=0)
        world.set(xlim=(-180, 180), ylim=(-75, 85), xticks=[], yticks=[], aspect="equal")
        world.spines[:].set_visible(False)
        figure.colorbar(dots, ax=world, shrink=0.5, pad=0.01, label=size_name)
    timeline = charts[-1]
    timeline.bar([*hours], [*hours.values()], width=1 / 24, color="#0b7285", align="edge")
    timeline.set_ylabel("events per hour (UTC)")
    timeline.spines[["top", "right"]].set_visible(False)
    timeline.xaxis.set_major_formatter(ConciseDateFormatter(timeline.xaxis.get_major_locator()))
    figure.savefig(picture, dpi=120)


def bar_table(title: str, points: Sequence[Point], *, unit: str = "events") -> Table:
    """Bars for a terminal, one line per point, scaled to the largest value.

    Labels are shown as they are, without any markup that they might hold.
    """
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    table.add_column(unit, justify="right")
    table.add_column("", width=BAR_WIDTH)
    largest = max((value for _, value in points), default=0) or 1
    for label, value in points:
        bar = Bar(largest, 0, max(value, 0), width=BAR_WIDTH, color="cyan")
        table.add_row(Text(label), f"{value:,.6g}" if value % 1 else f"{value:,.0f}", bar)
    return table


# Questions to a bronze table. Entries are kept as they came, so that a question says how it reads
# them: what is no JSON, or has no such field, is null.
def json_text(path: str) -> Column:
    """The field of an entry's JSON at a path such as `$.properties.place`, as text."""
    return f.get_json_object(f.col("data").cast("string"), path)


def json_number(path: str) -> Column:
    """The number in an entry's JSON at a path such as `$.properties.mag`."""
    return json_text(path).try_cast("double")


def json_time(path: str) -> Column:
    """The time in an entry's JSON at a path, given in milliseconds since 1970."""
    return f.timestamp_millis(json_text(path).try_cast("bigint"))


def events_per_key(rows: DataFrame, key: Column | str, *, limit: int = 20) -> DataFrame:
    """Number of entries per key, the largest first.

    Columns: key, events. Rows of kind `gap` are no entries.
    """
    return (
        _entries(rows)
        .groupBy(_column(key).alias("key"))
        .agg(f.count("*").alias("events"))
        .orderBy(f.desc("events"), "key")
        .limit(limit)
    )


def top_by(
    rows: DataFrame, number: Column, *, label: Column | str = "stream", limit: int = 5
) -> DataFrame:
    """The entries with the largest numbers, the largest first.

    Columns: label, number, stream, partition, index. Entries without the number are left out.
    """
    return (
        _entries(rows)
        .select(
            _column(label).alias("label"), number.alias("number"), "stream", "partition", "index"
        )
        .where(f.col("number").isNotNull())
        .orderBy(f.desc("number"), "stream", "partition", "index")
        .limit(limit)
    )


def events_per_hour(rows: DataFrame, time: Column | str = "received_at") -> DataFrame:
    """Number of entries per hour (UTC), in order; hours without entries are left out.

    Columns: hour, events.
    """
    hour = f.date_trunc("hour", _column(time)).alias("hour")
    counted = _entries(rows).groupBy(hour).agg(f.count("*").alias("events"))
    return counted.where(f.col("hour").isNotNull()).orderBy("hour")


def _entries(rows: DataFrame) -> DataFrame:
    return rows.where(f.col("kind") != "gap")


def _column(column: Column | str) -> Column:
    return f.col(column) if isinstance(column, str) else column


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The report of `make demo`.")
    parser.add_argument("table", type=Path, help="directory of the Delta table")
    parser.add_argument("counts", type=Path, help="file for the counts, JSON")
    parser.add_argument("picture", type=Path, help="file for the picture, PNG")
    parser.add_argument("work", type=Path, help="directory for Spark's temporary files")
    parser.add_argument("--key-field", default="properties.net", help="what events share")
    parser.add_argument("--time-field", default="properties.time", help="milliseconds since 1970")
    parser.add_argument("--top-field", default="properties.mag", help="a number")
    parser.add_argument("--label-field", default="properties.place", help="what to call an event")
    main(parser.parse_args())
