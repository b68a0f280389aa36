"""Entries as lines: JSON, raw, hexadecimal, or for people; and lines as entries."""

import os
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, BinaryIO, Final, Literal, cast

import msgspec

from rillnode.codecs.errors import RillnodeError
from rillnode.node.cli.terminal import printable

if TYPE_CHECKING:
    from rillnode.codecs.entries import Entry

LineFormat = Literal["people", "json", "raw", "hex"]
InputFormat = Literal["lines", "json", "raw", "hex"]

_SHOWN_BYTES: Final = 32
_CHUNK_BYTES: Final = 65_536


class _EntryLine(msgspec.Struct, omit_defaults=True):
    """One entry as JSON: exactly one of json, text and base64 is there."""

    partition: int
    index: int
    received_at: str
    kind: str
    json: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    text: str | msgspec.UnsetType = msgspec.UNSET
    base64: bytes | msgspec.UnsetType = msgspec.UNSET
    key: str | msgspec.UnsetType = msgspec.UNSET
    key_base64: str | msgspec.UnsetType = msgspec.UNSET
    headers: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    headers_base64: dict[str, str] | msgspec.UnsetType = msgspec.UNSET


def line_formatter(form: LineFormat) -> "Callable[[Entry], bytes]":
    """What turns an entry into a line, its newline included."""
    match form:
        case "raw":
            return lambda entry: entry.data + b"\n"
        case "hex":
            return lambda entry: entry.data.hex().encode() + b"\n"
        case "json":
            return _json_line
        case "people":
            return _people_line


def iso_time(milliseconds: int) -> str:
    """A time in milliseconds since 1970 as ISO 8601, UTC."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def duration(seconds: float) -> str:
    """A time in seconds in the largest unit that it is whole numbers of, as `7d` or `90s`."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:g}s"


def json_text(data: bytes) -> bytes | None:
    """The data as one line of JSON where it is a JSON object or array, else None."""
    if data[:1] not in (b"{", b"["):
        return None
    try:
        msgspec.json.decode(data)
        return msgspec.json.format(data, indent=-1) if b"\n" in data or b"\r" in data else data
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


async def input_chunks(source: BinaryIO) -> AsyncIterator[bytes]:
    """What arrives on a stream, as it arrives, without holding up the event loop."""
    descriptor = _descriptor(source)
    while True:
        if descriptor is None:
            chunk = source.read(_CHUNK_BYTES)
        else:
            await _readable(descriptor)
            chunk = os.read(descriptor, _CHUNK_BYTES)
        if not chunk:
            return
        yield chunk


class InputReader:
    """Cuts what arrives into entries.

    Args:
        form: of what arrives.
        key_field: names that lead to the field of a JSON object which has its key, with dots
            between them; None: there are no keys.

    Attributes:
        line: number of the line of the entry that came last, from 1.
        key: of that entry.

    Raises (from `feed` and `finish`):
        RillnodeError: a line that is too long, or not in the format, or without the field
            (`input.key`); the text names its number.
    """

    def __init__(self, form: InputFormat, key_field: str | None = None) -> None:
        self.key: str | bytes | None = None
        self._key_field = key_field
        self._form = form
        self._begun = b""
        self._rest = bytearray()
        self.line = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The entries that a chunk completes."""
        from rillnode.codecs.limits import ENTRY_BYTES_MAX

        self._begun += chunk[: len(BOM_UTF16_LE) - len(self._begun)]
        if self._form == "json" and self._begun in (BOM_UTF16_LE, BOM_UTF16_BE):
            raise self._error(1, "it is UTF-16: `iconv -f UTF-16 -t UTF-8` makes it UTF-8")

        first, *lines = [chunk] if self._form == "raw" else chunk.split(b"\n")
        self._rest += first
        if lines:
            first, self._rest = bytes(self._rest), bytearray(lines.pop())
            for line in (first, *lines):
                if line or self._form != "json":
                    yield from self._entry(line)
                else:  # of which there may be millions
                    self.line += 1
        if len(self._rest) > ENTRY_BYTES_MAX * (2 if self._form == "hex" else 1):
            raise self._error(self.line + 1, f"more than {ENTRY_BYTES_MAX:,} bytes")

    def finish(self) -> Iterator[bytes]:
        """The entry that the end of the input completes."""
        if self._form == "raw":
            yield bytes(self._rest)
        elif self._rest:
            yield from self._entry(bytes(self._rest))

    def _entry(self, line: bytes) -> Sequence[bytes]:
        """The entry that a line is; none, if the line is empty."""
        from rillnode.codecs.limits import ENTRY_BYTES_MAX

        self.line += 1
        value: object = None
        if self._form == "json":
            if self.line == 1:
                line = line.removeprefix(BOM_UTF8)  # which programs of Windows begin a file with
            if not line.strip():
                return ()
            try:
                value = msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise self._error(self.line, f"not JSON: {error}") from None
        elif self._form == "hex":
            try:
                line = bytes.fromhex(line.decode("ascii"))
            except ValueError:
                raise self._error(self.line, "not hexadecimal") from None
        if len(line) > ENTRY_BYTES_MAX:
            raise self._error(self.line, f"more than {ENTRY_BYTES_MAX:,} bytes")
        if self._key_field is not None:
            self.key = self._key_in(value, self._key_field)
        return (line,)

    def _key_in(self, value: object, path: str) -> str | bytes:
        """The key that a field of a JSON object holds, by the names that lead to it."""
        for part in path.split("."):
            inner = cast(dict[str, object], value) if isinstance(value, dict) else {}
            if part not in inner:
                raise RillnodeError("input.key", f"line {self.line} of the input: no field {path}")
            value = inner[part]
        return value if isinstance(value, str) else msgspec.json.encode(value)

    def _error(self, line: int, text: str) -> RillnodeError:
        where = "input" if self._form == "raw" else f"line {line} of the input"
        return RillnodeError("input.format", f"{where}: {text}")


def _json_line(entry: "Entry") -> bytes:
    from rillnode.codecs.keyed import told

    line = _EntryLine(
        entry.partition, entry.index, iso_time(entry.received_at), entry.kind.name.lower()
    )
    inner = json_text(entry.data)
    if inner is not None:
        line.json = msgspec.Raw(inner)
    else:
        try:
            line.text = entry.data.decode()
        except UnicodeDecodeError:
            line.base64 = entry.data
    for name, value in told(entry.key, entry.headers).items():
        setattr(line, name, value)
    return msgspec.json.encode(line) + b"\n"


def _people_line(entry: "Entry") -> bytes:
    parts = [f"{entry.partition}:{entry.index}", iso_time(entry.received_at)]
    if (key := entry.key) is not None:
        parts.append(f"[{_shown(key)}]")
    if headers := entry.headers:
        shown = (f"{printable(name)}={_shown(value)}" for name, value in headers.items())
        parts.append(f"{{{', '.join(shown)}}}")
    return "  ".join((*parts, _shown(entry.data))).encode(errors="replace") + b"\n"


def _shown(data: bytes) -> str:
    try:
        return printable(data.decode())
    except UnicodeDecodeError:
        more = "..." if len(data) > _SHOWN_BYTES else ""
        return f"<{len(data):,} bytes> {data[:_SHOWN_BYTES].hex(' ')}{more}"


async def _readable(descriptor: int) -> None:
    """Wait until a read will not block. Regular files cannot be waited for, and never do."""
    import asyncio

    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(descriptor, ready.set)
    except PermissionError:
        return
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)  # at once: a second wake-up would find nothing to read


def _descriptor(source: BinaryIO) -> int | None:
    try:
        return source.fileno()
    except OSError:
        return None
