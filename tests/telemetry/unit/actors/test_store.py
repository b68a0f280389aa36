"""The store with a tracer: spans begin and end with what a turn asks for, whatever comes of it."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rillnode.actors.log import Append, Checkpoint, Checkpointing, Operation, PutRecord, Read
from rillnode.actors.log.memory import MemoryLogStore
from rillnode.actors.ports import Span
from rillnode.actors.telemetry.store import Part, TracedStore, traced_store
from rillnode.codecs.entries import pack_body
from store_support import RocksDriver


class Noted:
    """A span that notes how it ended."""

    def __init__(self, name: str, parents: Sequence[Span | str]) -> None:
        self.name = name
        self.parents = list(parents)
        self.context = f"context of {name}"
        self.attributes: dict[str, Any] = {}
        self.error = ""
        self.ends = 0

    def end(self, attributes: Mapping[str, str | int], error: str = "") -> None:
        self.attributes = {key.removeprefix("messaging."): attributes[key] for key in attributes}
        self.error = error
        self.ends += 1


class Notes:
    """A tracer that keeps what it is told."""

    def __init__(self) -> None:
        self.spans: list[Noted] = []

    def begin(
        self, operation: str, destination: str, *, parents: Sequence[Span | str] = ()
    ) -> Noted:
        self.spans.append(Noted(f"{operation} {destination}", parents))
        return self.spans[-1]


def opened(notes: Notes) -> tuple[TracedStore, MemoryLogStore, list[Operation]]:
    """A traced store over one in memory, which works when it is flushed."""
    done: list[Operation] = []

    def complete(operations: Sequence[Operation]) -> None:
        traced.completed(operations)
        done.extend(operations)

    memory = MemoryLogStore(complete=complete, on_health=lambda _: None)
    memory.open()
    traced = traced_store(memory, notes)
    return traced, memory, done


def append(*items: bytes) -> Append:
    return Append(log=1, count=len(items), body=pack_body(items))


def test_one_span_for_all_that_a_turn_pushes() -> None:
    notes = Notes()
    traced, memory, _ = opened(notes)
    with traced.turn("s", 3, reads="pull", parents=("there",)):
        traced.submit(append(b"a", b"b"))
        traced.submit(append(b"c"))
    push, first, second = notes.spans
    assert [span.name for span in notes.spans] == ["push s", "commit s", "commit s"]
    assert (push.parents, first.parents, second.parents) == (["there"], [push], [push])
    assert [span.ends for span in notes.spans] == [0, 0, 0]
    memory.flush()
    assert [span.ends for span in notes.spans] == [1, 1, 1]
    assert push.attributes["batch.message_count"] == 3
    assert push.attributes["destination.partition.id"] == "3"
    assert [one.attributes["batch.message_count"] for one in (first, second)] == [2, 1]


def test_a_failure_is_told_by_its_code() -> None:
    notes = Notes()
    traced, memory, done = opened(notes)
    memory.faults.failing_syncs = 1
    with traced.turn("s", 0, reads="pull"):
        traced.submit(append(b"a"))
    memory.flush()
    assert [span.error for span in notes.spans] == ["store.failed", "store.failed"]
    assert done[0].error is not None


@pytest.mark.parametrize("index", [0, 2])
def test_reads_are_counted_as_they_were_asked_for(index: int) -> None:
    notes = Notes()
    traced, memory, _ = opened(notes)
    traced.submit(append(b"a", b"b", b"c", b"d", b"e"))  # outside of a turn: no span
    memory.flush()
    with traced.turn("s", 0, reads="deliver"):
        traced.read(Read(log=1, index=index, entries_max=2))
    memory.flush()
    (deliver,) = notes.spans
    assert (deliver.name, deliver.ends) == ("deliver s", 1)
    assert deliver.attributes["batch.message_count"] == 2


def test_a_turn_that_asks_for_nothing_of_streams_has_no_span() -> None:
    notes = Notes()
    traced, memory, done = opened(notes)
    with traced.turn("s", 0, reads="pull"):
        traced.submit(PutRecord(key="k", value=b"v"))
    memory.flush()
    assert (notes.spans, len(done)) == ([], 1)


def test_in_all_else_it_is_the_store() -> None:
    traced, memory, _ = opened(Notes())
    assert traced.health is memory.health
    assert traced.describe() == memory.describe()


def test_a_store_that_can_be_copied_can_be_copied_with_a_tracer(tmp_path: Path) -> None:
    rocks = RocksDriver(tmp_path / "store")
    rocks.write(append(b"a"))
    traced = traced_store(rocks.store, Notes())
    assert isinstance(traced, Checkpointing)
    operation = Checkpoint(path=tmp_path / "copy")
    traced.checkpoint(operation)
    rocks.settle(1)
    rocks.store.close()
    assert operation.error is None
    copy = RocksDriver(operation.path)
    assert [entry.data for entry in copy.entries(log=1)] == [b"a"]
    copy.store.close()
    assert not isinstance(opened(Notes())[0], Checkpointing)


def test_the_last_of_many_threads_ends_the_span() -> None:
    notes = Notes()
    span = notes.begin("push", "s")
    part = Part(span, {})
    for _ in range(800):
        part.begin()

    def work() -> None:
        for _ in range(100):
            part.done(1, 10, "")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert span.ends == 0
    part.done(0, 0, "")  # the turn itself
    assert span.ends == 1
    assert span.attributes == {"batch.message_count": 800, "message.body.size": 8_000}
