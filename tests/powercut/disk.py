"""Models what may be on a disk when the power goes, from a recorded trace.

A file's data is certain as far as it was written before a sync of the file that has ended; each
sector may be there as it was after any later write. What a failed sync should have made certain
never becomes so: an operating system may drop it and let the next sync succeed. A name is certain
once its directory was synced after the change; of later changes of names any may be there, each
whole.
"""

import os
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

_RECORD = struct.Struct("<BIQI")
_TRUNCATE = os.O_TRUNC

Mode = Literal["none", "all", "prefix", "some"]
MODES: tuple[Mode, ...] = ("none", "all", "prefix", "some")


@dataclass(frozen=True, slots=True)
class Record:
    """One recorded call, or a mark; see recorder.c."""

    kind: str
    file: int
    offset: int
    data: bytes


def read_trace(path: Path) -> Iterator[Record]:
    """The records of a trace; it must be whole."""
    trace = path.read_bytes()
    at = 0
    while at < len(trace):
        kind, file, offset, length = _RECORD.unpack_from(trace, at)
        at += _RECORD.size
        assert at + length <= len(trace)
        yield Record(chr(kind), file, offset, trace[at : at + length])
        at += length


class Write(NamedTuple):
    """A change of a file's data; without data, of its length.

    Attributes:
        doubtful: a sync that covered it has failed.
    """

    offset: int
    data: bytes | None
    doubtful: bool = False


@dataclass(eq=False, slots=True)
class Inode:
    """A file: what is certain, and the writes that are not, by their number."""

    number: int
    certain: bytearray = field(default_factory=bytearray)
    pending: dict[int, Write] = field(default_factory=dict[int, Write])
    writes: int = 0

    def write(self, write: Write) -> None:
        """Change the file."""
        self.pending[self.writes] = write
        self.writes += 1

    def settle(self, end: int) -> None:
        """The writes below number `end` have become certain, but for the doubtful ones."""
        for number in [number for number in self.pending if number < end]:
            if not self.pending[number].doubtful:
                _apply(self.certain, self.pending.pop(number))

    def doubt(self, end: int) -> None:
        """A sync that covered the writes below number `end` has failed."""
        for number in [number for number in self.pending if number < end]:
            self.pending[number] = self.pending[number]._replace(doubtful=True)


class NameChange(NamedTuple):
    """A name removed (or ""), a name made (or ""), and the file it is made for."""

    removed: str
    made: str
    inode: Inode | None

    def apply(self, entries: dict[str, Inode]) -> None:
        """Change the names of a directory."""
        if self.removed:
            entries.pop(self.removed, None)
        if self.made:
            assert self.inode is not None
            entries[self.made] = self.inode


