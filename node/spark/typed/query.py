"""Keeps a typed table up with bronze, step by step.

A step takes the next files of bronze's log, has them landed, and commits what came of it together
with the position that it reached. The table's own log is its checkpoint: whatever is killed, a step
was made or was not. `docs/explanation/architecture.md` tells of the other tables of a sink.

A table and its rejects are two tables, and no transaction spans both. So a *pair* is decided by the
transaction of the rejects, which says what the other table is to get: its files and its positions.
Who finds that the rejects are a pair ahead commits the other half first. Where there are no rejects
one transaction is all there is.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

import msgspec
import pyarrow as pa
from deltalake import Transaction

from rillnode.codecs.errors import ConfigError, StoreError
from rillnode.node.entries import Readers
from rillnode.node.spark.bronze import share_files
from rillnode.node.spark.delta_log import LogFile, Position, TableLog, mark, saved_position
from rillnode.node.spark.erasure import Erasures
from rillnode.node.spark.job_config import TypedConfig
from rillnode.node.spark.parquet import TableFile
from rillnode.node.spark.typed.arrays import REJECTS
from rillnode.node.spark.typed.columns import Columns, written_columns
from rillnode.node.spark.typed.decode import Plan
from rillnode.node.spark.typed.delta_store import stores_of
from rillnode.node.spark.typed.judging import (
    METADATA,
    Unexpected,
    counted,
    counts_of,
    positions,
    summed,
    totals,
)
from rillnode.node.spark.typed.schemas import load_schema
from rillnode.node.spark.typed.store import (
    Conflict,
    OpenTable,
    TableSchema,
    TableStore,
    other_columns,
    usable,
)
from rillnode.node.spark.typed.work import Engine, Outcome, Work, merged_found, table_files

_ATTEMPTS: Final = 5
_PAIR: Final = "rillnode.pair"
"""As what both tables' transactions number pairs."""


