"""Files of ranges, for a cluster that cannot reach the node; and the job that writes them.

    python -m rillnode.node.spark.export CONFIG.json [--watch-stdin]

The job is started, watched, given keys and parked as a Spark job is, and asks the node the same:
ends, ranges, and to save what is durable in files. Files are carried to where the Spark job runs,
by whatever carries files; it reads them in place of a node, with `url = "file:///directory"`.

    directory/NAME-HASH/PARTITION/FIRST-UNTIL-BYTES.blocks     entries FIRST <= index < UNTIL
    directory/NAME-HASH/PARTITION/FIRST-UNTIL-BYTES.gap        the same range, trimmed unread
    directory/committed.json                                   what the job has landed
    file   = head | record*
    head   = {"format": 1, "stream": NAME, "partition": NUMBER}, and a line feed
    record = first_index u64 | count u32 | length u32 | crc32 u32 | block of this length
             (little-endian; the checksum is of the three numbers before it and the block)

A file is written under another name and renamed when it is durable; one that is not BYTES long has
not arrived whole and is not there yet. Files may come in any order and twice, and their ranges may
overlap: the entries are the same. A crash after a file was written and before the node has saved it
writes its entries once more, into a file that may end elsewhere. What has been landed is deleted.

When as many bytes lie in the directory as may, nothing is written until some are taken away;
meanwhile the node holds the entries back, up to `hold_bytes_max`.
"""

import argparse
import json
import re
import struct
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from rillnode.actors.log.directories import replace_file
from rillnode.actors.spark.sink_job import CONFIGURATION_CODE, PASSING_CODE
from rillnode.codecs.entries import Block
from rillnode.codecs.errors import (
    CodecError,
    ConfigError,
    RequestError,
    RillnodeError,
    TransportError,
)
from rillnode.codecs.events import event_logger
from rillnode.node.spark.files import local_path, locked
from rillnode.node.spark.job_config import ExportConfig, read_config
from rillnode.node.spark.jobs import add_stdin, run_job
from rillnode.node.spark.offsets import (
    Key,
    Offset,
    Positions,
    Range,
    check_ends,
    of_streams,
    positions_from_json,
    positions_to_json,
    ranges_between,
)
from rillnode.node.spark.ranges import ClientOptions, ask, fetch_ranges

logger = event_logger("rillnode.node.spark.export")

COMMITTED_NAME: Final = "committed.json"
HEAD_BYTES_MAX: Final = 4_096
"""More than a head with the longest name; what has no line end within it is none of our files."""
_NUMBERS: Final = struct.Struct("<QII")
_CHECK: Final = struct.Struct("<I")
_RECORD_BYTES: Final = _NUMBERS.size + _CHECK.size
_NAME: Final = re.compile(r"(\d{1,20})-(\d{1,20})-(\d{1,20})\.(blocks|gap)")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]")
_SLUG_CHARACTERS: Final = 80


class RangeFile(NamedTuple):
    """A whole file of one partition."""

    first: int
    until: int
    size: int
    path: Path

    @property
    def is_gap(self) -> bool:
        """Whether its entries were trimmed before anybody read them."""
        return self.path.suffix == ".gap"


class _Head(msgspec.Struct, frozen=True):
    format: int
    stream: str
    partition: int


def write_range(
    directory: Path, key: Key, first: int, until: int, blocks: Iterable[Block] | None
) -> int:
    """Write one file; it is durable when this returns its size.

    Args:
        directory: the directory of all files.
        key: stream and partition.
        first: index of the first entry.
        until: index after the last.
        blocks: blocks that hold the range; None: it was trimmed.
    """
    head = msgspec.json.encode(_Head(1, *key)) + b"\n"
    parts = [head]
    for block in blocks or ():
        numbers = _NUMBERS.pack(block.first_index, block.count, len(block.value))
        parts += (numbers, _CHECK.pack(crc32(block.value, crc32(numbers))), block.value)
    content = b"".join(parts)
    place = directory / _directory_name(key[0]) / str(key[1])
    place.mkdir(parents=True, exist_ok=True)
    kind = "gap" if blocks is None else "blocks"
    path = place / f"{first:020}-{until:020}-{len(content)}.{kind}"
    replace_file(path, content)
    return len(content)


