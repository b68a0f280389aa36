"""Streams whose entries are JSON of one class: checked before they are stored, and when read."""

import asyncio
from collections.abc import Iterable
from typing import Generic, TypeVar

import msgspec

from rillnode.codecs.entries import Entry
from rillnode.codecs.errors import ConfigError, StreamError
from rillnode.codecs.keyed import Headers, Key
from rillnode.node.client.stream import Stream

T = TypeVar("T")


class EntryCodec(Generic[T]):
    """Encodes entries of a class, and decodes them.

    Args:
        schema: a `msgspec.Struct`, a dataclass, or whatever else msgspec decodes JSON as.

    Raises:
        ConfigError: `stream.schema`, msgspec decodes nothing as that.
    """

    def __init__(self, schema: type[T]) -> None:
        try:
            kind = msgspec.inspect.type_info(schema)
            self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(schema)
        except TypeError as error:
            text = f"{schema!r} is no schema of entries: {error}"
            raise ConfigError("stream.schema", text) from error
        if isinstance(kind, msgspec.inspect.CustomType):
            text = f"{schema!r} is no schema of entries: expected a msgspec.Struct or a dataclass"
            raise ConfigError("stream.schema", text)
        self._encoder = msgspec.json.Encoder()

    def encode(self, value: T) -> bytes:
        """The entry that says `value`, as JSON.

        Raises:
            StreamError: `stream.schema`, it is of another class, or a field of it does not fit.
        """
        try:
            data = self._encoder.encode(value)
            # Python lets a field have any value; only what can be read again is stored.
            found = self._decoder.decode(data)
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
            text = f"the entry does not fit its schema: {_said(error)}"
            raise StreamError("stream.schema", text) from error
        if type(found) is not type(value):
            text = f"expected {type(found).__name__}, got {type(value).__name__}"
            raise StreamError("stream.schema", f"the entry does not fit its schema: {text}")
        return data

    def decode(self, data: bytes | memoryview) -> T:
        """What an entry says.

        Raises:
            StreamError: `stream.schema`, it does not fit.
        """
        try:
            return self._decoder.decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            text = f"the entry does not fit its schema: {_said(error)}"
            raise StreamError("stream.schema", text) from error


class TypedStream(Generic[T]):
    """A stream of entries of one class; made by `Client.stream(name, schema=...)`.

    A typed table with the same class as its `schema` has a row for each of them.

    Attributes:
        name: its name.
        partitions: number of its partitions, as of when it was opened.
        stream: the stream itself, which reads entries and takes any bytes.
    """

    def __init__(self, stream: Stream, codec: EntryCodec[T]) -> None:
        self.name = stream.name
        self.partitions = stream.partitions
        self.stream = stream
        self._codec = codec

    async def push(
        self,
        value: T,
        *,
        key: Key | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> int:
        """Push one entry; return its index once it is durable. Arguments as of `Stream.push`.

        Raises:
            StreamError: `stream.schema`, it does not fit and is not stored; or as `Stream.push`.
        """
        return await self.push_nowait(value, key=key, headers=headers, partition=partition)

    def push_nowait(
        self,
        value: T,
        *,
        key: Key | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> asyncio.Future[int]:
        """Push one entry without waiting; the future gets its index once it is durable.

        Raises:
            StreamError: `stream.schema`, it does not fit and is not stored; or as `Stream.push`.
        """
        data = self._codec.encode(value)
        return self.stream.push_nowait(data, key=key, headers=headers, partition=partition)

    async def push_many(
        self,
        values: Iterable[T],
        *,
        keys: Iterable[Key | None] | None = None,
        headers: Iterable[Headers | None] | None = None,
        partition: int | None = None,
    ) -> int:
        """Push entries; return the index after the last, once all are durable.

        Arguments as of `Stream.push_many`.

        Raises:
            StreamError: `stream.schema`, one of them does not fit and none is stored.
        """
        items = [self._codec.encode(one) for one in values]
        return await self.stream.push_many(items, keys=keys, headers=headers, partition=partition)

    async def pull(
        self, index: int = 0, limit: int = 100, *, partition: int = 0
    ) -> list[tuple[int, T]]:
        """Read at most `limit` entries from `index` on: their indexes, and what they say.

        Raises:
            StreamError: `stream.schema`, one of them does not fit.
        """
        entries = await self.stream.pull(index, limit, partition=partition)
        return [(one.index, self.decode(one)) for one in entries]

    def decode(self, entry: Entry) -> T:
        """What an entry of the stream says.

        Raises:
            StreamError: `stream.schema`, it does not fit.
        """
        return self._codec.decode(entry.data)


def _said(error: BaseException) -> str:
    return str(error).replace("`", "")
