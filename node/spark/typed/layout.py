"""Says how a typed table is kept, and what is expected of its rows.

    key = ["id"]                  # one row for each id: the latest
    delete_when = "op = 'D'"      # the latest entry may delete it
    time = "at"                   # when what an entry tells has happened
    partition_by = ["day(at)"]
    keep_days = 400
    expect = { sane = "temp between -80 and 80", known = { sql = "id > 0", action = "reject" } }

This module is pure and needs neither Arrow nor Spark.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple, cast

import msgspec
from msgspec import Meta

from rillnode.codecs.errors import ConfigError
from rillnode.node.spark.typed.columns import Columns

LATE_SECONDS: Final = 3_600.0
RECEIVED: Final = "_received_at"
KEYS_MAX: Final = 10
PARTITIONS_MAX: Final = 4

_TIMES: Final = ("timestamp", "timestamp_ms", "date")
_KEYS: Final = (*_TIMES, "string", "int", "bool", "decimal", "binary")
_VALUES: Final = ("string", "int", "bool", "date")
"""Kinds of columns whose values can be partitions."""
_PLACE: Final[Mapping[str, str]] = {
    "_stream": "string",
    "_partition": "int",
    RECEIVED: "timestamp",
}
"""Columns of the table's own that may be in a key; of the last one partitions can be made."""
_TRANSFORM: Final = re.compile(r"(day|hour|month)\(\s*([^()\s]+)\s*\)")


class Partition(NamedTuple):
    """One column that a table is partitioned by.

    Attributes:
        name: the column.
        source: the column that it is made of; itself where it is one of the schema's.
        unit: `day`, `hour` or `month` of a time; empty where it is a column of the schema.
    """

    name: str
    source: str
    unit: str = ""


def read_partition(said: str) -> Partition:
    """Read an item of `partition_by`.

    Raises:
        ConfigError: `table.layout`, it is none.
    """
    if found := _TRANSFORM.fullmatch(said.strip()):
        unit, source = found.groups()
        return Partition(f"_{source.removeprefix('_')}_{unit}", source, unit)
    if not said.strip() or "(" in said or ")" in said:
        text = "expected a column, or day(column), hour(column) or month(column) of a time"
        raise ConfigError("table.layout", f"{said!r}: {text}")
    return Partition(said.strip(), said.strip())


