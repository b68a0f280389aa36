"""The tables of `node.toml` that say where streams are landed: `[[sink.spark]]` and its like."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Final, Self

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from rillnode.actors.core.patterns import may_share
from rillnode.node.config.kinds import Count, Name, TableLocation
from rillnode.node.config.location import Location
from rillnode.node.config.paths import KeyPath, format_path
from rillnode.node.config.plug_in_table import PlugInTable
from rillnode.node.config.problem import Problem
from rillnode.node.config.rules import unfit_name, unfit_pattern
from rillnode.node.config.tables import Config
from rillnode.node.installed import ENTRIES, installed

ModuleName = Annotated[
    str, Meta(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$", title='a module such as "app.tables"')
]
Memory = Annotated[
    str, Meta(pattern=r"^[1-9][0-9]*[mg]$", title='a number and "m" or "g", such as "1g"')
]
SparkMaster = Annotated[
    str,
    Meta(
        pattern=r"^(local(-cluster)?(\[[0-9*][0-9*, ]*\])?|yarn|[a-z0-9]+://\S+)$",
        title='a master of Spark\'s, such as "local[2]", "spark://cluster:7077" or "yarn"',
    ),
]
Span = Annotated[float, Meta(gt=0, le=10_000_000_000)]
"""Centuries at most: what is without end cannot be told to a job."""
_TABLE_URL: Final = re.compile(r"s3://[^\s/@?#]+(?:/[^\s@?#]*)?")


class TableSink(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A job that writes streams into a Delta table, exactly once.

    Attributes:
        name: The sink's name; the job's principal is `sink/<name>`.
        streams: Patterns of stream names, as in a grant.
        table_dir: Directory of the table, or its URL in an object store, whose credentials come
            from the environment.
        trigger_seconds: Time between two micro-batches.
        batch_rows_max: Rows of one micro-batch.
        hold_bytes_max: Bytes kept for the sink beyond retention; beyond that, entries are trimmed
            and a gap row is recorded.
        decrypt: Files with the keys of encrypted entries, by kind of entries. What they decrypt is
            in clear in silver, views and typed tables, never in `table_dir`. The job reads them; on
            a cluster every machine that runs tasks needs them.
    """

    name: Annotated[Name, Meta(examples=["bronze"])]
    streams: Annotated[
        tuple[Name, ...],
        Meta(min_length=1, title="a list of at least one pattern", examples=[["sensors*"]]),
    ]
    table_dir: Annotated[TableLocation, Meta(examples=["data/tables"])]
    trigger_seconds: Span = 5.0
    batch_rows_max: Count = 100_000
    hold_bytes_max: Count = 5_000_000_000
    decrypt: Annotated[
        dict[Name, Path],
        Meta(title='a table of files such as { streamr = "streamr.keys" }'),
    ] = field(default_factory=dict[Name, Path])

    @property
    def key_files(self) -> dict[str, str]:
        """The files of keys for its job, by kind of entries."""
        return {kind: str(path.absolute()) for kind, path in self.decrypt.items()}


