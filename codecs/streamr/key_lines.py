"""Files of group keys: one JSON object a line.

    {"publisher": "0x...", "stream": "s", "id": "k1", "key": "64 hexadecimal digits"}

`reset` is true where a key replaces all of its stream before it. The Python client writes such
lines; tables, which decrypt without taking part in any exchange of keys, also read shorter ones:
without `publisher` a key is whoever's, without `stream` it is good for all streams, without `id`
for messages under any, or none.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec
from msgspec import Struct

from rillnode.codecs.errors import CodecError, ConfigError
from rillnode.codecs.streamr.encryption import GroupKey, decrypt_message, from_hex
from rillnode.codecs.streamr.stream_message import EncryptionType, StreamMessage

TRIED_MAX: Final = 100
"""Keys that are tried on one message, the newest first."""

SURE_CHARS: Final = 8
"""So long a JSON text is the outcome of the right key alone: contents are not authenticated, and a
wrong key makes a digit of one byte in 26, but JSON of eight not once in ten million."""

_BY_GROUP_KEYS: Final = (EncryptionType.AES, EncryptionType.NEW_KEY_AND_AES)


class KeyLine(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """A line, as it is written. Its text form hides the secret."""

    publisher: str = ""
    stream: str = ""
    id: str = ""
    key: str
    reset: bool = False

    def __repr__(self) -> str:
        return "KeyLine(...)"


def write_line(line: KeyLine) -> bytes:
    """The bytes of a line, with its end."""
    return msgspec.json.encode(line) + b"\n"


def read_lines(text: bytes) -> Iterator[tuple[KeyLine, GroupKey]]:
    """The lines of a file, in their order, each with its key.

    A last line that a crash has cut off, or that is being written, is left out.

    Raises:
        ConfigError: `key.line`, a line is no key; the text names it, and repeats nothing of it.
    """
    lines = text.split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            read = msgspec.json.decode(line, type=KeyLine)
        except (msgspec.DecodeError, UnicodeError) as error:
            if number == len(lines) and not isinstance(error, msgspec.ValidationError):
                break
            wanted = '{"stream": "...", "id": "...", "key": "64 hexadecimal digits"}'
            raise ConfigError("key.line", f"line {number} is no group key: {wanted}") from None
        if not (read.id or read.stream):
            text_ = f"line {number} is no group key of anything: it needs an id or a stream"
            raise ConfigError("key.line", text_)
        try:
            yield read, GroupKey(read.id, from_hex(read.key))
        except CodecError as error:
            text_ = f"line {number} is no group key: {error.text}"
            raise ConfigError("key.line", text_) from None


class GroupKeys:
    """Keys for messages of many publishers, as the lines of a file tell whose each is."""

    def __init__(self, lines: Iterable[tuple[KeyLine, GroupKey]]) -> None:
        self._named: defaultdict[str, list[tuple[KeyLine, GroupKey]]] = defaultdict(list)
        self._of_stream: defaultdict[str, list[tuple[KeyLine, GroupKey]]] = defaultdict(list)
        for line, key in lines:
            if line.id:
                self._named[line.id].append((line, key))
            if line.stream:
                self._of_stream[line.stream].append((line, key))

    def open(self, message: StreamMessage) -> str | None:
        """The content of a message that a group key encrypts; None where no key may be its.

        Raises:
            CodecError: as `decrypt_message`, of the newest key that may be its;
                `encryption.ambiguous`, it is short, and keys differ about what it is.
        """
        if message.encryption_type not in _BY_GROUP_KEYS:
            return None
        fault: CodecError | None = None
        unsure: set[str] = set()
        for key in islice(self._keys_of(message), TRIED_MAX):
            try:
                content = decrypt_message(message, key).content
            except CodecError as error:
                fault = fault or error
                continue
            if len(content) >= SURE_CHARS:
                return content
            unsure.add(content)
        if len(unsure) > 1:
            text = "several keys decrypt the short content to JSON, each to another"
            raise CodecError("encryption.ambiguous", text)
        if unsure:
            return unsure.pop()
        if fault is not None:
            raise fault
        return None

    def _keys_of(self, message: StreamMessage) -> Iterator[GroupKey]:
        """The keys that may be a message's, those of its id first, the newest of each first."""
        key_id, stream = message.group_key_id, message.id.stream_id
        publisher = message.id.publisher_id.lower()
        # Neither table may grow by what messages say.
        named = self._named.get(key_id, []) if key_id else []
        others = self._of_stream.get(stream, [])
        for line, key in reversed(named):
            if line.stream in ("", stream) and line.publisher.lower() in ("", publisher):
                yield key
        for line, key in reversed(others):
            # Before version 32 messages name no key.
            if (not key_id or not line.id) and line.publisher.lower() in ("", publisher):
                yield key