def list_files(directory: Path) -> dict[Key, list[RangeFile]]:
    """The whole files of every partition, by first index."""
    found: dict[Key, list[RangeFile]] = {}
    for place in directory.glob("*/*"):
        # Whoever carries files away may take the first ones meanwhile.
        files = sorted(_files_of(place)) if place.name.isdecimal() else []
        while files:
            try:
                head = _read_head(files[0].path)
            except FileNotFoundError:
                del files[0]
                continue
            found[head.stream, head.partition] = files
            break
    return found


def covered(files: Iterable[RangeFile], start: int) -> int:
    """The next index after what is there without a hole, from `start` on.

    Args:
        files: files by first index.
        start: where it begins.
    """
    next_index = start
    for file in files:
        if file.first > next_index:
            break
        next_index = max(next_index, file.until)
    return next_index


def read_blocks(file: RangeFile, index: int, until: int, bytes_max: int) -> list[Block]:
    """Blocks that hold `index` and what follows, up to `until`, about `bytes_max`, at least one.

    Raises:
        CodecError: `files.damaged`, what is in the file is not what was written.
    """
    found: list[Block] = []
    size = 0
    for block in _records(file, index):
        if block.first_index >= until or (found and size + len(block.value) > bytes_max):
            break
        found.append(block)
        size += len(block.value)
    return found


@dataclass(slots=True)
class _Known:
    """What the last look at the directory has found."""

    files: dict[Key, list[RangeFile]]
    committed: Positions


class FilesClient:
    """Reads ranges from files; satisfies `RangeClient`."""

    def __init__(self, directory: Path, patterns: tuple[str, ...]) -> None:
        self._directory = directory
        self._patterns = patterns
        self._known: _Known | None = None
        self._missing: dict[Key, int] = {}
        self._lock = threading.Lock()

    def ends(self) -> dict[Key, tuple[int, int]]:
        """What is there of every partition without a hole, from what was committed on.

        Of one that nothing was committed of, from its first entry: whoever writes the files begins
        there, with a gap for what was trimmed, and the file of it may be the last to arrive.
        """
        known = self._look()
        ends: dict[Key, tuple[int, int]] = {}
        for key in known.files.keys() | known.committed.keys():
            if any(fnmatchcase(key[0], pattern) for pattern in self._patterns):
                files, first = known.files.get(key, []), known.committed.get(key, 0)
                ends[key] = first, covered(files, first)
                self._warn_of_hole(key, ends[key][1], files)
        return ends

    def created(self) -> dict[str, int]:
        """Files do not tell; who writes them refuses a stream that was made anew."""
        return {}

    def read(self, part: Range, bytes_max: int) -> tuple[int, list[Block]]:
        """First index after what was trimmed, and blocks that cover the range from its start on.

        Raises:
            RequestError: `files.missing`, no file holds the entries.
            CodecError: a file is damaged.
        """
        key, index = (part.stream, part.partition), part.start
        for known in (self._known, None):
            files = (known or self._look()).files.get(key, [])
            held = [file for file in files if file.first <= index < file.until]
            for file in held:
                if not file.is_gap and file.path.exists():
                    return index, read_blocks(file, index, min(part.until, file.until), bytes_max)
            if held and held[0].path.exists():
                return max(file.until for file in held), []
        raise RequestError(
            "files.missing",
            f"no file in {self._directory} holds stream {part.stream!r} "
            f"partition {part.partition} index {index}",
        )

    def commit(self, offset: Offset) -> None:
        """Save what is landed, durably, and delete files that hold nothing else."""
        with self._lock:
            committed = _read_committed(self._directory)
            for key, index in offset.positions.items():
                committed[key] = max(index, committed.get(key, 0))
            document = json.dumps(positions_to_json(committed))
            replace_file(self._directory / COMMITTED_NAME, document.encode())
            for key, files in list_files(self._directory).items():
                for file in files:
                    if file.until <= committed.get(key, 0):
                        file.path.unlink(missing_ok=True)

    def consumers(self) -> dict[str, Positions]:
        """Only the node knows them."""
        return {}

    def report(self, progress: Mapping[str, object]) -> None:
        """Nobody is there to be told."""

    def close(self) -> None:
        """Nothing is open."""

    def _warn_of_hole(self, key: Key, next_index: int, files: list[RangeFile]) -> None:
        """Tell once what has not arrived, where something behind it has."""
        behind = [file.first for file in files if file.first > next_index]
        if behind and self._missing.get(key) != next_index:
            self._missing[key] = next_index
            logger.warning(
                "files_missing",
                extra={"stream": key[0], "partition": key[1], "index": next_index}
                | {"until": min(behind)},
            )

    def _look(self) -> _Known:
        known = _Known(list_files(self._directory), _read_committed(self._directory))
        self._known = known
        return known


