"""The contract of readers: what tables are told of entries of a plug-in's kind.

    [project.entry-points."rillnode.entries"]
    mqtt = "rillnode_mqtt.entries:MqttEntries"    # the kind's name in tables, and its reader

Tables are made in processes of their own, on other machines too, where no node runs and only some
plug-ins may be installed. Each process finds a reader by the kind's name and makes one. So the
module of a reader imports nothing that only a node needs.

What entries hold encrypted is decrypted where a sink names a file of keys for their kind. Processes
are told the file's name, never what is in it: each reads the file itself.
"""

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Final, NamedTuple, Self

import msgspec

from rillnode.codecs.entries import OWN_KINDS, EntryKind
from rillnode.codecs.errors import ConfigError
from rillnode.codecs.limits import FRAME_BYTES_MAX
from rillnode.node.installed import ENTRIES, installed, load
from rillnode.node.keys.files import read_private

KEY_FILE_BYTES_MAX: Final = 16_777_216
"""A file with keys for tables: some 100,000 of them."""
INT64_MAX: Final = 2**63 - 1
TIME_MS_MIN: Final = -62_135_596_800_000
"""First millisecond of the year 1."""
TIME_MS_MAX: Final = 253_402_300_799_999
"""Last millisecond of the year 9999: readers such as pandas have no later time."""

_JSON: Final = msgspec.json.Decoder(msgspec.Raw)


class Metadata(NamedTuple):
    """The metadata of an entry's protocol; times in milliseconds since 1970.

    Numbers and times that no column can hold are left out.

    Attributes:
        ts: when the publisher made it, by its own clock.
        publisher: as the protocol names it: an address in lower case, or a key, hex.
        chain: the sequence of the publisher's that it belongs to, or its topic (hex).
        seq: its number there, among those of one time.
        prev_ts, prev_seq: those of the one before it, where it names one.
        sig: the publisher's signature.
        enc: how the content is encrypted: none, rsa, aes, new_key_and_aes.
        key: the entry's key, as its protocol knows it.
    """

    ts: int | None = None
    publisher: str | None = None
    chain: str | None = None
    seq: int | None = None
    prev_ts: int | None = None
    prev_seq: int | None = None
    sig: bytes | None = None
    enc: str | None = None
    key: bytes | None = None


class Decoded(NamedTuple):
    """One decoded entry, as silver shows it; times in milliseconds since 1970.

    Attributes:
        event_id: what it is called, unique within its stream's partition; None for its index.
        message_type: the protocol's type of message.
        encryption: how the content is encrypted.
        group_key_id: the key that it is encrypted with.
        signature: what the signature is worth.
        format: what `content` is: `json`, `text` or `encrypted`; `binary` where `data` has it.
        content: the content as text.
        data: the bytes, where they are no text or could not be decoded.
        error: what is wrong with it.
    """

    event_id: str | None = None
    ts: int | None = None
    publisher: str | None = None
    chain: str | None = None
    seq: int | None = None
    prev_ts: int | None = None
    prev_seq: int | None = None
    message_type: int | None = None
    encryption: str | None = None
    group_key_id: str | None = None
    signature: str | None = None
    format: str | None = None
    content: str | None = None
    data: bytes | None = None
    error: str | None = None


class Unreadable(Exception):
    """The reason why nothing can be read of an entry, for people."""


class EntryReader:
    """Reads the entries of one kind. It is asked in any thread, and keeps nothing of an entry.

    Each method raises `CodecError` where the bytes are not what their kind promises.

    Attributes:
        kind: the kind's number, `codecs.entries.OWN_KINDS` or higher.
    """

    kind: ClassVar[int]

    def metadata(self, data: bytes) -> Metadata:
        """What the entry says beside its content; only its form is checked."""
        return NO_METADATA

    def decoded(self, data: bytes) -> Decoded:
        """The entry decoded, and its signature verified.

        Raises:
            Unreadable: that cannot be done here.
        """
        return Decoded(format="binary", data=data)

    def payload(self, data: bytes) -> bytes:
        """The JSON that the entry carries, for typed tables; a reader that has keys decrypts it.

        Raises:
            Unreadable: it carries none, or there is no key for it.
        """
        raise Unreadable("entries of this kind carry no JSON")

    def with_keys(self, text: bytes) -> Self:
        """A reader that decrypts what it has keys for.

        It is made once for many entries, so what keys need is prepared here. `metadata` is never
        asked of it: bronze has what is in clear.

        Args:
            text: what a file of keys holds; only its owner may read that.

        Raises:
            ConfigError: the text is no keys; the error says in which line, and repeats nothing.
        """
        raise ConfigError("key.kind", "entries of this kind are not decrypted")


