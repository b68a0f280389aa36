"""Tracing tells kinds and sizes, and nothing of what messages hold."""

import logging
from collections.abc import Sequence

import pytest

from rillnode.actors.core.links.tracing import TRACE, TracedLink, trace_of, wire_kind
from rillnode.codecs import native
from rillnode.codecs.links import LinkInfo
from rillnode.codecs.routing.routes import encode_message, local
from rillnode.codecs.routing.stream import PushRequest, encode_request

SECRET = b"a secret that nobody shall read"


class FakeLink:
    def __init__(self, transport: str) -> None:
        self.info = LinkInfo(
            principal="anonymous",
            remote="10.0.0.1:7",
            transport=transport,
            dialled=False,
            message_bytes_max=65_000,
        )
        self.buffered_bytes = 9
        self.taken: list[bytes] = []

    def send(self, messages: Sequence[bytes]) -> None:
        self.taken += messages

    def frame(self, messages: Sequence[bytes]) -> bytes:
        return b"".join(messages)

    def send_framed(self, framed: bytes, count: int) -> None:
        self.taken.append(framed * count)

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self, reason: str) -> None: ...


@pytest.fixture(autouse=True)
def loggers() -> None:
    for protocol in ("noise", "ockam", "weather"):
        logging.getLogger(f"rillnode.trace.{protocol}").setLevel(TRACE)


def wire(payload: bytes) -> bytes:
    return encode_message((local(SECRET),), (local(b"mine"),), payload)


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, object, object]]:
    return [
        (r.msg, vars(r)["kind"], vars(r)["bytes"])
        for r in caplog.records
        if r.name.startswith("rillnode.trace.")
    ]


@pytest.mark.parametrize("transport", ["noise", "ockam"])
def test_wire_messages_are_named_by_their_protocol(
    transport: str, caplog: pytest.LogCaptureFixture
) -> None:
    trace = trace_of(FakeLink(transport), wire_kind)
    assert trace is not None
    append = native.encode(native.DescribeRequest(1, SECRET.decode()))
    push = encode_request(PushRequest(request_id=1, data=SECRET))
    messages = [wire(append), wire(push), wire(SECRET), wire(b""), b"\xff" + SECRET]
    trace.received(messages)
    kinds = ["rillnode_describe", "stream_push", "message", "message", "unknown"]
    assert lines(caplog) == [
        ("received", kind, len(message)) for kind, message in zip(kinds, messages, strict=True)
    ]
    assert all(SECRET.decode() not in str(vars(record)) for record in caplog.records)


def test_what_is_sent_is_told_of_and_sent(caplog: pytest.LogCaptureFixture) -> None:
    link = FakeLink("weather")
    trace = trace_of(link, lambda _: lambda _: "record")
    assert trace is not None
    traced = TracedLink(link, trace)
    traced.send([b"abc", b"d"])
    traced.send_framed(traced.frame([b"ef"]), 2)
    assert link.taken == [b"abc", b"d", b"efef"]
    assert traced.buffered_bytes == 9
    assert lines(caplog) == [
        ("sent", "record", 3), ("sent", "record", 1), ("sent", "broadcast", 2),
    ]  # fmt: skip


def test_nothing_is_traced_unless_its_protocol_is_named() -> None:
    logging.getLogger("rillnode.trace.ockam").setLevel(logging.NOTSET)
    logging.getLogger("rillnode").setLevel(logging.DEBUG)
    assert trace_of(FakeLink("ockam"), wire_kind) is None
    assert trace_of(FakeLink("noise"), wire_kind) is not None
