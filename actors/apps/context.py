"""The context of an application's actor while it handles a message."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from random import Random
from typing import Any, ClassVar, Protocol, TypeVar

from thespian.actors import ActorAddress

from rillnode.actors.apps.endpoint import ASK_SECONDS, ActorRef, Call, Endpoint, Houses
from rillnode.actors.apps.messages import Answer
from rillnode.actors.ports import TimerHandle
from rillnode.codecs.errors import ActorError
from rillnode.codecs.routing.routes import Address, Route

T = TypeVar("T")

Target = Route | str | ActorRef | ActorAddress
"""Whom to send to: a route, its text, or an actor of this node."""

_logger = logging.getLogger("rillnode.app")


class Hosted(Protocol):
    """The actor behind an address, as the context of its messages sees it; see `HostedActor`.

    Attributes:
        interleaves: whether it takes other messages while it waits.
    """

    hosting: Houses
    endpoint: Endpoint
    interleaves: ClassVar[bool]

    def reply(self, call: Call, payload: bytes, value: object) -> None:
        """Answer a message."""
        ...

    def tick_after(self, seconds: float, value: object, every: bool) -> TimerHandle:
        """Set a timer."""
        ...


class Context:
    """The powers of an actor; each message has its own, and so have `started` and `stopped`.

    Its methods may be called on the threads of `blocking` actors, too; what is to be awaited there
    is given to `wait`.

    Attributes:
        node: the node, as the application has it.
    """

    __slots__ = ("_call", "_host", "node", "under_way")

    node: Any

    def __init__(self, host: Hosted, call: Call | None) -> None:
        self._host = host
        self._call = call
        self.node = host.hosting.node
        self.under_way = True

    @property
    def _endpoint(self) -> Endpoint:
        return self._host.endpoint

    @property
    def address(self) -> str:
        """The actor's own address."""
        return self._endpoint.address

    @property
    def ref(self) -> ActorRef:
        """The actor itself, for others."""
        return self._endpoint.ref

    @property
    def log(self) -> "logging.LoggerAdapter[logging.Logger]":
        """The logger `rillnode.app`, whose records say which actor has written them."""
        return logging.LoggerAdapter(_logger, {"actor": self.address})

    @property
    def random(self) -> Random:
        """Chance, one source for all actors of the node; in a simulation the seed decides it.

        It is no source of secrets.
        """
        return self._host.hosting.random

    def now(self) -> float:
        """Seconds since 1970 by the node's clock, which is a virtual one in a simulation."""
        return self._host.hosting.clock.now_ms() / 1_000

    def reply(self, payload: bytes = b"", *, value: object = None) -> None:
        """Answer the message, as often as wanted; who asks once takes the first.

        Args:
            payload: the answer.
            value: an object for an actor of this node that has asked.

        Raises:
            RuntimeError: there is no message, as in `started`.
            TypeError: an object does not leave the node.
            ActorReply: `message.size`, the answer is too large for its way.
        """
        call = self._required()
        self._here(lambda: self._host.reply(call, payload, value))

    def send(
        self, to: Target, payload: bytes = b"", *, value: object = None, answers: bool = False
    ) -> None:
        """Send a message; nothing tells whether it arrives.

        Args:
            to: a route, or an actor of this node.
            payload: handed on as it is.
            value: an object, for an actor of this node.
            answers: whether answers are to come to `receive`, and errors of nodes on the way as
                the `value` of messages. Without, nobody waits for one: so two actors that answer
                everything do not answer each other for ever.

        Raises:
            ActorError: `actor.busy`, `actor.stopped`: of an actor of this node.
            CodecError: the text is no route, or the route is too long.
            TypeError: an object does not leave the node.
        """
        self._here(lambda: self._host.hosting.send(self._endpoint, to, payload, value, answers))

    async def ask(
        self,
        to: Target,
        payload: bytes = b"",
        *,
        value: object = None,
        timeout_seconds: float = ASK_SECONDS,
    ) -> Answer:
        """Send a message and wait for what comes back.

        Raises:
            RequestError: a refusal of whoever was asked, or of a node on the way.
            ActorError: `actor.cycle`, whoever is asked waits for this actor; `message.timeout`;
                `actor.failed`, `actor.busy`, `actor.stopped`: of an actor of this node.
        """
        waiting = self.under_way and not self._host.interleaves
        return await self._host.hosting.ask(
            self._endpoint, to, payload, value, timeout_seconds, waiting=waiting
        )

    def forward(
        self, *before: Address | str, payload: bytes | None = None, stay: bool = False
    ) -> None:
        """Pass the message on along its route, with the rights of its sender.

        Args:
            before: addresses that are put before what is left of the route.
            payload: another one.
            stay: answers come back through this actor, as messages with the rest of their route.

        Raises:
            ValueError: the route ends here, and nothing was put before it.
            CodecError: the route has become too long.
        """
        call = self._required()
        self._here(lambda: self._host.hosting.forward(self._endpoint, call, before, payload, stay))

    async def spawn(
        self,
        actor: Any,
        *args: Any,
        name: str | None = None,
        allow: Sequence[str] = (),
        **settings: Any,
    ) -> ActorRef:
        """Make a child at `<address>/<name>`; see `Node.spawn`.

        It is watched, and ends with the instance that has made it.
        """
        hosting = self._host.hosting
        return await hosting.spawn_child(self._endpoint, actor, args, name, allow, settings)

    def watch(self, ref: ActorRef) -> None:
        """Get a message with `Ended` as its value when an actor of this node ends."""
        self._here(lambda: self._host.hosting.watch(self._endpoint, ref))

    def after(self, seconds: float, value: object, *, every: bool = False) -> TimerHandle:
        """Get a message with a value later, once or again and again; lost with the instance.

        Args:
            seconds: how much later; with `every` at least 0.001.
            value: the message's.
            every: again and again, each time counted from when the last one was handled.

        Raises:
            ArgumentError: `seconds` is no such number.
        """
        return self._here(lambda: self._host.tick_after(seconds, value, every))

    def stop(self) -> None:
        """End the actor after the messages that wait now."""
        self._here(lambda: self._host.hosting.begin_stop(self._endpoint))

    def wait(self, work: Awaitable[T]) -> T:
        """Wait on the thread of a `blocking` actor for what is to be awaited.

        Raises:
            ActorError: `actor.would_block`, called where it would stop the whole node.
        """
        if self._host.hosting.system.on_loop_thread():
            raise ActorError("actor.would_block", "The node's loop cannot wait: use `await`")

        async def awaited() -> T:
            return await work

        def run() -> None:
            task = hosting.loop.create_task(awaited())
            task.add_done_callback(lambda _: over.set())
            begun.append(task)

        hosting, begun = self._host.hosting, list["asyncio.Task[T]"]()
        over = hosting.threads.flag()
        hosting.loop.call_soon_threadsafe(run)
        over.wait()
        return begun[0].result()

    def _required(self) -> Call:
        if self._call is None:
            raise RuntimeError("there is no message to be answered here")
        return self._call

    def _here(self, do: Callable[[], T]) -> T:
        """Do something on the loop's thread, and wait for it on any other."""
        if self._host.hosting.system.on_loop_thread():
            return do()
        done: Future[T] = Future()
        over = self._host.hosting.threads.flag()

        def run() -> None:
            try:
                done.set_result(do())
            except Exception as error:
                done.set_exception(error)
            over.set()

        self._host.hosting.loop.call_soon_threadsafe(run)
        over.wait()  # which a simulated thread can do, unlike `result`
        return done.result()