class Pairs:
    """A typed table and its rejects.

    Args:
        table: the table.
        rejects: its rejects.
        erasures: what was erased of that of which the table is made.
    """

    def __init__(self, table: TableStore, rejects: TableStore, erasures: Erasures) -> None:
        self.table = table
        self.rejects = rejects
        self._erasures = erasures
        self._known_rejects = ""

    def recover(self) -> None:
        """Commit the half that a killed process has left.

        Raises:
            StoreError: `table.pair`, the log of the rejects no longer tells it, or the table is
                another than theirs.
        """
        with self.table.committing():
            self._recover()

    def sweep(self) -> int:
        """Take out of both tables what was erased; returns how many rows that were.

        Raises:
            StoreError: as `recover` and `erasure.sweep`.
        """
        # What a killed process has left may bring erased rows.
        self.recover()
        erased = self._erasures.erased()
        return sum(one.erase(erased, self.table.committing) for one in (self.table, self.rejects))

    def commit(
        self,
        files: Sequence[TableFile],
        rejects: Sequence[TableFile],
        *,
        start: Sequence[Transaction] = (),
        end: Sequence[Transaction] = (),
        retried: Sequence[str] | None = None,
        unexpected: Unexpected | None = None,
        columns: pa.Schema | None = None,
    ) -> bool:
        """Commit files that are written, and how far the table has come.

        Args:
            files: of the table.
            rejects: of the rejects.
            start: where the table must be still; elsewhere another process has done the work.
            end: where it is then.
            retried: files of the rejects that these ones are made of, and that go.
            unexpected: how many rows did not meet an expectation.
            columns: those that the table had when its files were written.

        Returns:
            Whether it was done; where it was not the files are removed.

        Raises:
            ConfigError: `table.schema`, another writer has changed or removed columns; the files
                are removed.
        """
        for _ in range(_ATTEMPTS):
            with suppress(Conflict), self.table.committing():
                # Files that hold what was erased are gone then, also for the next attempt.
                files = self.table.allowed(files, self._erasures)
                rejects = self.rejects.allowed(rejects, self._erasures)
                return self._commit(files, rejects, start, end, retried, unexpected, columns)
        raise self._busy()

    def _commit(
        self,
        files: Sequence[TableFile],
        rejects: Sequence[TableFile],
        start: Sequence[Transaction],
        end: Sequence[Transaction],
        retried: Sequence[str] | None,
        unexpected: Unexpected | None,
        columns: pa.Schema | None,
    ) -> bool:
        table, log = self._recover()
        if files and columns is not None and table is not None:
            self._refuse_others(table, columns, files, rejects)
        if table is None or not (_is_at(table, start) and (retried is None or _has(log, retried))):
            self.table.remove([one.name for one in files])
            self.rejects.remove([one.name for one in rejects])
            return False
        if not rejects and retried is None:
            table.commit(files, end, noted=_told(unexpected))
            return True
        log = self._as_rejects(log)
        # Of the rejects, too, somebody may have removed what there was.
        number = max(one.transaction_version(_PAIR) or 0 for one in (table, log)) + 1
        pair = {
            "number": number,
            "table": table.id,
            "files": [asdict(one) for one in files],
            "positions": [[one.app_id, one.version] for one in end],
            METADATA: unexpected or {},
        }
        log.commit(rejects, [Transaction(_PAIR, number)], removed=retried or (), pair=pair)
        try:
            _finish(table, pair)
        except Conflict:
            self._recover()
        return True

    def _as_rejects(self, log: OpenTable | None) -> OpenTable:
        """The rejects, made or changed where they have not been rejects since they were opened."""
        if log is None or log.id != self._known_rejects or other_columns(log.arrow_schema, REJECTS):
            log = self.rejects.become(REJECTS, None)
            self._known_rejects = log.id
        return log

    def _refuse_others(
        self,
        table: OpenTable,
        columns: pa.Schema,
        files: Sequence[TableFile],
        rejects: Sequence[TableFile],
    ) -> None:
        """Keep files out of a table that has no longer the columns that they have."""
        if other := other_columns(table.arrow_schema, columns):
            self.table.remove([one.name for one in files])
            self.rejects.remove([one.name for one in rejects])
            text = f"another writer has changed or removed columns of {self.table.name}"
            raise ConfigError("table.schema", f"{text}: {', '.join(other)}"[:500])

    def _recover(self) -> tuple[OpenTable | None, OpenTable | None]:
        """Both tables as of now, with no pair half done."""
        for _ in range(_ATTEMPTS):
            table, rejects = self.table.open(), self.rejects.open()
            number = 0 if rejects is None else rejects.transaction_version(_PAIR) or 0
            if number <= (0 if table is None else table.transaction_version(_PAIR) or 0):
                return table, rejects
            if not (pair := self.rejects.pair(number)):
                text = f"{self.rejects.name} no longer tells what {self.table.name} was to get"
                raise StoreError("table.pair", f"{text}: remove both, and they are made anew")
            if table is None or pair["table"] != table.id:
                text = f"{self.table.name} was removed, and {self.rejects.name} was not"
                raise StoreError("table.pair", f"{text}: remove both, and they are made anew")
            with suppress(Conflict):
                _finish(table, pair)
                return table, rejects
        raise self._busy()

    def _busy(self) -> StoreError:
        return StoreError("table.busy", f"{self.table.name} is written by others all the time")


def _has(table: OpenTable | None, files: Sequence[str]) -> bool:
    """Whether a table still has files."""
    return table is not None and set(files) <= set(table.files())


def _finish(table: OpenTable, pair: dict[str, Any]) -> None:
    positions = [Transaction(name, version) for name, version in pair["positions"]]
    positions.append(Transaction(_PAIR, pair["number"]))
    noted = _told(pair.get(METADATA))
    table.commit(table_files(pair["files"]), positions, noted=noted)


def _told(unexpected: Unexpected | None) -> dict[str, Any]:
    return {METADATA: unexpected} if unexpected else {}


def _is_at(table: OpenTable, start: Sequence[Transaction]) -> bool:
    return all(table.transaction_version(one.app_id) in (None, one.version) for one in start)


EMPTY_VERSIONS_MAX: Final = 100
"""Versions of bronze without a row for a table after which it notes that it has seen them."""
_RETRIES: Final = 3
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
        plan, table = self._prepared()
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

    def _prepared(self) -> tuple[Plan, OpenTable]:
        """How entries are landed, and the table, which is there then, and as it was declared."""
        table = self._table.open()
        if self._plan is None or table is None:  # somebody may have removed it
            self._pairs.recover()
            table, columns = self._typed.declare(load_schema(self.config.source), "declared")
            self._plan = self._planned(table, columns)
        return self._plan, table

    def _planned(self, table: OpenTable, columns: Columns) -> Plan:
        self._columns = table.arrow_schema
        return Plan(
            source=self.config.source,
            table=written_columns(columns),
            rest="_rest" in self._columns.names,
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
        plan, _ = self._prepared()
        for _ in range(_RETRIES):
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
                table, columns = self._typed.take_in(found, wide)
                self._plan = plan = self._planned(table, columns)
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