def files_client(options: ClientOptions) -> FilesClient:
    """Read from the directory that the options' URL names.

    Raises:
        ConfigError: there is no such directory.
    """
    directory = local_path(options.url)
    if directory is None or not directory.is_dir():
        raise ConfigError("spark.option", f"option `url`: no directory {options.url}")
    return FilesClient(directory, options.patterns or ("*",))


def _directory_name(stream: str) -> str:
    slug = _UNSAFE.sub("_", stream)[:_SLUG_CHARACTERS]
    return f"{slug}-{blake2b(stream.encode(), digest_size=8).hexdigest()}"


def _files_of(place: Path) -> Iterator[RangeFile]:
    for path in place.iterdir():
        match = _NAME.fullmatch(path.name)
        if match is None:
            continue
        first, until, size = (int(match[at]) for at in (1, 2, 3))
        try:
            if path.stat().st_size == size and first < until:
                yield RangeFile(first, until, size, path)
        except FileNotFoundError:
            continue


def _read_head(path: Path) -> _Head:
    with path.open("rb") as file:
        line = file.readline(HEAD_BYTES_MAX)
    try:
        head = msgspec.json.decode(line, type=_Head)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise CodecError("files.damaged", f"{path} has no head: {error}") from None
    if head.format != 1:
        raise CodecError("files.version", f"{path} has format {head.format}; this reads format 1")
    return head


def _records(file: RangeFile, index: int) -> Iterator[Block]:
    """Blocks from the one on that holds `index`; those before it are not read."""
    with file.path.open("rb") as source:
        offset = len(source.readline(HEAD_BYTES_MAX))
        while offset < file.size:
            head = source.read(_RECORD_BYTES)
            offset += _RECORD_BYTES
            if offset > file.size:
                raise CodecError("files.damaged", f"{file.path} ends early", offset=file.size)
            first, count, size = _NUMBERS.unpack_from(head)
            if size > file.size - offset:
                raise CodecError("files.damaged", f"{file.path} ends early", offset=offset)
            if first + count <= index:
                offset = source.seek(offset + size)
                continue
            value = source.read(size)
            if head[_NUMBERS.size :] != _CHECK.pack(crc32(value, crc32(head[: _NUMBERS.size]))):
                raise CodecError("files.damaged", f"{file.path} is damaged", offset=offset)
            offset += size
            yield Block(first, value)


def _read_committed(directory: Path) -> Positions:
    path = directory / COMMITTED_NAME
    try:
        document: object = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ConfigError("files.committed", f"{path} is damaged: {error}") from None
    return positions_from_json(document, str(path))