NO_METADATA: Final = Metadata()


class PlainEntries(EntryReader):
    """Reads entries of kind `bytes`, which belong to no protocol.

    Nothing about them is wrong but JSON that breaks off.
    """

    kind = EntryKind.BYTES

    def decoded(self, data: bytes) -> Decoded:
        """The entry as JSON, text or bytes, whichever it is."""
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return Decoded(format="binary", data=data)
        if is_json(text):
            return Decoded(format="json", content=text)
        # Plain clients push what they like; but who begins an object or a list has meant JSON.
        broken = text.lstrip().startswith(("{", "["))
        why = "the content begins as JSON does, and is none" if broken else None
        return Decoded(format="text", content=text, error=why)

    def payload(self, data: bytes) -> bytes:
        """The entry itself."""
        return data


class _Missing(EntryReader):
    """Stands for the reader of a kind that cannot be read here."""

    def __init__(self, why: str) -> None:
        self._why = why

    def decoded(self, data: bytes) -> Decoded:
        raise Unreadable(self._why)

    def payload(self, data: bytes) -> bytes:
        raise Unreadable(self._why)

    def with_keys(self, text: bytes) -> Self:
        raise ConfigError("key.kind", self._why)


class Readers:
    """The readers of some entries, by kind, of which those with a file of keys decrypt.

    It knows the files as they were when it was made. So one is made for each batch of entries: a
    key that was added to a file serves from the next batch on.

    Args:
        key_files: paths of files with keys, by the kind's name.

    Raises:
        ConfigError: `key.file`, `key.mode`, `key.size`: a file cannot be read, or others may read
            it; `key.kind`, entries of that kind are not decrypted; or it is no file of keys.
    """

    def __init__(self, key_files: Mapping[str, str] | None = None) -> None:
        self._decrypting = {
            kind: _decrypting(kind, path, _stamp(path)) for kind, path in (key_files or {}).items()
        }

    def of(self, kind: str) -> EntryReader:
        """The reader of a kind."""
        return self._decrypting.get(kind) or reader_of(kind)


WITHOUT_KEYS: Final = Readers()


def _stamp(path: str) -> tuple[int, ...]:
    """What tells two states of a file apart."""
    try:
        info = os.stat(path)
    except OSError:
        return ()  # who reads it says why it cannot be
    return (info.st_mtime_ns, info.st_ctime_ns, info.st_size, info.st_ino, info.st_mode)


@lru_cache(16)
def _decrypting(kind: str, path: str, _stamp: tuple[int, ...]) -> EntryReader:
    """The reader of a kind with the keys of a file, which is read once for each of its states."""
    text = read_private(Path(path), KEY_FILE_BYTES_MAX)
    try:
        return reader_of(kind).with_keys(text)
    except ConfigError as error:
        raise ConfigError(error.code, f"{path}: {error.text}", file=path) from None


@lru_cache
def reader_of(kind: str) -> EntryReader:
    """The reader of a kind, by its name in tables; one that says why, where there is none."""
    if kind == name_of(EntryKind.BYTES):
        return PlainEntries()
    if kind not in installed(ENTRIES):
        return _Missing(
            f"kind {kind!r} is of a newer version, or of a plug-in that is not installed"
        )
    try:
        made: EntryReader = load(ENTRIES, kind)()
    except ConfigError as error:
        return _Missing(f"kind {kind!r} cannot be read here: {error.text}")
    return made


@lru_cache
def name_of(kind: int) -> str:
    """A kind's name in tables, by its number."""
    if kind not in OWN_KINDS:
        return EntryKind(kind).name.lower()
    own = (name for name in installed(ENTRIES) if getattr(reader_of(name), "kind", None) == kind)
    return next(own, f"kind {kind}")


def is_json(text: str) -> bool:
    """Whether a text is JSON, and not longer than a message may be."""
    if not text or len(text) > FRAME_BYTES_MAX:
        return False
    try:
        _JSON.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def number_within(value: int | None) -> int | None:
    """A number that a column can hold; others are left out."""
    return value if value is not None and abs(value) <= INT64_MAX else None


def time_within(time_ms: int | None) -> int | None:
    """A time that a column can hold; others are left out."""
    return time_ms if time_ms is not None and TIME_MS_MIN <= time_ms <= TIME_MS_MAX else None
