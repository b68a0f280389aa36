"""Mistakes that somebody could make in the store on RocksDB, each as a patch of the right code.

The simulation runs that store as it is, but for its threads and for RocksDB itself.
"""

# Mistakes are made inside of classes.
# pyright: reportPrivateUsage=false

from contextlib import suppress
from typing import Any

import pytest

from planted_bugs import Patch, Planted, always
from rillnode.actors.log import Append
from rillnode.actors.log.producers import Numbers
from rillnode.actors.log.rocks import layout, logs, reads
from rillnode.actors.log.rocks.commit import GroupCommit
from rillnode.actors.log.rocks.tail import TailCache
from rillnode.actors.log.rocks.view import DurableView
from rillnode.actors.log.rocks.writer import Writer
from rillnode.node.simulation.scenario import ClientsTable, FaultKind


class _Unsynced:
    """Tables that forget to sync."""

    def __init__(self, tables: Any) -> None:
        self._tables = tables

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tables, name)

    def sync(self) -> None:
        """Do nothing."""


def groups_not_synced(patch: pytest.MonkeyPatch) -> None:
    """A group of writes is confirmed without a sync."""
    made = GroupCommit.__init__

    def careless(self: GroupCommit, tables: Any, *rest: Any) -> None:
        made(self, _Unsynced(tables), *rest)  # type: ignore[arg-type]

    patch.setattr(GroupCommit, "__init__", careless)


def tail_before_sync(patch: pytest.MonkeyPatch) -> None:
    """Readers get new blocks out of memory before they are synced."""
    write = GroupCommit._write_slice

    def hasty(self: GroupCommit) -> None:
        write(self)
        blocks, self._blocks = self._blocks, {}
        self._tail.commit(blocks, self._touched)

    patch.setattr(GroupCommit, "_write_slice", hasty)


def unsynced_shown(patch: pytest.MonkeyPatch) -> None:
    """Readers get new blocks out of the tables before they are synced."""
    patch.setattr(DurableView, "freeze", always(None))


def tail_kept_in_repair(patch: pytest.MonkeyPatch) -> None:
    """What is in memory stays when the tables were opened again."""
    patch.setattr(TailCache, "clear", always(None))


def failed_groups_confirmed(patch: pytest.MonkeyPatch) -> None:
    """A group that could not be written is answered as if it had been."""
    finish = Writer._finish

    def hopeful(self: Writer, group: Any) -> None:
        for operation in group:
            operation.error = None
        finish(self, group)

    patch.setattr(Writer, "_finish", hopeful)


def answered_before_written(patch: pytest.MonkeyPatch) -> None:
    """A group is answered when it is taken, and again when it is durable."""
    take = Writer._take_group

    def early(self: Writer) -> Any:
        group = take(self)
        with suppress(Exception):
            self._complete(group)
        return group

    patch.setattr(Writer, "_take_group", early)


def refused_for_ever(patch: pytest.MonkeyPatch) -> None:
    """After a repair writes are still refused."""
    taken = Writer._take_writes

    def once(self: Writer) -> None:
        if not self._failures:
            taken(self)

    patch.setattr(Writer, "_take_writes", once)


def last_slice_left_out(patch: pytest.MonkeyPatch) -> None:
    """What does not fill a slice waits for the next group, though it is confirmed."""
    run = GroupCommit.run

    def short(self: GroupCommit, group: Any) -> None:
        write, calls = self._write_slice, [0]

        def but_the_last() -> None:
            calls[0] += 1
            if self._slice_bytes >= self._slice_bytes_max or calls[0] > 1:
                write()

        self._write_slice = but_the_last  # type: ignore[method-assign]
        try:
            run(self, group)
        finally:
            del self._write_slice

    patch.setattr(GroupCommit, "run", short)


def trims_not_stored(patch: pytest.MonkeyPatch) -> None:
    """Where a log begins after a trim is only remembered."""
    cut = GroupCommit._cut

    def forgetful(self: GroupCommit, log: int, *rest: Any) -> None:
        cut(self, log, *rest)
        key = layout.LOG_KEY.pack(log)
        self._changes.puts = [put for put in self._changes.puts if put[0] != key]

    patch.setattr(GroupCommit, "_cut", forgetful)


