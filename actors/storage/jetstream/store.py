"""JetStreamLogStore: the durable log on NATS JetStream, replicated over several machines.

Its parts: `core` runs on the store's loop and hands work to the others; `server` asks JetStream
over a `connection`, `gate` knows whether that stands, and `patience` waits for one stream; `frames`
says what stands in messages. `partition` keeps one log, to which `appender` adds, with its keys in
`key_listing`; `journal` keeps all the rest, and `catalog` is what it amounts to; `removing` removes
streams, and `answering` reads from all of them. `presence`, `membership` and `forwarding` are for
the nodes on the same logs, of which each owns some; `following` tells what others have written.

Whatever it commits is one message of one JetStream stream, so every write is whole or not there.
"""

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from rillnode.actors.storage import (
    Capability,
    Complete,
    OnHealth,
    Operation,
    Read,
    ReadOperation,
    StoreHealth,
    WriteOperation,
    written_bytes,
)
from rillnode.actors.storage.completion import closed_error
from rillnode.actors.storage.jetstream.core import Core
from rillnode.actors.storage.jetstream.frames import TOKEN_BYTES
from rillnode.actors.storage.jetstream.membership import Member, owner_of
from rillnode.actors.storage.jetstream.options import JetStreamOptions
from rillnode.actors.storage.tail import TailCache
from rillnode.actors.storage.watch import AnyWatch, Sharing, SharingNode
from rillnode.actors.threads import SYSTEM_THREADS, Running, run_loop
from rillnode.codecs.errors import StoreError

_READS_MAX: Final = 10_000
"""Reads that may wait."""

A = TypeVar("A")


class JetStreamLogStore:
    """A LogStore on NATS JetStream; several may be open on the same streams at one time.

    `complete` and `on_health` are called on the store's loop, and by the caller where a submission
    is refused.
    """

    def __init__(
        self,
        options: JetStreamOptions,
        *,
        complete: Complete,
        on_health: OnHealth,
        entropy: Callable[[int], bytes] = os.urandom,
        identity: str = "",
        name: str = "",
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Make a store; nothing is opened.

        Args:
            options: where the servers are, and sizes.
            complete: takes completed operations.
            on_health: told when writes are taken or not.
            entropy: makes random bytes.
            identity: of the node whose store it is: it owns a part of the logs then. Without one,
                as for tools, it writes to logs itself, and none is handed to it.
            name: what people call that node.
            loop: runs the store; `submit`, `read` and `watch` are then called on it, so that an
                append wakes no other thread. None: a loop of its own, in a thread.
        """
        self._options = options
        self._complete = complete
        self._on_health = on_health
        self._entropy = entropy
        self._identity = identity
        self._name = name
        self._tail = TailCache(options.tail_bytes_max)
        self._core: Core | None = None
        self._loop = loop
        self._thread: Running | None = None
        self._over = threading.Event()
        self._synced = False
        self._closed = StoreHealth(writable=False, reason="the store is not open")
        # Each is counted by one thread only; the core has their counterparts.
        self._bytes_submitted = 0
        self._reads_asked = 0
        self._woken = False

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it promises beyond what all do."""
        shared = frozenset({Capability.SHARED})
        return shared | {Capability.POWER_CUT} if self._synced else shared

    @property
    def health(self) -> StoreHealth:
        """The state now."""
        return self._closed if self._core is None else self._core.gate.health

    @property
    def pending_bytes(self) -> int:
        """Bytes submitted and not yet completed."""
        return 0 if self._core is None else self._bytes_submitted - self._core.bytes_completed

    def open(self) -> None:
        """Connect, create or read the journal; waits for the store's loop.

        Raises:
            StoreError: the cluster does not answer, refuses, or holds something else.
        """
        loop = self._loop or self._start_loop()
        try:
            core, self._synced = asyncio.run_coroutine_threadsafe(self._start(), loop).result()
        except BaseException:
            self._stop()
            raise
        self._bytes_submitted = self._reads_asked = 0
        self._woken = False
        self._core = core

    def close(self) -> None:
        """Complete what was submitted, then close; harmless when repeated."""
        core, self._core = self._core, None
        if core is None or self._loop is None:
            return
        self._closed = StoreHealth(writable=False, reason="the store is closed")
        asyncio.run_coroutine_threadsafe(core.close(), self._loop).result()
        self._stop()
        self._tail.clear()

    def submit(self, operation: WriteOperation) -> None:
        """Queue a write; while the store cannot write it is completed with an error at once."""
        core = self._core
        refusal = closed_error() if core is None else core.gate.refusal
        size = written_bytes(operation)
        if refusal is None and size and self.pending_bytes + size > self._options.pending_bytes_max:
            refusal = StoreError(
                "store.busy", f"{self.pending_bytes} bytes wait to be written: try again"
            )
        if core is None or refusal is not None:
            self._refuse(operation, refusal)
            return
        self._bytes_submitted += size
        core.put(operation)
        if not self._woken:
            self._woken = True
            self._call(self._dispatch, core)

    def read(self, operation: ReadOperation) -> bool:
        """Answer at once out of the tail cache (True), or later through `complete` (False)."""
        if isinstance(operation, Read) and self._tail.read(operation):
            return True
        core = self._core
        if core is None:
            self._refuse(operation, closed_error())
        elif self._reads_asked - core.reads_answered >= _READS_MAX:
            text = f"{_READS_MAX} reads are waiting already: ask again"
            self._refuse(operation, StoreError("store.busy", text))
        else:
            self._reads_asked += 1
            self._call(core.read, operation)
        return False

    def watch(self, operation: AnyWatch) -> None:
        """Complete the operation as soon as there is what it waits for."""
        core = self._core
        if core is None:
            self._refuse(operation, closed_error())
        else:
            self._call(core.watch, operation)

    def sharing(self) -> Sharing | None:
        """Who shares the logs now; None where no node has opened them."""
        core = self._core
        if core is None or core.members is None:
            return None
        # Replaced when it changes, so it can be read from here.
        live, forwarding = core.members.live, core.forwarding

        def owner(log: int) -> SharingNode:
            found = owner_of(log, live)
            return SharingNode(found.name, found.identity)

        return Sharing(
            nodes=[SharingNode(member.name, member.identity) for member in live],
            owner_of=owner,
            handed=forwarding.handed,
            taken=forwarding.taken,
            hand_overs=forwarding.hand_overs,
        )

    def _dispatch(self, core: Core) -> None:
        self._woken = False
        core.dispatch()

    def _refuse(self, operation: Operation, error: StoreError | None) -> None:
        operation.error = error
        self._complete((operation,))

    def _call(self, function: Callable[[A], None], argument: A) -> None:
        if self._thread is None:
            function(argument)
        elif self._loop is not None:
            self._loop.call_soon_threadsafe(function, argument)

    def _start_loop(self) -> asyncio.AbstractEventLoop:
        loop = self._loop = asyncio.new_event_loop()
        self._over.clear()
        self._thread = SYSTEM_THREADS.start(
            lambda: run_loop(loop, self._over.is_set), "store-jetstream"
        )
        return loop

    async def _start(self) -> tuple[Core, bool]:
        writer = self._entropy(TOKEN_BYTES)
        node = Member(self._identity, self._name, writer) if self._identity else None
        core = Core(
            self._options,
            self._tail,
            complete=self._complete,
            on_health=self._on_health,
            writer=writer,
            node=node,
        )
        return core, await core.open()

    def _stop(self) -> None:
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            # Who gave the loop ends it.
            return
        self._over.set()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left))
        loop.close()
        self._loop = self._thread = None
