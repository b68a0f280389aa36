"""The store as actors see it on a node with a tracer: their operations begin and end spans."""

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from rillnode.actors.core.streams.appending import Inserted
from rillnode.actors.core.streams.context import parse_stream_address
from rillnode.actors.log import Append, Checkpoint, Checkpointing, LogStore, Operation, Read
from rillnode.actors.ports import Span, Tracer


class Turn:
    """The work of one actor's turn for one batch.

    Args:
        tracer: what its spans are told to.
        destination: name of the stream, or address of whom it is for.
        partition: of the stream; None for other destinations.
        reads: what reading is called here.
        parents: trace contexts that the batch came with.
    """

    def __init__(
        self,
        tracer: Tracer,
        destination: str,
        partition: int | None,
        *,
        reads: str,
        parents: Sequence[str],
    ) -> None:
        self.tracer = tracer
        self.destination = destination
        self.reads = reads
        self._attributes: dict[str, str | int] = {}
        if partition is not None:
            self._attributes["messaging.destination.partition.id"] = str(partition)
        self._parents = parents
        self._parts: dict[str, Part] = {}

    def part(self, operation: str) -> "Part":
        """The span of all that the turn does of one kind."""
        part = self._parts.get(operation)
        if part is None:
            span = self.tracer.begin(operation, self.destination, parents=self._parents)
            part = self._parts[operation] = Part(span, self._attributes)
        part.begin()
        return part

    def end(self) -> None:
        """Nothing more follows: spans end with what is under way."""
        for part in self._parts.values():
            part.done(0, 0, "")


class Part:
    """A span that ends when the last of several operations has; any thread."""

    def __init__(self, span: Span, attributes: dict[str, str | int]) -> None:
        self.span = span
        self._attributes = attributes
        self._lock = threading.Lock()
        self._waiting = 1  # the turn itself
        self._entries = self._bytes = 0
        self._error = ""

    def begin(self) -> None:
        """One more operation."""
        with self._lock:
            self._waiting += 1

    def done(self, entries: int, size: int, error: str) -> None:
        """An operation is completed: how many entries it had, their bytes, and why it failed."""
        with self._lock:
            self._waiting -= 1
            self._entries += entries
            self._bytes += size
            self._error = self._error or error
            last = not self._waiting
        if last:
            counted = counts(self._entries, self._bytes)
            self.span.end({**self._attributes, **counted}, self._error)


class TracedStore:
    """A store whose appends and reads, asked for within a turn, are told of; else the store.

    Whoever takes completed operations from the store hands them to `completed` first.
    """

    def __init__(self, store: LogStore, tracer: Tracer) -> None:
        self.tracer = tracer
        self._store: Any = store
        self._turn: Turn | None = None
        self._open: dict[Operation, tuple[Part, Span | None]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @contextmanager
    def turn(
        self, destination: str, partition: int | None, *, reads: str, parents: Sequence[str] = ()
    ) -> Generator[Turn]:
        """What is asked for meanwhile belongs to one batch."""
        turn = self._turn = Turn(self.tracer, destination, partition, reads=reads, parents=parents)
        try:
            yield turn
        finally:
            self._turn = None
            turn.end()

    def submit(self, operation: Operation) -> None:
        """Queue a write; an append is part of a push, and a commit of its own."""
        turn, token = self._turn, operation.token
        if turn is None and isinstance(token, Inserted):  # it has no turn of a stream's actor
            stream = parse_stream_address(token.address)
            assert stream is not None, "it was made of a name"
            with self.turn(*stream, reads="pull"):
                self.submit(operation)
            return
        if turn is not None and isinstance(operation, Append):
            push = turn.part("push")
            commit = turn.tracer.begin("commit", turn.destination, parents=(push.span,))
            self._open[operation] = push, commit
        self._store.submit(operation)

    def read(self, operation: Operation) -> bool:
        """Answer at once (True) or later, as the store does."""
        turn = self._turn
        if turn is not None and isinstance(operation, Read):
            self._open[operation] = turn.part(turn.reads), None
        done: bool = self._store.read(operation)
        if done:
            self._ended(operation)
        return done

    def completed(self, operations: Sequence[Operation]) -> None:
        """The store has completed operations; any thread."""
        for operation in operations:
            self._ended(operation)

    def _ended(self, operation: Operation) -> None:
        part, commit = self._open.pop(operation, (None, None))
        if part is None:
            return
        error = "" if operation.error is None else operation.error.code
        entries, size = _amount(operation)
        if commit is not None:
            commit.end(counts(entries, size), error)
        part.done(entries, size, error)


class TracedCheckpointing(TracedStore):
    """The same of a store that can copy itself while it is in use."""

    def checkpoint(self, operation: Checkpoint) -> None:
        """Queue a copy."""
        self._store.checkpoint(operation)


def traced_store(store: LogStore, tracer: Tracer) -> TracedStore:
    """A store as it is seen with a tracer."""
    if isinstance(store, Checkpointing):
        return TracedCheckpointing(store, tracer)
    return TracedStore(store, tracer)


def counts(messages: int, size: int) -> dict[str, str | int]:
    """How much a batch was, as OpenTelemetry names it."""
    return {"messaging.batch.message_count": messages, "messaging.message.body.size": size}


def _amount(operation: Operation) -> tuple[int, int]:
    """Entries and bytes of a completed operation; of a failed read, none."""
    if isinstance(operation, Append):
        return operation.count, len(operation.body)
    assert isinstance(operation, Read)
    blocks = operation.blocks
    if not blocks:
        return 0, 0
    first = max(operation.index, blocks[0].first_index)
    until = min(operation.until, blocks[-1].next_index, first + operation.entries_max)
    return max(0, until - first), sum(len(block.value) for block in blocks)
