"""Defines the configurations of jobs: one JSON document each, of the node's own or by hand."""

from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec

from rillnode.actors.log.directories import replace_file
from rillnode.codecs.errors import ConfigError
from rillnode.node.spark.files import local_path
from rillnode.node.spark.ranges import ClientOptions
from rillnode.node.spark.typed.layout import Expectation, Layout
from rillnode.node.spark.typed.schemas import STREAM, Evolve, Reject, SchemaSource, place_of

Positive = Annotated[int, msgspec.Meta(gt=0)]


class ViewConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A view, for the job that makes it.

    Attributes:
        name: what it is called.
        sql: one `select`.
        slot: columns of the select by which rows are replaced together.
        dir: directory or URI of its table.
        of: the typed table that it is made of; empty for silver.
    """

    name: str
    sql: str
    slot: tuple[str, ...]
    dir: str
    of: str = ""


class DerivedConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The tables that a job makes of bronze; directories as in `JobConfig`.

    Attributes:
        bronze_dir: directory or URI of the bronze table.
        silver_dir: directory or URI of the silver table.
        gold_dir: directory or URI of the gold tables, null for none.
        checkpoint_dir: local directory for what silver remembers; elsewhere it forgets that with
            its job.
        consumer: the job itself, as the node's saved indexes name it.
        duplicate_seconds: how long silver remembers an event, to leave it out if it comes again.
        key_files: paths of files with keys for encrypted entries, by kind of entries.
        trigger_seconds: a micro-batch begins at most this often.
        batch_rows_max: rows per micro-batch, about.
        compact_commits: small files of silver are merged after this many commits; 0 never.
        views: what else is made of silver.
    """

    bronze_dir: str
    silver_dir: str
    gold_dir: str | None = None
    checkpoint_dir: str
    consumer: str
    duplicate_seconds: Annotated[float, msgspec.Meta(gt=0)] = 600.0
    key_files: dict[str, str] = {}
    trigger_seconds: Annotated[float, msgspec.Meta(ge=0)] = 5.0
    batch_rows_max: Positive = 100_000
    compact_commits: Annotated[int, msgspec.Meta(ge=0)] = 200
    views: tuple[ViewConfig, ...] = ()

    @property
    def locations(self) -> tuple[str, ...]:
        """Where the tables lie."""
        views = (one.dir for one in self.views)
        return (*filter(None, (self.silver_dir, self.gold_dir)), *views)


class CatalogConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A catalog of Iceberg tables.

    Attributes:
        name: what it is called, also in the environment.
        type: what speaks to it.
        uri: where it is; empty for where the environment says.
        warehouse: which of its warehouses, or where the tables lie; empty for what it says itself.
    """

    name: str
    type: Literal["sql", "rest"]
    uri: str = ""
    warehouse: str = ""


class TypedConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A typed table, for the job that makes it.

    Attributes:
        name: what it is called.
        streams: patterns of the streams that are landed.
        dir: directory or URI of the table; `{stream}` in it makes one for each stream. Empty for
            where its catalog says.
        catalog: the catalog of an Iceberg table; null for a Delta table.
        table: its name in the catalog; `{stream}` as in `dir`.
        source: where the schema comes from.
        evolve: what is done about what the schema does not have.
        reject: what is done about an entry that does not fit.
        expect: what is expected of each row.
        layout: how its rows are kept.
        key_files: paths of files with keys for encrypted entries, by kind of entries.
        batch_rows_max: rows of a step, about.
        compact_commits: small files are merged after this many commits; 0 never.
    """

    name: str
    streams: tuple[str, ...]
    dir: str
    catalog: CatalogConfig | None = None
    table: str = ""
    source: SchemaSource
    evolve: Evolve = "add"
    reject: Reject = "table"
    expect: tuple[Expectation, ...] = ()
    layout: Layout = Layout()
    key_files: dict[str, str] = {}
    batch_rows_max: Positive = 100_000
    compact_commits: Annotated[int, msgspec.Meta(ge=0)] = 200

    @property
    def place(self) -> str:
        """A directory or URI that has to be writable; empty where only its catalog knows it."""
        return place_of(self.dir)

    @property
    def of_each_stream(self) -> bool:
        """Whether it is a table for each stream."""
        return STREAM in f"{self.dir}{self.table}"

    @property
    def rejects(self) -> str:
        """Directory or URI of the rejects; empty as `dir` may be."""
        return self.dir and f"{self.dir}_rejects"


class NodeJobConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of every job of a sink; file names are absolute or relative to where it starts.

    Attributes:
        sink: name of the node's sink.
        url: the node's Noise listener, `noise://host:port`, or those of several nodes that have
            the sink, separated by commas; or `file:///directory` with what a sink into files has
            written.
        node_identity: the node's Ed25519 identity, hex; of several nodes all, separated by commas;
            not for files.
        key_file: path of the job's own key; not for files.
        work_dir: local directory for the job itself.
        trigger_seconds: new entries are looked for at most this often.
        client: `module:function` that connects to the node; empty for rillnode's own.
    """

    sink: str
    url: str
    node_identity: str = ""
    key_file: str = ""
    work_dir: str
    trigger_seconds: Annotated[float, msgspec.Meta(ge=0)] = 5.0
    client: str = ""

    @property
    def client_options(self) -> ClientOptions:
        """How to reach the node's sink."""
        return ClientOptions(
            url=self.url,
            node_identity=self.node_identity,
            key_file=self.key_file,
            sink=self.sink,
            client=self.client,
        )


class ExportConfig(NodeJobConfig, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The configuration of the job of a sink into files.

    Attributes:
        directory: where the files go.
        bytes_max: as many bytes of files may lie there.
    """

    directory: str
    bytes_max: Positive


class TableJobConfig(NodeJobConfig, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of every job that lands tables.

    Attributes:
        table_dir: directory or URI of the Delta table.
        batch_rows_max: entries per micro-batch.
        fail_on_data_loss: end with an error, instead of writing a row of kind `gap`, where
            entries were trimmed before they were read.
        compact_commits: small files are merged after this many commits; 0 never.
        typed: the typed tables that are made of this one.
        views: the views of typed tables.
    """

    table_dir: str
    batch_rows_max: Positive = 100_000
    fail_on_data_loss: bool = False
    compact_commits: Annotated[int, msgspec.Meta(ge=0)] = 200
    typed: tuple[TypedConfig, ...] = ()
    views: tuple[ViewConfig, ...] = ()

    @property
    def locations(self) -> tuple[str, ...]:
        """Where all tables lie, which must be writable."""
        views = (one.dir for one in self.views)
        typed = (one.place for one in self.typed if one.place)
        return (self.table_dir, *typed, *views)


class PythonJobConfig(TableJobConfig, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The configuration of a job without Spark."""


class ApplicationConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The configuration of a Spark application that runs the jobs of several sinks.

    Attributes:
        name: what it is called: the first of the sinks.
        work_dir: local directory for temporary files and log settings.
        master: Spark's master.
        driver_memory: heap of the driver, and of everything in local mode.
    """

    name: str
    work_dir: str
    master: str
    driver_memory: str


class Command(msgspec.Struct, frozen=True, omit_defaults=True):
    """The node's order to the application: to start a job, or to stop one; the other is 0."""

    start: int = 0
    stop: int = 0
    config: str = ""


class Ended(msgspec.Struct, frozen=True):
    """The application's report to the node that a job has ended."""

    ended: int
    code: int
    words: str


class JobConfig(TableJobConfig, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A Spark job's configuration.

    Attributes:
        checkpoint_dir: directory or URI of Spark's checkpoint; a new one is a new query.
        master: Spark's master, null to take the one of `spark-submit`.
        driver_memory: heap of the driver, and of everything in local mode.
        derived: the tables that are made of this one, null for none.
        modules: the application's modules whose functions make tables.
        settings: further Spark settings.
    """

    checkpoint_dir: str
    master: str | None = "local[2]"
    driver_memory: str = "1g"
    derived: DerivedConfig | None = None
    modules: tuple[str, ...] = ()
    settings: dict[str, str] = msgspec.field(default_factory=dict[str, str])

    @property
    def locations(self) -> tuple[str, ...]:
        """Where all tables lie."""
        derived = self.derived.locations if self.derived is not None else ()
        bronze, *others = super().locations
        return (bronze, *derived, *others)

    @property
    def places(self) -> tuple[str, ...]:
        """What must be writable: the tables, and checkpoints."""
        derived = self.derived
        checkpoints = (self.checkpoint_dir, derived.checkpoint_dir if derived is not None else None)
        local = (one for one in checkpoints if one is not None and local_path(one) is not None)
        return (*self.locations, *local)


_Config = TypeVar("_Config", bound=msgspec.Struct)


def read_config(path: Path, kind: type[_Config]) -> _Config:
    """Read a job's configuration.

    Raises:
        ConfigError: the file cannot be read, or a key is missing, unknown or of another type.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError("job.config", f"{path}: {error}") from error


def save_job_config(config: msgspec.Struct, path: Path) -> None:
    """Write a configuration, whole or not at all."""
    replace_file(path, msgspec.json.format(msgspec.json.encode(config), indent=2))


AnyJobConfig = JobConfig | PythonJobConfig | ExportConfig