class SparkSink(TableSink, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A Spark job that writes streams into a Delta table, exactly once.

    Attributes:
        checkpoint_dir: Directory that no other job may use; silver's checkpoint is beside it if
            `silver_dir` is a URL. Default: `_checkpoints/<name>` in `table_dir`, which must be a
            directory then.
        silver_dir: Directory of the silver table: every event once, decoded. Without it there is
            none.
        gold_dir: Directory of the gold tables: what happened per minute. It needs `silver_dir`.
        duplicate_seconds: How long silver remembers an event, to leave it out if it comes again.
        master: Spark's master URL.
        driver_memory: Heap of the job's Java virtual machine.
        modules: Modules of the application whose functions make tables (`rillnode.table`). The job
            imports them.
        key_file: Key of the job on a cluster. Default: a short-lived key that the node makes.
        external: Somebody else starts the job, with `key_file`; the node serves it, and keeps what
            it has not committed.
    """

    kind: ClassVar[str] = "spark"

    checkpoint_dir: Annotated[Path | None, Meta(examples=["data/checkpoints/bronze"])] = None
    silver_dir: Annotated[TableLocation | None, Meta(examples=["data/silver"])] = None
    gold_dir: Annotated[TableLocation | None, Meta(examples=["data/gold"])] = None
    duplicate_seconds: Span = 600.0
    master: SparkMaster = "local[2]"
    driver_memory: Memory = "1g"
    modules: Annotated[
        tuple[ModuleName, ...],
        Meta(title='a list of modules such as "app.tables"', examples=[["app.tables"]]),
    ] = ()
    key_file: Annotated[Path | None, Meta(examples=["data/bronze.key"])] = None
    external: bool = False

    @property
    def checkpoint_path(self) -> Path:
        """Where the query's checkpoint lies."""
        return self.checkpoint_dir or Path(self.table_dir, "_checkpoints", self.name)

    @property
    def silver_checkpoint_path(self) -> Path | None:
        """Where silver keeps what it remembers; None without silver."""
        if self.silver_dir is None:
            return None
        if self.silver_dir.path is None:
            # What silver remembers is in a file, of which only a part changes.
            return self.checkpoint_path.with_name(f"{self.checkpoint_path.name}-silver")
        return self.silver_dir.path / "_checkpoints" / "silver"


class PythonSink(TableSink, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A job that does the same without Spark and Java, in one process: for small nodes."""

    kind: ClassVar[str] = "python"
    unfit: ClassVar[Mapping[str, str]] = {
        "checkpoint_dir": "it has none: the table's own log says how far it has come",
        "silver_dir": "silver is made by Spark: use [[sink.spark]], or a [[table]]",
        "gold_dir": "gold is made by Spark: use [[sink.spark]], or a [[table]]",
        "duplicate_seconds": "it is a matter of silver, which Spark makes: use [[sink.spark]]",
        "master": "it runs without Spark",
        "driver_memory": "it runs without Java, and takes what its batches need: about 200 MiB",
        "key_file": "its job runs beside the node, which makes its keys",
        "external": "its job runs beside the node, which starts it",
    }

    # Examples of their own: a file with all examples is a valid one.
    name: Annotated[Name, Meta(examples=["small"])]
    table_dir: Annotated[TableLocation, Meta(examples=["data/small"])]


class FilesSink(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A job that writes streams to files, for a Spark cluster that cannot reach the node.

    Attributes:
        name: The sink's name; the job's principal is `sink/<name>`.
        streams: Patterns of stream names, as in a grant.
        directory: Directory of the files, from which you move them to the cluster.
        bytes_max: Bytes of files there, above which no more are written until some are removed.
        trigger_seconds: Time between two checks for new entries.
        hold_bytes_max: As for a Spark sink, for what is not yet in files.
    """

    kind: ClassVar[str] = "files"

    name: Annotated[Name, Meta(examples=["remote"])]
    streams: Annotated[
        tuple[Name, ...],
        Meta(min_length=1, title="a list of at least one pattern", examples=[["sensors*"]]),
    ]
    directory: Annotated[Path, Meta(examples=["data/outgoing"])]
    bytes_max: Count = 10_000_000_000
    trigger_seconds: Span = 5.0
    hold_bytes_max: Count = 5_000_000_000


Sink = SparkSink | PythonSink | FilesSink


class SinkTables(PlugInTable, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Sinks, by kind.

    Attributes:
        spark: Spark sinks.
        python: Sinks into tables without Spark.
        files: Sinks into files.
    """

    table: ClassVar[str] = "sink"
    plug_in: ClassVar[str] = "spark"

    spark: tuple[SparkSink, ...] = ()
    python: tuple[PythonSink, ...] = ()
    files: tuple[FilesSink, ...] = ()

    @property
    def all(self) -> tuple[Sink, ...]:
        """The sinks of every kind."""
        return (*self.spark, *self.python, *self.files)

    @property
    def of_tables(self) -> tuple[SparkSink | PythonSink, ...]:
        """The sinks that land tables."""
        return (*self.spark, *self.python)

    @property
    def asks(self) -> bool:
        """Whether there are any."""
        return bool(self.all)

    @classmethod
    def problems(cls, config: Config) -> Iterator[Problem]:
        """What is wrong with sinks, each by itself and beside the others."""
        for table in config.each(cls):
            if table.all and not config.noise.enabled:
                text = "must be true: the jobs of sinks read over this listener"
                yield Problem(("noise", "enabled"), "config.conflict", text)
            yield from _problems(table)
            # What is wrong with a URL comes alone: other errors would show it.
            yield from list(_table_urls(table)) or _table_dirs(table)

    def in_effect(self, config: Config) -> Self:
        """The sinks with the directories of their checkpoints."""
        sinks = tuple(replace(sink, checkpoint_dir=sink.checkpoint_path) for sink in self.spark)
        return replace(self, spark=sinks)


def sinks_of(config: Config) -> SinkTables:
    """The sinks of a configuration; none where it has no such table."""
    return config.table(SinkTables) or SinkTables()


def application_of(config: Config, sink: str) -> str:
    """The name of the process that runs a sink's job, and of its log.

    Spark sinks with the same settings share one, which is called as the first of them.
    """
    spark = {
        one.name: (one.master, one.driver_memory)
        for one in sinks_of(config).spark
        if not one.external
    }
    return next((name for name in spark if spark[name] == spark.get(sink)), sink)


def maker_problems(
    path: KeyPath, sink: str | None, names: Sequence[str], kind: str, none: str
) -> Iterator[Problem]:
    """What is wrong with the `sink` of a table or view, of those that could make it."""
    if not names:
        yield Problem((*path, "sink"), "config.missing", none)
    elif not sink and len(names) > 1:
        text = f"missing: name the sink that makes it: {', '.join(names)}"
        yield Problem((*path, "sink"), "config.missing", text)
    elif sink and sink not in names:
        text = f"no {kind} is named {sink!r}; there is {', '.join(names)}"
        yield Problem((*path, "sink"), "config.value", text)


def _problems(table: SinkTables) -> Iterator[Problem]:
    """What is wrong with sinks by themselves, and what no two of them may have."""
    names: set[str] = set()
    checkpoints: dict[Path, str] = {}
    directories: dict[Path, str] = {}
    for kind in ("spark", "python", "files"):
        sinks: tuple[Sink, ...] = getattr(table, kind)
        for at, sink in enumerate(sinks):
            path: KeyPath = ("sink", kind, at)
            yield from unfit_name((*path, "name"), sink.name)
            for position, pattern in enumerate(sink.streams):
                yield from unfit_pattern((*path, "streams", position), pattern)
            is_another = sink.name not in names
            if not is_another:
                text = f"{sink.name!r} is the name of another sink"
                yield Problem((*path, "name"), "config.conflict", text)
            names.add(sink.name)
            if isinstance(sink, TableSink):
                yield from _decrypt_problems(path, sink)
            if isinstance(sink, FilesSink):
                other = directories.setdefault(sink.directory, sink.name)
                if other != sink.name:
                    text = f"{sink.directory} is the directory of sink {other!r}"
                    yield Problem((*path, "directory"), "config.conflict", text)
            if not isinstance(sink, SparkSink):
                continue
            if sink.external and sink.key_file is None:
                text = "missing: the node knows a job that somebody else starts by its key"
                yield Problem((*path, "key_file"), "config.missing", text)
            other = checkpoints.setdefault(sink.checkpoint_path, sink.name)
            if other != sink.name and is_another:
                text = f"{sink.checkpoint_path} is the checkpoint of sink {other!r}"
                yield Problem((*path, "checkpoint_dir"), "config.conflict", text)


def _decrypt_problems(path: KeyPath, sink: TableSink) -> Iterator[Problem]:
    """What is wrong with the kinds of entries that are decrypted; the job reads the files."""
    for kind in sink.decrypt:
        if kind not in installed(ENTRIES):
            there = ", ".join(installed(ENTRIES)) or "none"
            text = f"no installed plug-in has entries of this kind; there is {there}"
            yield Problem((*path, "decrypt", kind), "config.value", text)


def _places(table: SinkTables) -> Iterator[tuple[KeyPath, str, Location]]:
    """Where the tables of sinks lie: the sink's path in the file, the key and the place."""
    for at, one in enumerate(table.python):
        yield ("sink", "python", at), "table_dir", one.table_dir
    for at, sink in enumerate(table.spark):
        for key in ("table_dir", "silver_dir", "gold_dir"):
            if (place := getattr(sink, key)) is not None:
                yield ("sink", "spark", at), key, place


def taken_places(table: SinkTables) -> dict[str, Location]:
    """Where nothing else may lie, by what says so: tables of sinks, and what is beside them."""
    taken = {format_path((*path, key)): place for path, key, place in _places(table)}
    return taken | {
        f"{said}'s erasures": Location(f"{place}_erasures")
        for said, place in taken.items()
        if said.endswith(".table_dir")
    }


def _table_urls(table: SinkTables) -> Iterator[Problem]:
    """What can be done with a URL. An error never shows it: it may hold what it must not."""
    without: set[KeyPath] = set()
    for path, key, location in _places(table):
        if location.path is not None:
            continue
        if not _TABLE_URL.fullmatch(location):
            text = 'expected a URL such as "s3://bucket/tables", without credentials'
            yield Problem((*path, key), "config.value", text)
        is_spark = path[1] == "spark"
        if is_spark and table.spark[int(path[2])].checkpoint_dir is None and path not in without:
            without.add(path)
            text = f"missing; {key} is a URL, and Spark needs a directory for its checkpoints"
            yield Problem((*path, "checkpoint_dir"), "config.missing", text)


def _table_dirs(table: SinkTables) -> Iterator[Problem]:
    """Tables that lie in each other would remove each other's files."""
    for at, sink in enumerate(table.spark):
        if sink.gold_dir is not None and sink.silver_dir is None:
            text = "is made of silver: set silver_dir, too"
            yield Problem(("sink", "spark", at, "gold_dir"), "config.conflict", text)
    taken: dict[Location, KeyPath] = {}
    for path, key, place in sorted(_places(table), key=lambda one: one[1] != "table_dir"):
        for other, owner in taken.items():
            # Sinks of Spark may share a bronze table, and each has its streams there.
            shared = key == owner[-1] == "table_dir" and path[1] == owner[1] == "spark"
            if shared:
                mine, theirs = (table.spark[int(one[2])].streams for one in (path, owner))
                shared = not any(may_share(one, two) for one in mine for two in theirs)
            if place.overlaps(other) and not shared:
                text = f"must lie apart from {format_path(owner)}, {other}"
                yield Problem((*path, key), "config.conflict", text)
        taken[place] = (*path, key)
