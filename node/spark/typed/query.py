"""Keeps a typed table up with bronze, step by step.

A step takes the next files of bronze's log, has them landed, and commits what came of it together
with the position that it reached. The table's own log is its checkpoint: whatever is killed, a step
was made or was not. `docs/explanation/architecture.md` tells of the other tables of a sink.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa
from deltalake import Transaction

from rillnode.codecs.errors import ConfigError, StoreError
from rillnode.node.entries import Readers
from rillnode.node.spark.bronze_files import share_files
from rillnode.node.spark.delta_log import LogFile, Position, TableLog, mark, saved_position
from rillnode.node.spark.erasure import Erasures
from rillnode.node.spark.job_config import TypedConfig
from rillnode.node.spark.typed.columns import Columns, written_columns
from rillnode.node.spark.typed.decode import Plan
from rillnode.node.spark.typed.evolution import TableSchema, usable
from rillnode.node.spark.typed.formats import stores_of
from rillnode.node.spark.typed.judging import (
    Unexpected,
    counted,
    counts_of,
    positions,
    summed,
    totals,
)
from rillnode.node.spark.typed.pairs import Pairs
from rillnode.node.spark.typed.schemas import load_schema
from rillnode.node.spark.typed.store import OpenTable
from rillnode.node.spark.typed.work import (
    Engine,
    Outcome,
    Work,
    merged_found,
    table_files,
)

EMPTY_VERSIONS_MAX: Final = 100
"""Versions of bronze without a row for a table after which it notes that it has seen them."""
_ATTEMPTS: Final = 3
_SOURCE: Final = "rillnode.source"
"""As what a table's transactions say of which bronze table it is made."""