FILE_BYTES_MAX: Final = 16_777_216
"""About the size of a file: what the job holds in memory of it. Own choice."""
LOCK_SECONDS: Final = 60.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the export until it is told to stop; returns its exit code."""
    text = "Write a node's streams to files for a cluster that cannot reach it."
    return run_job("rillnode.node.spark.export", text, _run, arguments, add_stdin)


def _run(options: argparse.Namespace, stop: threading.Event) -> tuple[str, int]:
    try:
        config = read_config(options.config, ExportConfig)
        with locked(Path(config.work_dir) / "job.lock", seconds=LOCK_SECONDS):
            Export(config).run(stop)
    except (RillnodeError, OSError) as error:
        return str(error), _exit_code(error)
    return "", 0


class Export:
    """Writes what is new of every partition, round by round."""

    def __init__(self, config: ExportConfig) -> None:
        self._config = config
        self._options = config.client_options
        self._directory = Path(config.directory)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._state = Path(config.work_dir) / "exported.json"
        self._offset = self._load_offset()

    def run(self, stop: threading.Event) -> None:
        """Go on until `stop` is set."""
        while not stop.is_set():
            self.step(stop)
            stop.wait(self._config.trigger_seconds)

    def step(self, stop: threading.Event) -> None:
        """One round: write what the ends of now hold back, save it at the node, report.

        Raises:
            RequestError: `sink.reset`, a stream was made anew.
            TransportError: the node is not reached.
        """
        ends, created = ask(self._options, lambda client: (client.ends(), client.created()))
        self._note_created(created)
        positions = self._offset.positions
        check_ends(positions, ends)
        end = {key: until for key, (_, until) in ends.items()}
        used = self._used_bytes()
        rows = files = 0
        ranges = of_streams(ranges_between(positions, end, ends), created)
        for part, blocks in self._pieces(ranges):
            if used >= self._config.bytes_max or stop.is_set():
                break
            key = (part.stream, part.partition)
            used += write_range(self._directory, key, part.start, part.until, blocks)
            positions[key] = part.until
            self._save()
            rows += 0 if part.gap else part.until - part.start
            files += 1
        ask(self._options, lambda client: client.commit(self._offset))
        behind = sum(max(0, until - positions.get(key, 0)) for key, until in end.items())
        report: dict[str, object] = {
            "state": "full" if used >= self._config.bytes_max else "running",
            "rows": rows,
            "files": files,
            "rows_behind": behind,
            "directory_bytes": used,
        }
        ask(self._options, lambda client: client.report(report))

    def _pieces(self, ranges: list[Range]) -> Iterator[tuple[Range, list[Block] | None]]:
        """What goes into a file each: a gap, or blocks of about a file's size."""
        for item in ranges:
            held: list[Block] = []
            size, start = 0, item.start
            for part, blocks in fetch_ranges(self._options, [item]):
                if part.gap:
                    if held:
                        yield item._replace(start=start, until=part.start), held
                    yield part, None
                    held, size, start = [], 0, part.until
                    continue
                held += blocks
                size += sum(len(block.value) for block in blocks)
                if size >= FILE_BYTES_MAX:
                    yield item._replace(start=start, until=part.until), held
                    held, size, start = [], 0, part.until
            if held:
                yield item._replace(start=start), held

    def _used_bytes(self) -> int:
        files = list_files(self._directory).values()
        return sum(file.size for of_partition in files for file in of_partition)

    def _note_created(self, created: dict[str, int]) -> None:
        """Note new streams, and refuse those made anew: files could not tell the two apart."""
        anew = self._offset.made_anew(created)
        if anew:
            raise RequestError(
                "sink.reset",
                f"stream {min(anew)!r} was removed and made anew. Give the sink a new name and a "
                "new directory to write the new one's entries",
            )
        known = {**self._offset.created, **created}
        if known != self._offset.created:
            self._offset = self._offset._replace(created=known)
            self._save()

    def _load_offset(self) -> Offset:
        try:
            document: object = json.loads(self._state.read_bytes())
        except FileNotFoundError:
            return Offset({}, {})
        except ValueError as error:
            raise ConfigError("export.state", f"{self._state} is damaged: {error}") from None
        return Offset.from_json(document, str(self._state))

    def _save(self) -> None:
        """Remember what is in files: the directory may be emptied at any time."""
        replace_file(self._state, json.dumps(self._offset.to_json()).encode())


def _exit_code(error: Exception) -> int:
    match error:
        case ConfigError():
            return CONFIGURATION_CODE
        case TransportError() | OSError():
            # Disks that are full or away pass as nodes do.
            return PASSING_CODE
        case _:
            return 1


if __name__ == "__main__":
    sys.exit(main())
