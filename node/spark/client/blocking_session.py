"""A session for threads without a loop, by which Spark's processes ask a node."""

from collections.abc import Callable, Coroutine
from typing import Any, Final, Self, TypeVar

from rillnode.codecs import native
from rillnode.codecs.keys import Identity
from rillnode.node.client.client import noise_connect, noise_follow
from rillnode.node.client.loop_thread import LoopThread
from rillnode.node.client.session import Session

STREAMS: Final = b"stream"
INDEXES: Final = b"stream_index"
REQUEST_SECONDS: Final = 120.0
CLOSE_SECONDS: Final = 5.0

T = TypeVar("T")


class BlockingSession:
    """A session and the loop that it lives on; a lost link ends it.

    Any number of threads may share it: everything that touches the session, the numbers of its
    requests included, happens on its loop.
    """

    def __init__(self, session: Session, loop: LoopThread) -> None:
        self._session = session
        self._loop = loop

    @classmethod
    def open(cls, url: str, identity: Identity, node_identity: str) -> Self:
        """Connect to a node.

        Raises:
            TransportError: the node is not reached; HandshakeError: it refuses the key.
            ConfigError: the address cannot be used.
        """
        way = noise_connect(url, identity, node_identity)
        session = Session(way, reconnect=False, follow=noise_follow(identity))
        loop = LoopThread()
        try:
            loop.run(session.open())
        except BaseException:
            loop.stop()
            raise
        return cls(session, loop)

    def ask(self, address: bytes, request: Callable[[int], native.Request], answer: type[T]) -> T:
        """Send a request and wait for its answer.

        Args:
            address: whom to ask.
            request: makes the request, of a number that is its own.
            answer: the kind of answer that it has.

        Raises:
            RequestError: the node refuses it, or gives an answer of another kind.
            TransportError: no answer in time, or the link is lost.
        """

        async def work(session: Session) -> T:
            made = request(session.next_id())
            return await session.request(address, made, answer, seconds=REQUEST_SECONDS)

        return self.run(work)

    def run(self, work: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        """Do something with the session on its loop, and wait for the result."""
        return self._loop.run(work(self._session))

    def close(self) -> None:
        """Wait a little for what has no answer yet, and end the link; twice is no error."""
        self._loop.stop(self._session.close(timeout_seconds=CLOSE_SECONDS))