class TypedQuery:
    """Makes one typed table.

    Args:
        config: which.
        bronze: the log of the bronze table.
        engine: does the work.
        tasks_max: tasks of a step that is large enough for them.
        erasures: those of the bronze table, where they are looked up for others, too.

    Attributes:
        position: how far in bronze the table has come, as the last step saw it.
        caught_up_with: the version of bronze of which the last step found nothing left; None where
            there may be more.
    """

    def __init__(
        self,
        config: TypedConfig,
        bronze: TableLog,
        engine: Engine,
        *,
        tasks_max: int = 1,
        erasures: Erasures | None = None,
    ) -> None:
        self.config = config
        self.position: Position | None = None
        self.caught_up_with: int | None = None
        self._bronze = bronze
        self._engine = engine
        self._tasks_max = tasks_max
        self._table, self._rejects = stores_of(config)
        erasures = erasures or Erasures(bronze.location)
        self._pairs = Pairs(self._table, self._rejects, erasures)
        self._typed = TableSchema(
            self._table,
            widen=config.evolve == "widen",
            rest=config.evolve == "freeze",
            layout=config.layout,
        )
        self._plan: Plan | None = None
        self._columns: pa.Schema | None = None
        self._ahead: Position | None = None

    def step(self) -> bool:
        """Take in the next part of bronze; returns whether there was any.

        Raises:
            ConfigError: the schema does not load, or the table cannot be what it says.
            StoreError: `table.paused`, people have to look; or bronze's log does not reach back.
        """
        try:
            return self._step()
        except BaseException:
            self._plan = None  # the table may have become another: the next step looks
            raise

    def _step(self) -> bool:
        bronze = self._bronze.open()
        if bronze is None:
            return False
        self.caught_up_with = None
        plan = self._prepared()
        table = self._table.open()
        saved = self._saved(table, str(bronze.metadata().id))
        start = self._ahead if self._ahead is not None and self._ahead > saved else saved
        end = self._bronze.plan(start, self.config.batch_rows_max)
        self.position = start
        if end == start:
            self.caught_up_with = bronze.version()
            return False
        files = self._bronze.files_between(start, end)
        outcomes = self._land(self._works(files), plan)
        self._refuse(outcomes)
        written = [one for each in outcomes for one in table_files(each.files)]
        rejected = [one for each in outcomes for one in table_files(each.rejects)]
        counts = _counts(outcomes)
        # Old files of bronze, which an erasure has left, wait for who may have to read them.
        is_due = saved.version < self._bronze.erased_at <= end.version
        is_due = is_due or end.version - saved.version >= EMPTY_VERSIONS_MAX
        if written or rejected or counts or is_due:
            until = [*end.transactions(), mark(_SOURCE, end.table)]
            unexpected = summed([one.unexpected for one in outcomes])
            before, after = self._totals(table, unexpected, counts)
            self._pairs.commit(
                written,
                rejected,
                start=[*saved.transactions(), *before],
                end=[*until, *after],
                unexpected=unexpected,
                columns=self._columns,
            )
            self._ahead = None
        else:
            # A table of one stream among many would have a version for each of the others'.
            self._ahead = end
        self.position = end
        return True

    def is_level(self) -> bool:
        """Whether the table has come to where bronze is now."""
        bronze = self._bronze.open()
        return (
            bronze is not None
            and self.position is not None
            and self.position.version == bronze.version()
        )

    def maintain(self) -> str | None:
        """Do the next piece of work that keeps the table in few files; returns what was done."""
        for store in (self._table, self._rejects):
            if done := store.maintain():
                return f"{store.name}: {done}"
        return None

    def figures(self) -> dict[str, object]:
        """The table's rows, its rejects and the number of its schema."""
        table = self._table.open()
        return {
            "rows": _count(table),
            "rejects": _count(self._rejects.open()),
            **counts_of(table),
            "schema_version": len(self._typed.history()),
            "unexpected": totals(table, [one.name for one in self.config.expect]),
            **_sizes(table),
        }

    @property
    def _warned(self) -> set[str]:
        return {one.name for one in self.config.expect if one.action == "warn"}

    def _totals(
        self, table: OpenTable | None, unexpected: Unexpected, counts: Mapping[str, int]
    ) -> tuple[list[Transaction], list[Transaction]]:
        """The totals before and after some rows, of those that change."""
        before = totals(table, list(unexpected))
        after = {name: before[name] + sum(unexpected[name].values()) for name in before}
        was, now = counted(table, counts)
        return [*positions(before), *was], [*positions(after), *now]

    def _saved(self, table: OpenTable | None, source: str) -> Position:
        """How far the table has come in bronze.

        Raises:
            ConfigError: it has rows of another bronze table, and would have some of them twice.
        """
        known = None if table is None else table.transaction_version(_SOURCE)
        if known is not None and known != mark(_SOURCE, source).version:
            raise ConfigError(
                "table.source",
                f"bronze was made anew, and has entries again that {self._table.name} has: remove "
                f"it and {self._rejects.name}, which are then made anew, too; or give the table "
                "another dir",
            )
        return saved_position(table, source)

    def _prepared(self) -> Plan:
        """How entries are landed; the table is there then, and as it was declared."""
        if self._plan is None or self._table.open() is None:  # somebody may have removed it
            self._pairs.recover()
            _, columns = self._typed.declare(load_schema(self.config.source), "declared")
            self._plan = self._planned(columns)
        return self._plan

    def _planned(self, columns: Columns) -> Plan:
        table = self._table.open()
        self._columns = None if table is None else table.arrow_schema
        names = [] if self._columns is None else self._columns.names
        return Plan(
            source=self.config.source,
            table=written_columns(columns),
            rest="_rest" in names,
            evolve=self.config.evolve,
            version=len(self._typed.history()),
            expect=self.config.expect,
            layout=self.config.layout,
            key_files=self.config.key_files,
        )

    def retry(self) -> tuple[int, int]:
        """Land the rejects again; returns how many fit now, and how many do not.

        Raises:
            ConfigError: the schema does not load, or the table cannot be what it says.
            StoreError: `table.busy`, the job changes the rejects all the time.
        """
        plan = self._prepared()
        for _ in range(_ATTEMPTS):
            table, rejects = self._table.open(), self._rejects.open()
            files = [] if rejects is None else rejects.files()
            if not files:
                return 0, 0
            work = self._work(tuple(self._rejects.uris(files)))
            outcomes = self._land([msgspec.structs.replace(work, retried=True)], plan)
            written = [one for each in outcomes for one in table_files(each.files)]
            rejected = [one for each in outcomes for one in table_files(each.rejects)]
            unexpected = summed([one.unexpected for one in outcomes])
            # What is rejected again was counted when it first was.
            unexpected = {name: unexpected[name] for name in self._warned & unexpected.keys()}
            before, after = self._totals(table, unexpected, _counts(outcomes))
            if self._pairs.commit(
                written,
                rejected,
                start=before,
                end=after,
                retried=files,
                unexpected=unexpected,
                columns=self._columns,
            ):
                return sum(one.rows for one in written), sum(one.rows for one in rejected)
        raise StoreError("table.busy", f"the rejects of {self.config.name} change all the time")

    def _land(self, works: list[Work], plan: Plan) -> list[Outcome]:
        """Have entries landed, with the table as they need it."""
        Readers(plan.key_files)  # what is wrong with one is told better here than by a task
        outcomes = self._run(works, plan)
        if any(one.unsettled for one in outcomes):
            self._remove(outcomes)
            found = usable(self._typed.present(), merged_found(outcomes), self._table)
            wide = sorted({tuple(path) for one in outcomes for path in one.wide})
            wide = [path for path in wide if path[0] not in self.config.layout.fixed]
            if found or wide:
                _, columns = self._typed.take_in(found, wide)
                self._plan = plan = self._planned(columns)
            outcomes = self._run(works, msgspec.structs.replace(plan, settled=True))
        return outcomes

    def _refuse(self, outcomes: Sequence[Outcome]) -> None:
        """Let the table wait where it is told to.

        Raises:
            StoreError: `table.paused`.
        """
        pause = next((one.pause for one in outcomes if one.pause), "")
        if not pause and self.config.reject == "pause":
            pause = next((one.reject for one in outcomes if one.reject), "")
        if pause:
            self._remove(outcomes)
            text = f"table {self.config.name} waits: {pause}"
            raise StoreError("table.paused", f"{text}. It goes on where it is as soon as that fits")

    def _works(self, files: list[LogFile]) -> list[Work]:
        gone, holders = (tuple(self._bronze.uris(some)) for some in self._bronze.files_left(files))
        return [
            msgspec.structs.replace(
                self._work(tuple(self._bronze.uris(task))), gone=gone, holders=holders
            )
            for task in share_files(files, self._tasks_max)
        ]

    def _work(self, files: tuple[str, ...]) -> Work:
        return Work(streams=self.config.streams, files=files)

    def _run(self, works: list[Work], plan: Plan) -> list[Outcome]:
        table, rejects = self._table.place(), self._rejects.place()
        planned = [
            msgspec.structs.replace(one, plan=plan, table=table, rejects=rejects) for one in works
        ]
        done = self._engine([msgspec.json.encode(one) for one in planned]) if works else []
        return [msgspec.json.decode(one, type=Outcome) for one in done]

    def _remove(self, outcomes: Sequence[Outcome]) -> None:
        """Remove files that nobody is to see."""
        for one in outcomes:
            self._table.remove([file["name"] for file in one.files])
            self._rejects.remove([file["name"] for file in one.rejects])


def _sizes(table: OpenTable | None) -> dict[str, int]:
    """A table's files and bytes, and when it was committed to last, in ms since 1970."""
    if table is None:
        return {}
    told = table.figures()
    committed_ms = round(told["last_commit"].timestamp() * 1_000)
    return {"files": told["files"], "bytes": told["bytes"], "committed_at": committed_ms}


def _counts(outcomes: Sequence[Outcome]) -> Counter[str]:
    return sum((Counter(one.counts) for one in outcomes), Counter[str]())


def _count(table: OpenTable | None) -> int:
    return 0 if table is None else table.count()
