"""The reference of tables and of the Spark format `rillnode`, made of the lists in the code."""

from collections.abc import Iterable, Mapping
from typing import Final

from rillnode.node.spark import planning, writing
from rillnode.node.spark.erasure import ERASURE_COLUMNS
from rillnode.node.spark.tables import (
    BRONZE_COLUMNS,
    CHAINS,
    GOLD,
    LAG,
    MINUTES,
    PUBLISHERS,
    SILVER_COLUMNS,
    Column,
)
from rillnode.node.spark.typed.arrays import PLACE_COLUMNS, REJECT_COLUMNS

_INTRO: Final = """# Tables, and the Spark format

The Delta tables that a [sink](../how-to/spark.md) writes, for anything that [reads
Delta](../how-to/read-tables.md), and the options of the [Spark format](#the-format-rillnode)
`rillnode`. Schemas only grow: a later version may add columns at the end, which are null in older
rows. Names and types never change. Times are UTC.

| table | where | one row is |
|---|---|---|
| bronze | `table_dir` | an entry, as it was stored |
| silver | `silver_dir` | an event, decoded, once |
| [typed](../how-to/typed-tables.md) | `dir` of a `[[table]]`, or its \
[catalog](../how-to/typed-tables.md#iceberg) | an entry, in columns of its own |
| its rejects | `<dir>_rejects` | an entry that does not fit its schema |
| [view](../how-to/views.md) | `dir` of a `[[view]]` | what its SQL says |
| gold `minutes` | `gold_dir/minutes` | a minute of a stream |
| gold `chains` | `gold_dir/chains` | a minute of a publisher's chain |
| gold `publishers` | `gold_dir/publishers` | a minute of a publisher in a stream |
| gold `lag` | `gold_dir/lag` | a minute of a consumer in a partition |
| erasures | `<table_dir>_erasures` | a range of entries that were [erased](../how-to/erase.md) |
"""

_BRONZE: Final = """
Columns are null where an entry came without; those from `ts` to `node_meta` are in silver for every
message that can be decoded.
"""

_SILVER: Final = """
A repetition within `duplicate_seconds` is left out; `event_id` and the content together tell events
apart. Entries of kind `bytes` have no name that could come again, and are not compared; their
`format` says what they look like, and only JSON that breaks off is an error. NextGraph events are
encrypted: silver has their topic, publisher and number, and the event in `data`. What the sink has
keys for ([`decrypt`](../how-to/typed-tables.md#what-is-encrypted)) is in clear in `content`.
"""

_TYPED: Final = """
The columns of a typed table are its schema's, after these, which its rejects have, too:
"""

_OWN: Final = (
    '| `_rest` | string | with `evolve = "freeze"`: the fields that the schema does not have, as '
    "JSON |\n"
    "| `_at_day`, `_at_month`, `_at_hour` | date, string, string | with `partition_by`: of the "
    "column `at`, in UTC, such as `2026-01` and `2026-01-31T23`; in the log and the files' "
    "directories only |\n"
)

_GOLD: Final = """
A row counts what the node took in its minute, `received_at` rounded down. When a row is added to
silver its minute is calculated anew, and the minute's rows are replaced together.
"""

_ABOUT: Final = {
    MINUTES: "Latency is null in minutes without a publisher's time, and negative where a "
    "publisher's\nclock is ahead.",
    CHAINS: "Messages of a chain are looked at in order of arrival. A chain that was silent for "
    "more than a\nday begins anew.",
    PUBLISHERS: "",
    LAG: "The consumers are all that save positions in the sink's streams at the node; they are "
    "looked at\nevery 20 s while the sink's job runs. Of more than 10,000 in a minute, the ones "
    "furthest behind are\nkept.",
}

_ERASURES: Final = """
A row is a range of entries that stand one after the other. Keep the table: what it names stays
erased.
"""

_FORMAT: Final = """
How to use it: [Spark applications](../how-to/spark-application.md).

### Reading
"""

_TYPES: Final = {
    "int32": "int",
    "int64": "bigint",
    "timestamp[us, tz=UTC]": "timestamp",
    "map<string, binary>": "map<string,binary>",
}
"""What SQL calls types that Arrow calls otherwise."""


def page() -> str:
    """The page, from its title on."""
    parts = [_INTRO, "\n## Bronze\n", _BRONZE, _columns(BRONZE_COLUMNS)]
    parts += ["\n## Silver\n", _SILVER, _columns(SILVER_COLUMNS)]
    parts += ["\n## Typed tables and rejects\n", _TYPED, _columns(PLACE_COLUMNS), _OWN]
    parts += ["\nRejects have, in place of the schema's columns:\n", _columns(REJECT_COLUMNS)]
    parts += ["\n## Gold\n", _GOLD]
    for table in GOLD:
        about = _ABOUT[table]
        parts += [f"\n### {table.name}\n", f"\n{about}\n" if about else ""]
        parts.append(_columns(table.columns))
    parts += ["\n## Erasures\n", _ERASURES, _columns(ERASURE_COLUMNS)]
    parts += ["\n## The format `rillnode`\n", _FORMAT, _options(planning.OPTIONS)]
    parts += ["\n### Writing\n", _options(writing.OPTIONS)]
    return "".join(parts)


def _columns(columns: Iterable[Column]) -> str:
    rows = (f"| `{one.name}` | {_type(one)} | {one.text} |\n" for one in columns)
    return "\n| column | type | what |\n|---|---|---|\n" + "".join(rows)


def _type(column: Column) -> str:
    return _TYPES.get(str(column.arrow), str(column.arrow))


def _options(options: Mapping[str, str]) -> str:
    rows = (f"| `{name}` | {text} |\n" for name, text in options.items())
    return "\n| option | meaning |\n|---|---|\n" + "".join(rows)
