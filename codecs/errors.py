"""Every error of rillnode, in one tree.

    RillnodeError             code, text, context
    +- CodecError             a peer's bytes are wrong: close or answer that peer, count it
    +- TransportError         a link failed
    |  +- HandshakeError      the peer could not be authenticated, or refuses us
    +- StoreError             the log could not do what was asked; see `retryable`
    +- ActorError             an actor or its address is gone, or does not answer
    +- RequestError           a node refused a request; the code is the node's
    |  +- StreamError         `stream.*`
    |  |  +- StreamUnknown    `stream.unknown`
    |  |  +- StreamRemoved    `stream.removed`
    |  |  +- PartitionUnknown `stream.partition`
    |  +- EntryError          `entries.*`
    |  |  +- EntryTooLarge    `entries.size`
    |  +- ConsumerError       `consumer.*`
    |  |  +- ConsumerStopped  `consumer.stopped`
    |  +- QueueError          `queue.*`
    |  |  +- JobLate          `queue.late`
    |  |  +- QueueStopped     `queue.stopped`
    |  +- ProducerError       `producer.*`
    |  |  +- ProducerStale    `producer.stale`
    |  |  +- ProducerOutOfOrder `producer.order`
    |  |  +- ProducerFenced   `producer.fenced`
    |  +- GroupError          `group.*`
    |  +- QuotaError          `quota.*`
    |  +- AddressError        `address.*`
    |  |  +- AddressUnknown   `address.unknown`
    |  +- PeerError           `peer.*`
    |  +- ArgumentError       `client.argument`; a TypeError and a ValueError, too
    +- NodeFailed             a node cannot go on: an actor that all need was given up; exit code 4
    +- ConfigError            the operator must act: file, key path, allowed values; exit code 2

Codes are stable and dotted (`codec.truncated`); texts may change. A `RequestError` is made with its
code alone: the code says which of the classes it becomes.
"""

from typing import Any, ClassVar, Final, Self

UNHANDLED: Final = frozenset(("actor.busy", "actor.stopped"))
"""Codes that say of a message that its actor has not come to it: it may be sent again."""


class RillnodeError(Exception):
    """Base of all errors.

    Attributes:
        code: stable, dotted, lower case.
        context: what the text is about, for logs; never payloads or keys.
        retryable: whether the same call may succeed later.
        retry_seconds: how long to wait before that; 0.0 where nothing tells.
    """

    retryable = False
    retry_seconds = 0.0

    def __init__(self, code: str, text: str, **context: object) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.context = context

    def __str__(self) -> str:
        # What stands on further lines is there to be copied.
        first, newline, more = self.text.partition("\n")
        return f"{first} [{self.code}]{newline}{more}"


class CodecError(RillnodeError):
    """Bytes from outside that are no message.

    Attributes:
        offset: index of the first byte that is wrong, in the decoded input.
    """

    def __init__(self, code: str, text: str, *, offset: int = 0, **context: object) -> None:
        super().__init__(code, text, **context)
        self.offset = offset

    def __str__(self) -> str:
        return f"{self.text} at byte {self.offset} [{self.code}]"


class TransportError(RillnodeError):
    """A link could not be made or kept."""

    retryable = True


class HandshakeError(TransportError):
    """A peer that cannot be authenticated, refuses us, or speaks something else."""

    retryable = False


class StoreError(RillnodeError):
    """The log could not do what was asked, or cannot tell that it did."""

    def __init__(self, code: str, text: str, *, retryable: bool = True, **context: object) -> None:
        super().__init__(code, text, **context)
        self.retryable = retryable


class ActorError(RillnodeError):
    """An actor has failed, is busy or gone, or did not answer in time; see `UNHANDLED`."""

    def __init__(
        self, code: str, text: str, *, retry_seconds: float = 0.0, **context: object
    ) -> None:
        super().__init__(code, text, **context)
        self.retryable = code in UNHANDLED
        self.retry_seconds = retry_seconds


