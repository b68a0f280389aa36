"""The blocking client has the verbs of the asynchronous one, as type checkers and `help` tell."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_type

import pytest

from rillnode.codecs.entries import Entry
from rillnode.node.client import (
    BlockingClient,
    BlockingJob,
    BlockingProducer,
    BlockingPusher,
    BlockingStream,
    BlockingTypedStream,
    Client,
    Job,
    NamedProducer,
    Pusher,
    Stream,
    StreamInfo,
    TypedStream,
)


@dataclass
class Reading:
    celsius: float


if TYPE_CHECKING:

    def checked(client: BlockingClient) -> None:
        """Types that `mypy --strict` sees."""
        stream = client.stream("sensors")
        assert_type(stream.push(b"x", key="m7", headers={"unit": "C"}, partition=2), int)
        assert_type(stream.pull(-10, 5, where="mag > 5"), list[Entry])
        assert_type(stream.consumer("worker", group=True).next(timeout=1.0), Entry)
        assert_type(stream.work("prints", by_key=True).next(), BlockingJob)
        assert_type(client.describe("sensors"), StreamInfo)
        typed = client.stream("typed", schema=Reading)
        assert_type(typed.pull(), list[tuple[int, Reading]])
        assert_type(typed.push(Reading(20.5)), int)
        typed.push(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        stream.push(b"x", kay="m7")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


ONLY_ASYNCHRONOUS = {
    "batches", "checkpoint", "close", "closes", "console_ticket", "done_nowait", "iterate_streams",
    "open_calls", "ping", "push_nowait", "run_sink", "stream", "unconfirmed",
}  # fmt: skip
"""What has no blocking face, or is another thing there."""


def verbs(kind: type) -> dict[str, Callable[..., Any]]:
    return {name: one for name, one in inspect.getmembers(kind, callable) if name[0] != "_"}


@pytest.mark.parametrize(
    ("face", "behind"),
    [
        (BlockingClient, Client),
        (BlockingStream, Stream),
        (BlockingTypedStream, TypedStream),
        (BlockingJob, Job),
        (BlockingPusher, Pusher),
        (BlockingProducer, NamedProducer),
    ],
)
def test_a_blocking_face_has_all_verbs(face: type, behind: type) -> None:
    blocking, asynchronous = verbs(face), verbs(behind)
    assert asynchronous.keys() - blocking.keys() <= ONLY_ASYNCHRONOUS
    for name, verb in blocking.items():
        assert not inspect.iscoroutinefunction(verb)
        if hasattr(verb, "__wrapped__"):
            here, there = inspect.signature(verb), inspect.signature(asynchronous[name])
            assert here.parameters.keys() == there.parameters.keys()
            assert verb.__doc__ == asynchronous[name].__doc__
