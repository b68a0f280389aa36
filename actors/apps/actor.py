"""The actors that an application writes: `Actor`, or a plain or async function."""

from collections.abc import Awaitable, Callable
from typing import ClassVar

from rillnode.actors.apps.context import Context
from rillnode.actors.apps.messages import Message
from rillnode.actors.apps.policy import APP_BYTES_MAX, APP_MESSAGES_MAX, Overflow
from rillnode.actors.engine.kinds import RESTARTS_MAX, OnFailure

Answered = bytes | None

Handler = Callable[[Message, Context], Awaitable[Answered] | Answered]
"""Handles each message of an actor that has no state."""


class Actor:
    """An actor of an application; subclasses handle messages in `receive`.

    One message at a time, each sender's in order. `receive` may be `async def` and await anything
    of asyncio: the next message waits meanwhile, the node does not. A plain one must not block, or
    its class says `blocking = True`: then it runs on a thread of its own, as do its other plain
    methods, and `Context.wait` waits there for what is to be awaited.

    An instance lives until it is replaced after a failure, is idle for long, or the actor ends.

    Attributes:
        blocking: `receive` runs on a thread.
        concurrency: messages that are handled at a time, where `receive` is `async def` or
            `blocking`; 1 keeps their order.
        attempts: how often a message is tried at which `receive` raises.
        on_failure: what follows when it raises: `restart`, a new instance goes on with the next
            message; `resume`, this one does; `stop`, the actor ends.
        restarts_max: restarts within 60 s; one more failure ends the actor.
        idle_seconds: how long without a message before the instance goes; None: never. The next
            message makes another. An instance that has timers or children stays.
        mailbox_messages_max: messages that may wait.
        mailbox_bytes_max: bytes of their payloads.
        overflow: what becomes of a message when the mailbox is full: `refuse`, its sender is told
            `actor.busy`; `hold`, senders of this node that can wait do, and others are told so.
    """

    blocking: ClassVar[bool] = False
    concurrency: ClassVar[int] = 1
    attempts: ClassVar[int] = 1
    on_failure: ClassVar[OnFailure] = "restart"
    restarts_max: ClassVar[int] = RESTARTS_MAX
    idle_seconds: ClassVar[float | None] = None
    mailbox_messages_max: ClassVar[int] = APP_MESSAGES_MAX
    mailbox_bytes_max: ClassVar[int] = APP_BYTES_MAX
    overflow: ClassVar[Overflow] = "refuse"

    def started(self, ctx: Context) -> Awaitable[None] | None:
        """Begin, before an instance's first message; may be `async def`.

        What it raises at the first start `spawn` raises, and the actor ends; later it counts as a
        failure.
        """

    def receive(self, message: Message, ctx: Context) -> Awaitable[Answered] | Answered:
        """Handle one message; may be `async def`.

        Returns:
            The answer to whoever waits for one; None: there is none, or it comes later.

        Raises:
            ActorReply: refuses, with a code and a text for the sender.
        """
        raise NotImplementedError

    def stopped(self, ctx: Context) -> Awaitable[None] | None:
        """Tidy up: the instance goes; may be `async def`, and is cancelled after 5 s."""


class FunctionActor(Actor):
    """Handles each message with a function."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def receive(self, message: Message, ctx: Context) -> Awaitable[Answered] | Answered:
        """Handle one message."""
        return self._handler(message, ctx)