class Disk:
    """One directory, as a trace changes it."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._now: dict[str, Inode] = {}
        self._certain: dict[str, Inode] = {}
        self._pending: dict[int, NameChange] = {}
        self._changes = 0
        self._open: dict[int, Inode | None] = {}
        # Of each sync under way: the number of the next change when it began.
        self._syncs: dict[int, int] = {}
        self._inodes = 0

    def apply(self, record: Record) -> None:
        """Carry out one record."""
        match record.kind:
            case "o":
                self._opened(record)
            case "w" | "t":
                inode = self._open[record.file]
                assert inode is not None
                data = record.data if record.kind == "w" else None
                inode.write(Write(record.offset, data))
            case "s":
                inode = self._open[record.file]
                self._syncs[record.offset] = self._changes if inode is None else inode.writes
            case "S":
                self._synced(self._open[record.file], self._syncs.pop(record.offset))
            case "F":
                inode = self._open[record.file]
                assert inode is not None
                inode.doubt(self._syncs.pop(record.offset))
            case "r" | "l":
                old, new = record.data[: record.offset], record.data[record.offset :]
                self._renamed(self._name(old), self._name(new), keep=record.kind == "l")
            case "u":
                name = self._name(record.data)
                del self._now[name]
                self._change(NameChange(name, "", None))
            case "c":
                del self._open[record.file]
            case _:
                raise AssertionError(record.kind)

    def image(
        self, target: Path, pool: Path, names: Mode, data: Mode, chance: random.Random
    ) -> None:
        """Write what the power cut leaves; files that are certain are links into the pool."""
        entries = dict(self._certain)
        for change in _choose(list(self._pending.values()), names, chance):
            change.apply(entries)
        target.mkdir()
        for name, inode in entries.items():
            if inode.pending or not name.endswith(".sst"):
                content = bytearray(inode.certain)
                for write in _tear(list(inode.pending.values()), data, chance):
                    _apply(content, write)
                (target / name).write_bytes(content)
                continue
            kept = pool / f"{inode.number}.{inode.writes}"
            if not kept.exists():
                kept.write_bytes(inode.certain)
            os.link(kept, target / name)

    def contents(self) -> dict[str, bytes]:
        """All files as a running process sees them."""
        found: dict[str, bytes] = {}
        for name, inode in self._now.items():
            content = bytearray(inode.certain)
            for write in inode.pending.values():
                _apply(content, write)
            found[name] = bytes(content)
        return found

    def _name(self, path: bytes) -> str:
        name = path.decode().removeprefix(self._directory).strip("/")
        assert "/" not in name
        return name

    def _opened(self, record: Record) -> None:
        name = self._name(record.data)
        if not name:
            self._open[record.file] = None
            return
        inode = self._now.get(name)
        if inode is None:
            self._inodes += 1
            inode = self._now[name] = Inode(self._inodes)
            self._change(NameChange("", name, inode))
        elif record.offset & _TRUNCATE:
            inode.write(Write(0, None))
        self._open[record.file] = inode

    def _change(self, change: NameChange) -> None:
        self._pending[self._changes] = change
        self._changes += 1

    def _synced(self, inode: Inode | None, end: int) -> None:
        if inode is not None:
            inode.settle(end)
            return
        for number in [number for number in self._pending if number < end]:
            self._pending.pop(number).apply(self._certain)

    def _renamed(self, old: str, new: str, *, keep: bool) -> None:
        inode = self._now[old] if keep else self._now.pop(old)
        self._now[new] = inode
        self._change(NameChange("" if keep else old, new, inode))


def _apply(content: bytearray, write: Write) -> None:
    offset, data = write.offset, write.data
    content.extend(bytes(max(0, offset - len(content))))
    if data is None:
        del content[offset:]
    else:
        content[offset : offset + len(data)] = data


def _choose(changes: list[NameChange], mode: Mode, chance: random.Random) -> Iterator[NameChange]:
    stop = chance.randint(0, len(changes))
    for number, change in enumerate(changes):
        if (
            mode == "all"
            or (mode == "prefix" and number < stop)
            or (mode == "some" and chance.random() < 0.5)
        ):
            yield change


def _tear(writes: list[Write], mode: Mode, chance: random.Random) -> Iterator[Write]:
    """The parts of writes that reached the disk, in sectors of one size or the other."""
    if mode == "all":
        yield from writes
        return
    if mode == "none":
        return
    size = chance.choice((512, 4_096))
    sectors = [sector for write in writes for sector in _sectors(write, size)]
    if mode == "prefix":
        yield from sectors[: chance.randint(0, len(sectors))]
        return
    # A sector is written as it is in memory then, with all that was written to it before.
    places = [
        -1 - number if sector.data is None else sector.offset // size
        for number, sector in enumerate(sectors)
    ]
    reached = {place: number for number, place in enumerate(places) if chance.random() < 0.5}
    for number, (place, sector) in enumerate(zip(places, sectors, strict=True)):
        if number <= reached.get(place, -1):
            yield sector


def _sectors(write: Write, size: int) -> Iterator[Write]:
    if write.data is None:
        yield write
        return
    at, end = write.offset, write.offset + len(write.data)
    while at < end:
        stop = min(end, at // size * size + size)
        yield Write(at, write.data[at - write.offset : stop - write.offset])
        at = stop
