"""Makes the streams of a shared log, also by several nodes at once.

What the logs are stands in the metadata of their streams. That of shard 0 is made first, so of
several who make the logs at once one decides; it is marked when the others are all there. From
then on one that is missing is lost, and not made again.
"""

import asyncio
import os
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from rillnode.actors.jetstream.connection import Connection, ExistsError, MissingError
from rillnode.actors.jetstream.failures import incomplete_error
from rillnode.actors.jetstream.options import JetStreamOptions
from rillnode.actors.log.shared.port import LogLost, Opened, Span

FORMAT: Final = "1"
"""Of names, metadata and news."""

SHARDS_MAX: Final = 4_096
IDENTITY_BYTES: Final = 16

_IDENTITY: Final = "rillnode.identity"
_SHARDS: Final = "rillnode.shards"
_FORMAT: Final = "rillnode.format"
_MADE: Final = "rillnode.made"
"""Keys of metadata; the last one of shard 0 alone."""

_OF_SERVERS: Final = "_nats."
"""What servers add to metadata begins so."""

_AGAIN_SECONDS: Final = 0.25

_ATTEMPTS: Final = 5
_AT_ONCE: Final = 8


class _State(msgspec.Struct):
    messages: int = 0
    first_seq: int = 0
    last_seq: int = 0


class _Replica(msgspec.Struct):
    name: str = ""
    current: bool = False


class _Cluster(msgspec.Struct):
    replicas: list[_Replica] = []


class StreamInfo(msgspec.Struct):
    """A stream as its leader describes it."""

    config: dict[str, Any]
    state: _State
    cluster: _Cluster | None = None

    @property
    def metadata(self) -> dict[str, str]:
        """What its maker has noted."""
        found: object = self.config.get("metadata")
        return msgspec.convert(found, dict[str, str]) if isinstance(found, dict) else {}

    @property
    def span(self) -> Span:
        """What it keeps."""
        first = self.state.first_seq if self.state.messages else self.state.last_seq + 1
        return Span(max(1, first), self.state.last_seq)

    @property
    def lacking(self) -> list[str]:
        """Servers that are to keep it, and do not have all of it: away, or without room."""
        replicas = [] if self.cluster is None else self.cluster.replicas
        return [replica.name for replica in replicas if not replica.current]

    def is_of(self, made: Opened) -> bool:
        """Whether it is one of these logs."""
        return self.metadata.get(_IDENTITY) == made.identity.hex()


class _Names(msgspec.Struct):
    total: int = 0


class _AbsentError(Exception):
    """Logs are missing; perhaps they are only not known yet."""


def name_of(prefix: str, shard: int) -> str:
    """The stream of a shard."""
    return f"{prefix}-log-{shard:x}"


def subject_of(prefix: str, made: Opened, shard: int) -> str:
    """Its one subject: whoever has other logs in mind reaches none."""
    return f"{prefix}.log.{made.identity.hex()}.{shard:x}"


async def stream_info(connection: Connection, name: str) -> StreamInfo | None:
    """What a stream's leader tells of it; None without stream.

    Raises:
        LogLost: nobody answers.
        StoreError: JetStream refuses.
    """
    try:
        return await connection.call(f"STREAM.INFO.{name}", None, StreamInfo)
    except MissingError:
        return None


async def found_log(
    connection: Connection, prefix: str
) -> tuple[Opened | None, Mapping[int, StreamInfo]]:
    """What the logs are, and the stream of each shard that is there; None: there are none.

    Raises:
        LogLost: nobody answers.
        StoreError: JetStream refuses, or what is there is none of ours.
    """
    first = await stream_info(connection, name_of(prefix, 0))
    if first is None:
        if absent := await _first_absent(connection, prefix):
            raise incomplete_error(absent)
        return None, {}
    made = _decoded(name_of(prefix, 0), first.metadata)
    found = {0: first}
    for shard in range(1, made.shards):
        info = await stream_info(connection, name_of(prefix, shard))
        if info is not None and info.is_of(made):
            found[shard] = info
    return made, found


async def _first_absent(connection: Connection, prefix: str) -> str:
    """What is wrong where there is no stream of shard 0; empty: there are none at all."""
    subjects = {"subject": f"{prefix}.log.>"}
    names = await connection.call("STREAM.NAMES", subjects, _Names)
    return f"{name_of(prefix, 0)} is missing, while others are there" if names.total else ""


