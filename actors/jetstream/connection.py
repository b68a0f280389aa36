"""The connection to a JetStream cluster: made, lost, made again for ever; and its requests."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec

from rillnode.actors.jetstream.failures import (
    NO_MESSAGE,
    NO_STREAM,
    STREAM_EXISTS,
    Fault,
    denied_error,
    refusal,
    told,
    unusable_error,
)
from rillnode.actors.jetstream.messages import (
    DECODE_ERRORS,
    NO_RESPONDERS,
    Message,
    WireError,
)
from rillnode.actors.jetstream.options import JetStreamOptions, targets
from rillnode.actors.jetstream.wire import DeniedError, Target, Wire
from rillnode.actors.log.shared.port import LogLost
from rillnode.codecs.errors import StoreError
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.jetstream")

API: Final = "$JS.API."

_MESSAGE_BYTES: Final = 1_048_576
"""What a server takes by default; until one has told."""


class NobodyError(LogLost):
    """No server takes what was sent: a stream has no leader, or there is none, nor JetStream."""


class ExistsError(Exception):
    """A stream of this name is there, with another configuration."""


class MissingError(Exception):
    """An error for a stream, or a message of it, that is not there."""


class _Answer(msgspec.Struct):
    error: Fault | None = None


class _Acknowledgement(msgspec.Struct):
    seq: int = 0
    error: Fault | None = None


_acknowledgement: Final = msgspec.json.Decoder(_Acknowledgement)

T = TypeVar("T")


class Connection:
    """A connection that is made again when it is lost, with the next server first.

    All requests raise LogLost while there is none, and StoreError with `store.denied` where the
    servers did not let us in when they were asked last.

    Args:
        options: where the servers are.
    """

    def __init__(self, options: JetStreamOptions) -> None:
        self.options = options
        self._wire: Wire | None = None
        self._target: Target | None = None
        self._targets: Sequence[Target] = ()
        # The one that was lost comes last.
        self._next = 0
        self._subscriptions: dict[bytes, Callable[[Message], None]] = {}
        self._away: LogLost | StoreError = LogLost("the connection is not open")
        self._keeping: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()
        # Since when JetStream has answered nothing that it was asked.
        self._mute_since: float | None = None

    @property
    def message_bytes_max(self) -> int:
        """The largest message that the server takes."""
        return self._wire.info.max_payload if self._wire else _MESSAGE_BYTES

    @property
    def is_up(self) -> bool:
        """Whether there is a connection."""
        return self._wire is not None

    @property
    def version(self) -> str:
        """Of the server at the other end; empty where there is none."""
        return self._wire.info.version if self._wire else ""

    def describe(self) -> Mapping[str, Any]:
        """Where the connection leads, and what is wrong with it."""
        wire, target = self._wire, self._target
        return {
            "servers": [f"{one.host}:{one.port}" for one in self._targets],
            "connected": None if wire is None or target is None else f"{target.host}:{target.port}",
            "server_name": "" if wire is None else wire.info.server_name,
            "server_version": self.version,
            "tls": target is not None and bool(target.tls or (wire and wire.info.tls_required)),
            "reason": "" if wire is not None else str(self._away),
        }

    async def open(self) -> None:
        """Connect to the first server that answers for JetStream, and keep the connection.

        Raises:
            LogLost: there is none.
            StoreError: `store.denied`: one does not let us in, or what it is to be shown cannot be
                used.
        """
        self._next = 0
        await self._read_targets()
        self._mute_since = None
        try:
            await self._connect(checked=True)
        except BaseException:
            await self.close()
            raise
        self._keeping = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """Let the connection go, with what is under way; harmless when repeated."""
        keeping, self._keeping = self._keeping, None
        if keeping is not None:
            keeping.cancel()
            await asyncio.wait([keeping])
        self._away = LogLost("the connection was closed")
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()
        self._subscriptions.clear()

    def subscribe(self, subject: bytes, take: Callable[[Message], None]) -> None:
        """Take what others publish, over this connection and those that come after it."""
        self._subscriptions[subject] = take
        if self._wire is not None:
            with suppress(LogLost):
                self._wire.subscribe(subject, take)

    def publish(self, subject: bytes, data: bytes) -> None:
        """Tell all who listen; nobody knows whether it arrives."""
        if self._wire is not None:
            with suppress(LogLost):
                self._wire.publish(subject, data)

    async def append(self, subject: bytes, data: bytes, headers: bytes = b"") -> int:
        """Add a message to the stream of a subject, and return its sequence.

        Raises:
            NobodyError: no stream takes it; it is not stored.
            LogLost: it is not known whether it is or will be stored.
            StoreError: it is not stored.
        """
        message = await self.ask(subject, data, headers=headers)
        try:
            said = _acknowledgement.decode(message.data)
        except DECODE_ERRORS as error:
            raise LogLost(f"the acknowledgement cannot be read ({error})") from None
        if said.error is not None:
            raise refusal(said.error)
        if said.seq < 1:
            raise LogLost("the acknowledgement has no sequence")
        return said.seq

    async def call(self, name: str, request: object, answer: type[T]) -> T:
        """Ask JetStream's API.

        Raises:
            MissingError: there is no such stream, or message.
            ExistsError: there is one already.
            LogLost: no answer came, or one that says that there will be one later.
            StoreError: JetStream refuses.
        """
        data = b"" if request is None else msgspec.json.encode(request)
        message = await self.ask(f"{API}{name}".encode(), data)
        try:
            fault = msgspec.json.decode(message.data, type=_Answer).error
            if fault is None:
                return msgspec.json.decode(message.data, type=answer)
        except DECODE_ERRORS as error:
            raise LogLost(f"the answer to {name} cannot be read ({error})") from None
        if fault.err_code in (NO_STREAM, NO_MESSAGE):
            raise MissingError(fault.description)
        if fault.err_code == STREAM_EXISTS:
            raise ExistsError(fault.description)
        raise refusal(fault)

    async def ask(
        self,
        subject: bytes,
        data: bytes,
        *,
        headers: bytes = b"",
        take: Callable[[Message], bool] | None = None,
    ) -> Message:
        """The answer to a message, or the last one of several: see `Wire.ask`.

        It is sent before this waits for the first time.

        Raises:
            NobodyError: nobody takes it.
            LogLost: none came in time.
            StoreError: `store.denied`.
        """
        wire = self._wire
        if wire is None:
            raise self._away_error()
        if len(data) + len(headers) > wire.info.max_payload:
            raise LogLost(f"the server takes only {wire.info.max_payload} bytes at once")
        try:
            message = await wire.ask(subject, data, headers=headers, take=take)
        except DeniedError as error:
            raise denied_error(str(error)) from None
        except LogLost:
            self._unanswered(wire)
            raise
        if message.headers and message.status == NO_RESPONDERS:
            self._unanswered(wire)
            raise NobodyError(f"nobody takes {subject.decode()}")
        self._mute_since = None
        return message

    def _unanswered(self, wire: Wire) -> None:
        """Leave a server by which JetStream answers nothing: it may be cut off from the others."""
        now = asyncio.get_running_loop().time()
        if self._mute_since is None:
            self._mute_since = now
        elif now - self._mute_since >= self.options.mute_seconds_max and len(self._targets) > 1:
            self._mute_since = now
            wire.fail("JetStream answers nothing by this server")

    def _away_error(self) -> LogLost | StoreError:
        """One of its own for each: they are raised, and changed by that."""
        away = self._away
        if isinstance(away, StoreError):
            # It may be mended while this runs.
            return StoreError(away.code, away.text)
        return LogLost(str(away))

    async def _read_targets(self) -> None:
        """Note where the servers are, and what they are shown.

        Raises:
            StoreError: that cannot be used.
        """
        try:
            self._targets = await asyncio.to_thread(targets, self.options)
        except (OSError, ValueError) as error:
            raise unusable_error(told(error)) from error

    async def _connect(self, *, checked: bool) -> None:
        """Connect to the first server that lets us in.

        Args:
            checked: and that answers for JetStream, which takes the cluster.

        Raises:
            LogLost: there is none.
            StoreError: `store.denied`.
        """
        errors: list[str] = []
        denied = False
        for _ in range(len(self._targets)):
            target = self._targets[self._next % len(self._targets)]
            self._next += 1
            wire = Wire(target, self._lose)
            try:
                await wire.connect()
                for subject, take in self._subscriptions.items():
                    wire.subscribe(subject, take)
                self._target, self._wire = target, wire
                if checked:
                    await self.call("INFO", None, _Answer)
            except (OSError, WireError, LogLost, StoreError, MissingError) as error:
                self._wire = None
                wire.close()
                denied = denied or isinstance(error, StoreError)
                denied = denied or (isinstance(error, WireError) and error.denied)
                errors.append(f"{target.host}:{target.port}: {told(error)}")
            else:
                return
        reasons = "; ".join(errors)
        raise denied_error(reasons) if denied else LogLost(f"no server answers ({reasons})")

    async def _keep(self) -> None:
        loop, options = asyncio.get_running_loop(), self.options
        pause = options.repair_seconds_min
        since = loop.time()
        while True:
            if self._wire is not None:
                self._lost.clear()
                await self._lost.wait()
            # One that was lost at once is as good as none.
            if loop.time() - since > options.repair_seconds_max:
                pause = options.repair_seconds_min
            else:
                await asyncio.sleep(pause)
                pause = min(2 * pause, options.repair_seconds_max)
            try:
                # Credentials and certificates may have been renewed.
                await self._read_targets()
                await self._connect(checked=False)
                logger.info("store_connected", extra=dict(self.describe()))
            except (LogLost, StoreError) as error:
                if str(error) != str(self._away):
                    logger.warning("store_not_connected", extra={"reason": str(error)})
                self._away = error
            since = loop.time()

    def _lose(self, wire: Wire, error: WireError) -> None:
        if wire is not self._wire:
            return
        self._wire = None
        self._away = denied_error(str(error)) if error.denied else LogLost(str(error))
        logger.warning("store_connection_lost", extra={"reason": str(error)})
        self._lost.set()
