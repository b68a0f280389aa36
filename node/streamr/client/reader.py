"""Reads messages: finds out whether they are genuine, and opens them.

A message is genuine when its publisher has signed it and the server counts it among the stream's
publishers; unsigned ones are, where the stream does not ask for signatures.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rillnode.actors.ports import Clock
from rillnode.codecs.errors import CodecError, TransportError
from rillnode.codecs.events import event_logger
from rillnode.codecs.streamr.key_exchange import is_key_stream
from rillnode.codecs.streamr.key_messages import (
    Dropped,
    KeyEvent,
    KeysLearned,
    KeysMissing,
    Opened,
    Publish,
)
from rillnode.codecs.streamr.key_subscriber import KeySubscriber
from rillnode.codecs.streamr.signing import Verdict, verify_message
from rillnode.codecs.streamr.stream_message import EncryptionType, MessageType, StreamMessage
from rillnode.node.streamr.client.keys import Keys
from rillnode.node.streamr.client.message import Message, message_of
from rillnode.node.streamr.client.streams import Streams

logger = event_logger("rillnode.node.streamr.client")

LOCKED_MAX: Final = 1_000
"""Messages that may wait for their keys before no more are read."""

_KEY_MESSAGES_MAX: Final = 1_000
_ASK_AGAIN_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderTools:
    """The tools that read messages.

    Attributes:
        publish: sends a key message.
        now_ms: milliseconds since 1970 that never go back.
        verify: whether signatures are checked.
    """

    streams: Streams
    keys: Keys
    publish: Callable[[StreamMessage], None]
    clock: Clock
    now_ms: Callable[[], int]
    verify: bool


class Reader:
    """Reads the messages of one subscription or resend.

    Args:
        tools: the client's.
        wake: called when `poll` has something to do before its time.

    Attributes:
        dropped: messages that could not be handed on, by the reason's code.
    """

    def __init__(self, tools: ReaderTools, wake: Callable[[], object]) -> None:
        self.dropped: Counter[str] = Counter()
        self._tools = tools
        self._wake = wake
        self._subscriber: KeySubscriber | None = None
        self._key_messages: deque[StreamMessage] = deque(maxlen=_KEY_MESSAGES_MAX)

    @property
    def locked(self) -> int:
        """How many messages wait for their keys."""
        return 0 if self._subscriber is None else self._subscriber.locked

    @property
    def is_full(self) -> bool:
        """Whether no more should be read until keys have come."""
        return self.locked >= LOCKED_MAX

    @property
    def wait_seconds(self) -> float | None:
        """How long until `poll` has something to do; None: nothing is missing."""
        if self._key_messages:
            return 0.0
        deadline_ms = None if self._subscriber is None else self._subscriber.deadline_ms
        return None if deadline_ms is None else (deadline_ms - self._tools.now_ms()) / 1_000

    def key_message_received(self, message: StreamMessage) -> None:
        """Take a message of the client's key stream."""
        self._key_messages.append(message)
        self._wake()

    def close(self) -> None:
        """Take no more key messages."""
        self._tools.keys.leave(self)

    async def is_genuine(self, message: StreamMessage) -> bool:
        """Whether a message is what it says; one that is not is counted and logged.

        While the server cannot be asked about a publisher, this waits.

        Raises:
            RequestError: the server does not tell who may publish.
        """
        if not self._tools.verify:
            return True
        verdict = verify_message(message)
        if verdict not in (Verdict.VALID, Verdict.UNSIGNED):
            self._drop(message, "signature.invalid")
            return False
        belongs = await self._belongs(message, verdict)
        if not belongs:
            unsigned = verdict is Verdict.UNSIGNED
            self._drop(message, "signature.missing" if unsigned else "signature.publisher")
        return belongs

    async def read(self, message: StreamMessage) -> list[Message]:
        """Open a genuine message; what has to wait for a key comes from `poll`.

        Messages of a chain come in the order they were given in.

        Raises:
            RequestError, TransportError: the client cannot follow its own key stream.
        """
        if self._subscriber is None:
            is_plain = message.encryption_type == EncryptionType.NONE
            if is_plain and message.message_type == MessageType.MESSAGE:
                return self._opened(message, message.content)
            self._subscriber = await self._tools.keys.subscriber(self)
        return await self._handle(self._subscriber.receive(message, self._tools.now_ms()))

    async def poll(self) -> list[Message]:
        """Take keys that have come, ask for those that are missing; return what they open."""
        subscriber = self._subscriber
        if subscriber is None:
            return []
        found: list[Message] = []
        while self._key_messages:
            message = self._key_messages.popleft()
            found += await self._handle(subscriber.handle(message, self._tools.now_ms()))
        deadline_ms = subscriber.deadline_ms
        if deadline_ms is not None and deadline_ms <= self._tools.now_ms():
            found += await self._handle(subscriber.poll(self._tools.now_ms()))
        return found

    async def wait(self, wake: asyncio.Event) -> list[Message]:
        """Wait until there is something for `poll` to do; return what it opens.

        Args:
            wake: set by the `wake` of this reader.
        """
        seconds = self.wait_seconds
        wake.clear()
        await wait_for(wake, self._tools.clock, seconds)
        return await self.poll()

    async def _handle(self, events: Sequence[KeyEvent]) -> list[Message]:
        found: list[Message] = []
        for event in events:
            match event:
                case Opened(message=message, content=content):
                    found += self._opened(message, content)
                case Publish(message=message):
                    self._tools.publish(message)
                case KeysLearned():
                    await self._tools.keys.keep(event.publisher_id, event.stream_id, event.keys)
                case KeysMissing():
                    extra = {"code": event.code, "publisher": event.publisher_id}
                    logger.warning("keys_missing", extra=extra)
                case Dropped(message=message, code=code):
                    self._drop(message, code)
        return found

    def _opened(self, message: StreamMessage, text: str) -> list[Message]:
        try:
            return [message_of(message, text)]
        except CodecError as error:
            self._drop(message, error.code)
            return []

    def _drop(self, message: StreamMessage, code: str) -> None:
        if not is_key_stream(message.id.stream_id):
            self.dropped[code] += 1
        extra = {"code": code, "stream": message.id.stream_id, "at": message.id.timestamp}
        logger.warning("message_dropped", extra=extra)

    async def _belongs(self, message: StreamMessage, verdict: Verdict) -> bool:
        """Ask the server whether such a message may be on its stream."""
        streams, name = self._tools.streams, message.id
        while True:
            try:
                if verdict is Verdict.VALID:
                    return await streams.is_publisher(name.stream_id, name.publisher_id)
                return not (await streams.get(name.stream_id)).require_signed_data
            except TransportError as error:
                if not error.retryable:
                    raise
                logger.info("publisher_not_verified", extra={"code": error.code})
                await asyncio.sleep(_ASK_AGAIN_SECONDS)


async def wait_for(wake: asyncio.Event, clock: Clock, seconds: float | None) -> None:
    """Wait for an event, but not longer than some seconds of a clock; None: however long."""
    if seconds is None:
        await wake.wait()
        return
    timer = clock.call_later(max(seconds, 0.0), wake.set)
    try:
        await wake.wait()
    finally:
        timer.cancel()