class RequestError(RillnodeError):
    """A node's refusal of a request, as a client sees it; `code` is the node's.

    Those that a program may want to catch have classes of their own, by their code or its first
    word.
    """

    _classes: ClassVar[dict[str, type["RequestError"]]] = {}

    def __init_subclass__(cls, *, code: str = "", **more: Any) -> None:
        super().__init_subclass__(**more)
        if code:
            RequestError._classes[code] = cls

    def __new__(
        cls,
        code: str,
        text: str,
        *,
        retryable: bool = False,
        retry_seconds: float = 0.0,
        **context: object,
    ) -> Self:
        """Make it of the class that the code has."""
        classes = RequestError._classes
        named = classes.get(code) or classes.get(code.partition(".")[0], cls)
        return super().__new__(named if issubclass(named, cls) else cls)

    def __init__(
        self,
        code: str,
        text: str,
        *,
        retryable: bool = False,
        retry_seconds: float = 0.0,
        **context: object,
    ) -> None:
        super().__init__(code, text, **context)
        self.retryable = retryable
        self.retry_seconds = retry_seconds


class StreamError(RequestError, code="stream"):
    """A refusal that is about a stream: `stream.*`."""


class StreamUnknown(StreamError, code="stream.unknown"):
    """There is no such stream, or this key may not know that there is."""


class StreamRemoved(StreamError, code="stream.removed"):
    """The stream was removed, with all that it held and all positions in it."""


class PartitionUnknown(StreamError, code="stream.partition"):
    """The stream has no partition of that number."""


class EntryError(RequestError, code="entries"):
    """The data, key or headers that are pushed cannot be an entry's: `entries.*`."""


class EntryTooLarge(EntryError, code="entries.size"):
    """An entry with more bytes than one may have."""


class ConsumerError(RequestError, code="consumer"):
    """A consumer was asked for what it cannot do: `consumer.*`."""


class ConsumerStopped(ConsumerError, code="consumer.stopped"):
    """The consumer was stopped or closed: it gives no further entries."""


class QueueError(RequestError, code="queue"):
    """A refusal that is about a work queue, or one of its jobs: `queue.*`."""


class JobLate(QueueError, code="queue.late"):
    """The job is the worker's no more: not answered in time and given again, or answered."""


class QueueStopped(QueueError, code="queue.stopped"):
    """The worker was stopped: it is given no further jobs."""


class ProducerError(RequestError, code="producer"):
    """A producer that has a name cannot do so: `producer.*`."""


class ProducerStale(ProducerError, code="producer.stale"):
    """The number of what is pushed is not new; nothing of it is stored."""

    @property
    def index(self) -> int | None:
        """The index that the number has; None: it is not known, or the number is in a gap."""
        index = self.context.get("index")
        return index if isinstance(index, int) else None


class ProducerOutOfOrder(ProducerError, code="producer.order"):
    """A push behind one that is not stored, so that it is not, either."""


class ProducerFenced(ProducerError, code="producer.fenced"):
    """The producer's name was opened once more since: only the last one may push."""


class GroupError(RequestError, code="group"):
    """A group of consumers, or its name, cannot be used so: `group.*`."""


class QuotaError(RequestError, code="quota"):
    """More than the quota allows, of streams, bytes or bytes in a second: `quota.*`."""


class AddressError(RequestError, code="address"):
    """A refusal that is about an address: `address.*`."""


class AddressUnknown(AddressError, code="address.unknown"):
    """Nothing has the address, or this client may not use it."""


class PeerError(RequestError, code="peer"):
    """A peer of the node cannot be reached, or not now: `peer.*`."""


class ArgumentError(RequestError, TypeError, ValueError, code="client.argument"):
    """A call was given what cannot be one of its arguments; the text says which, and what can.

    Python's own errors for that are bases of it.
    """


class NodeFailed(RillnodeError):
    """A node that cannot go on, because an actor that all others need has failed too often.

    `__cause__` is what that actor has failed with, last.
    """


class ConfigError(RillnodeError):
    """A configuration that cannot be used; the text names file, key path and allowed values."""