class Maker:
    """Finds the streams of the logs, or makes them.

    Args:
        connection: to the servers.
        options: names, and how many replicas.
    """

    def __init__(self, connection: Connection, options: JetStreamOptions) -> None:
        self._connection = connection
        self._options = options
        # Each new stream elects a leader.
        self._few = asyncio.Semaphore(_AT_ONCE)

    async def find_or_make(self, shards: int) -> tuple[Opened, list[Span]]:
        """What the logs are, and what each keeps; where there are none at all they are made.

        Raises:
            LogLost: nobody answers.
            StoreError: `store.incomplete`: some are missing, and stay so; or JetStream refuses.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.doubt_seconds
        while True:
            try:
                return await self._find(shards)
            except _AbsentError as error:
                if loop.time() >= deadline:
                    raise incomplete_error(str(error)) from None
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _find(self, shards: int) -> tuple[Opened, list[Span]]:
        first = await self._info(0) or await self._begin(shards)
        made = _decoded(self._name(0), first.metadata)
        is_made = _MADE in first.metadata
        if not is_made:
            # Whoever began may have been ended, or is not ready yet; all make the same.
            await asyncio.gather(*[self._make(shard, made) for shard in range(1, made.shards)])
        spans = [first.span]
        missing: list[str] = []
        others = range(1, made.shards)
        for shard, info in zip(others, await asyncio.gather(*map(self._info, others)), strict=True):
            if info is None or not info.is_of(made):
                missing.append(self._name(shard))
            else:
                spans.append(info.span)
        if missing:
            text = f"{', '.join(missing[:3])}: {len(missing)} of {made.shards} missing"
            # Those that are just made by somebody may take a while.
            raise _AbsentError(text) if is_made else LogLost(text)
        if not is_made:
            await self._mark(first)
        return made, spans

    async def _begin(self, shards: int) -> StreamInfo:
        """Make the stream of shard 0, or take that of another who was first."""
        if absent := await _first_absent(self._connection, self._options.prefix):
            raise _AbsentError(absent)
        await self._make(0, Opened(os.urandom(IDENTITY_BYTES), shards))
        first = await self._info(0)
        if first is None:
            raise LogLost(f"{self._name(0)} was made, and is not there")
        return first

    async def _make(self, shard: int, made: Opened) -> None:
        """Make a stream, unless there is one of its name, whatever it is."""
        config = {
            "name": self._name(shard),
            "subjects": [subject_of(self._options.prefix, made, shard)],
            "storage": "file",
            "retention": "limits",
            # Where there is no room, or an operator has set a limit, nothing old is dropped.
            "discard": "new",
            "num_replicas": self._options.replicas,
            "allow_direct": True,
            "metadata": {
                _IDENTITY: made.identity.hex(), _SHARDS: str(made.shards), _FORMAT: FORMAT,
            },
        }  # fmt: skip
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                async with self._few:
                    await self._configure("CREATE", config)
            except ExistsError:
                return
            except LogLost:
                # Many at once take long, for each elects a leader; this one may be made by now.
                if attempt == _ATTEMPTS or not self._connection.is_up:
                    raise
            else:
                return

    async def _mark(self, first: StreamInfo) -> None:
        """Note that all streams are there; several may do so."""
        ours = {k: v for k, v in first.metadata.items() if not k.startswith(_OF_SERVERS)}
        await self._configure("UPDATE", first.config | {"metadata": ours | {_MADE: "1"}})

    async def _configure(self, verb: str, config: Mapping[str, Any]) -> None:
        await self._connection.call(f"STREAM.{verb}.{config['name']}", config, StreamInfo)

    async def _info(self, shard: int) -> StreamInfo | None:
        return await stream_info(self._connection, self._name(shard))

    def _name(self, shard: int) -> str:
        return name_of(self._options.prefix, shard)


def _decoded(name: str, metadata: Mapping[str, str]) -> Opened:
    """What the logs are, after a stream's metadata.

    Raises:
        StoreError: `store.incomplete`: it is none of ours.
    """
    try:
        identity, shards = bytes.fromhex(metadata[_IDENTITY]), int(metadata[_SHARDS])
    except (KeyError, ValueError):
        raise incomplete_error(f"the stream {name} is none of a shared log") from None
    if metadata.get(_FORMAT) != FORMAT:
        raise incomplete_error(f"the logs have format {metadata.get(_FORMAT)}, not {FORMAT}")
    if len(identity) != IDENTITY_BYTES or not 0 < shards <= SHARDS_MAX:
        raise incomplete_error(f"the stream {name} is none of a shared log")
    return Opened(identity, shards)
