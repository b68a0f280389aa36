"""The connection to a JetStream cluster: made, lost, made again; and plain messages over it."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager, suppress
from math import ceil
from ssl import SSLCertVerificationError
from typing import Any, Final, TypeVar

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.errors import APIError, NoStreamResponseError, NotFoundError, ServiceUnavailableError

from rillnode.actors.storage.jetstream.failures import (
    ExistsError,
    NobodyError,
    UnansweredError,
    WrongLastSequenceError,
    denied_error,
    refused_error,
    too_large_error,
    unreachable_error,
    unusable_error,
)
from rillnode.actors.storage.jetstream.options import (
    JetStreamOptions,
    check_credentials,
    tls_context,
)
from rillnode.actors.storage.jetstream.publishing import Publisher
from rillnode.codecs.errors import StoreError

logger = logging.getLogger("rillnode.actors.storage")

WRONG_LAST_SEQUENCE: Final = 10071
STREAM_EXISTS: Final = 10058
"""With another configuration, such as a number of replicas that was given since."""

NO_JETSTREAM: Final = 10039
"""For the account of this user."""

_PING_SECONDS: Final = 10
"""A server that leaves two pings unanswered is lost."""

_HEADERS_BYTES_MAX: Final = 4_096
"""Room for the headers of a message, its frame and its token."""

A = TypeVar("A")


class Connection:
    """A connection to a JetStream cluster. Once lost it stays lost until `connect`."""

    def __init__(self, options: JetStreamOptions, on_lost: Callable[[], None]) -> None:
        self._options = options
        self._on_lost = on_lost
        self._servers = deque(options.servers)
        self._client = Client()
        self._js = JetStreamContext(self._client)
        self._connected = False
        # The client refuses to be closed before it has tried to connect.
        self._tried = False
        # Why the last attempt failed; the client itself says only that it did.
        self._connect_error: Exception | None = None
        # Some server has said that JetStream is unavailable for now.
        self._electing = False
        # Since when JetStream has answered no check, nor acknowledged anything.
        self._mute_since: float | None = None
        self._publisher: Publisher | None = None
        self._asked: set[asyncio.Future[Any]] = set()
        self._subjects: set[str] = set()

    @property
    def room_bytes(self) -> int:
        """The most that one message takes of ours: the server's limit without headers."""
        return self._client.max_payload - _HEADERS_BYTES_MAX

    @property
    def version(self) -> tuple[int, int, int] | None:
        """Of the server at the other end; None where it is not known."""
        said = self._client.connected_server_version
        try:
            version = (said.major, said.minor, said.patch)
        except ValueError:
            return None
        return version if any(version) else None

    def name_of(self, part: str) -> str:
        """The JetStream stream that holds a part of the store; its subject has the same name."""
        return f"{self._options.prefix}-{part}"

    def name_of_log(self, log: int) -> str:
        """The same for one log."""
        return self.name_of(f"{log:016x}")

    async def open(self) -> None:
        """Connect to the first server that answers for JetStream, be it once they elected a leader.

        Raises:
            StoreError: there is none, they do not let us in, or have no JetStream for us.
        """
        options, loop = self._options, asyncio.get_running_loop()
        deadline = loop.time() + options.settle_seconds_max
        while True:
            try:
                await self.connect(checked=True)
                return
            except StoreError:
                if not self._electing or loop.time() > deadline:
                    raise
            await asyncio.sleep(options.repair_seconds_max)

    async def connect(self, *, checked: bool = False) -> None:
        """Connect to the first server that lets us in, unless the connection stands.

        Args:
            checked: and that answers for JetStream, which takes the cluster; where none has done so
                for long (`is_mute`), in any case.

        Raises:
            StoreError: there is none.
        """
        if self._connected:
            return
        shown = _shown(self._options)
        errors: list[str] = []
        denied = self._electing = False
        for _ in self._options.servers:
            # The one that was lost comes last.
            url = self._servers[0]
            self._servers.rotate(-1)
            self._connect_error = None
            try:
                await self._connect_to(url, shown)
                if checked or self.is_mute:
                    await self._js.account_info()
                    self._mute_since = None
            except (OSError, nats.errors.Error, TimeoutError, ValueError) as error:
                reason = self._connect_error or error
                denied = denied or _is_denial(reason)
                self._electing = self._electing or isinstance(reason, ServiceUnavailableError)
                errors.append(f"{url}: {_told(reason)}")
                await self.close()
            else:
                return
        reasons = "; ".join(errors)
        raise denied_error(reasons) if denied else unreachable_error(reasons)

    async def close(self) -> None:
        """Let the connection go; requests under way end with an error."""
        self._end_requests()
        if not self._tried:
            return
        try:
            await asyncio.wait_for(self._client.close(), self._options.answer_seconds_max)
        except (OSError, TimeoutError, nats.errors.Error) as error:
            logger.debug("store_connection_not_closed", extra={"reason": str(error)})

    async def check(self) -> None:
        """Let the connection go if JetStream does not answer over it at all, though it stands."""
        try:
            # A refusal is an answer, too.
            with suppress(StoreError):
                await self._answer(self._js.account_info())
            self._mute_since = None
        except UnansweredError:
            if self._mute_since is None:
                self._mute_since = asyncio.get_running_loop().time()
            if self._connected:
                self._lose()
                await self.close()

    @property
    def is_mute(self) -> bool:
        """Whether JetStream has answered nothing for as long as writes wait, whoever was asked."""
        if self._mute_since is None:
            return False
        passed = asyncio.get_running_loop().time() - self._mute_since
        return passed >= self._options.patience_seconds

    async def listen(self, subject: str, heard: Callable[[bytes], None]) -> None:
        """Hear what other connections tell under a subject, as long as this one stands.

        Raises:
            UnansweredError: it does not stand any more.
        """
        await self._subscribe(subject, lambda message: heard(message.data))

    async def serve(self, subject: str, take: Callable[[bytes, str], None]) -> None:
        """Take requests as long as this connection stands, each with where its answer is told.

        Raises:
            UnansweredError: it does not stand any more.
        """
        await self._subscribe(subject, lambda message: take(message.data, message.reply))

    async def tell(self, subject: str, data: bytes) -> None:
        """Tell all who listen; nobody knows whether it arrives.

        Raises:
            UnansweredError: the connection was lost.
        """
        await self._answer(self._client.publish(subject, data))

    async def ask(self, subject: str, data: bytes, seconds: float) -> bytes | None:
        """What another connection that serves the subject answers; None if nothing in time.

        Raises:
            NobodyError: none does.
            UnansweredError: the connection was lost.
        """

        async def answered() -> bytes | None:
            try:
                return (await self._client.request(subject, data, timeout=seconds)).data
            except nats.errors.NoRespondersError:
                raise NobodyError from None
            except TimeoutError:
                return None

        return await self._answer(answered())

    async def _publish(self, name: str, data: bytes, headers: dict[str, str]) -> int:
        """Add a message to a stream; returns its sequence. Raises as `Server.publish`."""
        if self._publisher is None:
            raise UnansweredError("the connection was lost")
        try:
            sequence = await self._publisher.publish(name, data, headers)
            self._mute_since = None
            return sequence
        except Exception:
            # Only now: it would take each message as long as its header does.
            with self._in_our_terms():
                raise

    async def _read(self, name: str, first: int, count: int = 1) -> list[bytes | None]:
        """Messages of a stream, as some replica has each. Raises as `Server.get`."""
        if self._publisher is None:
            raise UnansweredError("the connection was lost")
        with self._in_our_terms():
            return await self._publisher.read(name, first, count)

    async def _subscribe(self, subject: str, take: Callable[[Msg], None]) -> None:
        """Take messages, once each however often this is asked of one connection."""
        if subject in self._subjects:
            return

        async def taken(message: Msg) -> None:
            take(message)

        subscribing = self._client.subscribe(  # pyright: ignore[reportUnknownMemberType]
            subject, cb=taken
        )
        await self._answer(subscribing)
        self._subjects.add(subject)

    async def _connect_to(self, url: str, shown: Mapping[str, Any]) -> None:
        options = self._options
        # A client that was closed once stays closed.
        self._client = client = Client()
        self._subjects = set()
        self._tried = True
        self._js = JetStreamContext(client, timeout=options.answer_seconds_max)

        async def lost() -> None:
            if client is self._client:
                self._lose()

        await client.connect(
            url,
            name="rillnode",
            no_echo=True,
            # Nothing may be sent later than it was meant to be: the store tries again by itself.
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            ping_interval=_PING_SECONDS,
            connect_timeout=ceil(options.answer_seconds_max),
            disconnected_cb=lost,
            closed_cb=lost,
            error_cb=self._log_error,
            **shown,
        )
        publisher = Publisher(client, options.answer_seconds_max)
        await publisher.begin()
        self._publisher = publisher
        self._connected = True

    async def _log_error(self, error: Exception) -> None:
        if not self._connected:
            self._connect_error = error
        else:
            logger.warning("store_connection_failed", extra={"reason": repr(error)})

    def _lose(self) -> None:
        if not self._connected:
            return
        self._end_requests()
        self._on_lost()

    def _end_requests(self) -> None:
        self._connected = False
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            publisher.end(UnansweredError("the connection was lost"))
        for request in self._asked:
            request.cancel()

    async def _answer(self, request: Coroutine[Any, Any, A]) -> A:
        """The answer to a request; NotFoundError passes."""
        asked = asyncio.ensure_future(request)
        self._asked.add(asked)
        try:
            with self._in_our_terms():
                return await asked
        except asyncio.CancelledError:
            asking = asyncio.current_task()
            if asking is not None and asking.cancelling():
                raise
            raise UnansweredError("the connection was lost") from None
        finally:
            self._asked.discard(asked)

    @contextmanager
    def _in_our_terms(self) -> Generator[None]:
        """Let the client's errors be ours; NotFoundError passes."""
        try:
            yield
        except NotFoundError:
            raise
        except (ServiceUnavailableError, NoStreamResponseError) as error:
            raise UnansweredError(str(error)) from error
        except APIError as error:
            if error.err_code == STREAM_EXISTS:
                raise ExistsError from error
            if error.err_code == WRONG_LAST_SEQUENCE:
                raise WrongLastSequenceError from error
            raise refused_error(error) from error
        except nats.errors.MaxPayloadError as error:
            raise too_large_error(self.room_bytes) from error
        except (OSError, TimeoutError, nats.errors.Error) as error:
            raise UnansweredError(str(error) or type(error).__name__) from error


def _shown(options: JetStreamOptions) -> dict[str, Any]:
    """What the client is given to show the servers.

    Raises:
        StoreError: a file cannot be read, or holds something else.
    """
    shown: dict[str, Any] = {}
    try:
        if options.tls_ca or options.tls_cert:
            shown["tls"] = tls_context(options)
        if options.credentials is not None:
            check_credentials(options.credentials)
            shown["user_credentials"] = str(options.credentials)
    except (OSError, ValueError) as error:
        raise unusable_error(str(error)) from error
    return shown


def _told(error: Exception) -> str:
    """Why a server is not connected to, and what to set where that is about its certificate."""
    if isinstance(error, SSLCertVerificationError):
        why = error.verify_message.rstrip(".")
        return f"its certificate is not trusted ({why}): see tls_ca of [store]"
    return str(error) or type(error).__name__


def _is_denial(error: Exception) -> bool:
    """Whether a server has answered, and does not let us in."""
    if isinstance(error, APIError):
        return error.err_code == NO_JETSTREAM
    return "auth" in str(error).lower()