def end_of_a_trimmed_log(patch: pytest.MonkeyPatch) -> None:
    """After a restart a trimmed log ends where it ended when it was trimmed."""
    load = logs.load_state

    def stale(cursor: Any, log: int) -> Any:
        state = load(cursor, log)
        prefix = layout.LOG_KEY.pack(log)
        if logs.seek(cursor, prefix) == prefix:
            return layout.LogState.decode(cursor.value())
        return state

    patch.setattr(logs, "load_state", stale)
    patch.setattr(reads, "load_state", stale)


def last_entry_unread(patch: pytest.MonkeyPatch) -> None:
    """A read from the tables leaves out a log's last entry."""
    load = logs.load_state

    def short(cursor: Any, log: int) -> Any:
        state = load(cursor, log)
        state.next_index = max(state.first_index, state.next_index - 1)
        return state

    patch.setattr(reads, "load_state", short)


def doubles_stored(patch: pytest.MonkeyPatch) -> None:
    """What a producer sends again is stored again."""
    patch.setattr(Numbers, "stored", always(None))


def numbers_not_loaded(patch: pytest.MonkeyPatch) -> None:
    """What producers have numbered is forgotten when the store is opened."""
    patch.setattr(Numbers, "load", always(None))


def numbers_not_written(patch: pytest.MonkeyPatch) -> None:
    """Where a producer's entries begin is not written down."""
    patch.setattr(GroupCommit, "_put_record", always(None))


def openings_count_from_the_last(patch: pytest.MonkeyPatch) -> None:
    """A name goes on where it was opened last, and not where it has stopped."""
    note = Numbers.open

    def careless(self: Numbers, opening: Any, index: int, put: Any) -> None:
        producers = self._opened()
        known = producers._named.get(opening.producer)
        if known is not None and known is not producers._open:
            known.next = known.since
        note(self, opening, index, put)

    patch.setattr(Numbers, "open", careless)


def refusals_passed_over(patch: pytest.MonkeyPatch) -> None:
    """What comes after an entry that was refused is stored."""
    find = Numbers.stored

    def careless(self: Numbers, append: Append, index: int) -> int | None:
        append.after = 0
        return find(self, append, index)

    patch.setattr(Numbers, "stored", careless)


def _planted(patch: Patch, *rules: str, **more: Any) -> Planted:
    name = patch.__name__.replace("_", "-")
    return Planted(name, patch, rules, store="rocks", **more)


BAD_DISKS: tuple[FaultKind, ...] = ("power_cut", "disk_failing", "disk_slow")
READERS = ClientsTable(producers=3, followers=3, readers=4)
MANY_PUSHES = ClientsTable(producers=6, burst=25)
SEEN_TOO_EARLY = ("index-reassigned", "pull-short", "seen-lost", "confirm-lost")

PLANTED_STORE = (
    _planted(groups_not_synced, "confirm-lost", "index-reassigned"),
    _planted(tail_before_sync, *SEEN_TOO_EARLY, faults=BAD_DISKS, clients=READERS),
    _planted(unsynced_shown, *SEEN_TOO_EARLY, faults=BAD_DISKS, clients=READERS),
    _planted(tail_kept_in_repair, "subscription-gap", "pull-short", faults=("disk_failing",)),
    _planted(failed_groups_confirmed, "index-reassigned", faults=("disk_failing",)),
    _planted(answered_before_written, "no-progress", "left-over"),
    _planted(refused_for_ever, "no-progress", faults=("disk_failing",)),
    _planted(last_slice_left_out, "pull-short", "index-reassigned", "confirm-lost"),
    _planted(trims_not_stored, "trimmed"),
    _planted(end_of_a_trimmed_log, "pull-short", "confirm-lost"),
    _planted(last_entry_unread, "pull-short"),
    _planted(doubles_stored, "stored-twice"),
    _planted(numbers_not_loaded, "stored-twice", "numbers-lost"),
    _planted(numbers_not_written, "stored-twice", "numbers-lost"),
    _planted(openings_count_from_the_last, "numbers-lost", faults=("kill_client",)),
    _planted(
        refusals_passed_over,
        "passed-over",
        "numbers-lost",
        faults=("disk_failing",),
        clients=MANY_PUSHES,
        messages=600,
    ),
)