class Layout(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The layout in which a typed table is kept.

    Attributes:
        key: columns of which the table has one row for each value, the latest; empty for all rows.
        delete_when: a SQL predicate of rows that delete their key.
        time: the column that says when what a row tells has happened; empty for none.
        late_seconds: a row that was received later than this after its time is late.
        partition_by: what the table's files are parted by.
        keep_days: how long rows are kept, by their time or else by when they were received.
    """

    key: tuple[str, ...] = ()
    delete_when: str = ""
    time: str = ""
    late_seconds: Annotated[float, Meta(gt=0)] = LATE_SECONDS
    partition_by: tuple[str, ...] = ()
    keep_days: Annotated[float, Meta(gt=0)] | None = None

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The columns that the table is partitioned by."""
        return tuple(read_partition(one) for one in self.partition_by)

    @property
    def kept_by(self) -> str:
        """The column by which rows become too old."""
        return self.time or RECEIVED

    @property
    def fixed(self) -> frozenset[str]:
        """The columns whose kinds have to stay what they are."""
        return frozenset((*self.key, *(one.source for one in self.partitions)))

    @property
    def of_rejects(self) -> "Layout":
        """How the rejects of the table are kept: as long as its rows."""
        return Layout(keep_days=self.keep_days)

    def problems(self, columns: Columns) -> Iterator[tuple[str, str]]:
        """What a table of these columns cannot be, each with the setting that asks for it."""
        kinds = {**_PLACE, **{one.name: one.kind for one in columns}}
        yield from self._key_problems(kinds)
        if self.time and (kind := kinds.get(self.time)) not in _TIMES:
            yield "time", _unfit(self.time, kind, "a time is a timestamp or a date", kinds)
        if len(self.partition_by) > PARTITIONS_MAX:
            text = f"{len(self.partition_by)} are more than the {PARTITIONS_MAX} that there may be"
            yield "partition_by", text
        names: set[str] = set()
        for said in self.partition_by:
            try:
                one = read_partition(said)
            except ConfigError as error:
                yield "partition_by", error.text
                continue
            if text := _partition_problem(one, kinds):
                yield "partition_by", text
            elif one.name in names:
                yield "partition_by", f"{said!r} is there twice"
            else:
                names.add(one.name)
        if len(columns) == sum(one.name in names for one in columns):
            yield "partition_by", "a table needs a column that it is not partitioned by"

    def _key_problems(self, kinds: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        if self.delete_when and not self.key:
            yield "delete_when", "needs a key, which says what is deleted"
        if len(self.key) > KEYS_MAX:
            yield "key", f"{len(self.key)} columns are more than the {KEYS_MAX} of a key"
        for at, name in enumerate(self.key):
            if (kind := kinds.get(name)) not in _KEYS:
                text = f"a column of a key is one of {', '.join(_KEYS)}"
                yield "key", _unfit(name, kind, text, kinds)
            if name in self.key[:at]:
                yield "key", f"{name!r} is there twice"

    def check(self, columns: Columns) -> None:
        """Refuse what a table of these columns cannot be.

        Raises:
            ConfigError: `table.layout`.
        """
        for name, text in self.problems(columns):
            raise ConfigError("table.layout", f"{name}: {text}")


PLAIN: Final = Layout()
"""Every entry is a row, in one partition, for ever."""


def _partition_problem(one: Partition, kinds: Mapping[str, str]) -> str:
    """Why a table cannot be partitioned by this; empty where it can."""
    kind = kinds.get(one.source)
    if not one.unit:
        if one.source in _PLACE:
            text = "which files have to tell; {stream} in dir makes a table for each stream"
            return f"{one.source!r} is of the table's own, {text}"
        if kind not in _VALUES:
            text = f"partitions are values of {', '.join(_VALUES)}, or day(...) of a time"
            return _unfit(one.source, kind, text, kinds)
    elif kind not in _TIMES or (one.unit == "hour" and kind == "date"):
        text = f"{one.unit}(...) is of a timestamp" + ("" if one.unit == "hour" else " or a date")
        return _unfit(one.source, kind, text, kinds)
    return ""


def _unfit(name: str, kind: str | None, text: str, kinds: Mapping[str, str]) -> str:
    if kind is not None:
        return f"column {name!r} is {kind}, and {text}"
    named = [one for one in kinds if one not in _PLACE]
    some = ", ".join(named[:20]) + (", ..." if len(named) > 20 else "")
    return f"the schema has no column {name!r}; there is {some}"


EXPECTATIONS_MAX: Final = 100
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")

Action = Literal["warn", "reject"]
"""What is done about a row that does not meet an expectation, beside counting it."""


class Expectation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An expectation of each row of a table.

    Attributes:
        name: what it is called.
        sql: the predicate.
        action: what is done about a row that does not meet it.
    """

    name: str
    sql: str
    action: Action = "warn"


def read_expectation(name: str, said: object) -> Expectation:
    """Read one expectation of a configuration: SQL, or a table with `sql` and `action`.

    Raises:
        ConfigError: `table.expect`, it is none.
    """
    if not _NAME.fullmatch(name):
        text = "a name begins with a letter and has letters, digits, _ and -, 64 at most"
        raise ConfigError("table.expect", f"{name!r}: {text}")
    document = {"sql": said} if isinstance(said, str) else said
    if not isinstance(document, dict):
        raise unfit_expectation(name, f"expected SQL, or a table with sql and action, not {said!r}")
    try:
        return msgspec.convert({**cast("dict[str, Any]", document), "name": name}, Expectation)
    except msgspec.ValidationError as error:
        raise unfit_expectation(name, str(error).replace("`", "")) from error


def unfit_expectation(name: str, why: str) -> ConfigError:
    """What is said of an expectation that is none, with what helps."""
    text = 'Mend its SQL, a condition on the table\'s columns such as "temp between -80 and 80"'
    return ConfigError("table.expect", f"expectation {name!r}: {why}. {text}")
