"""Spans of real nodes: what is told of, who is whose child, and that they leave."""

import asyncio
import http.server
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, SpanKind, StatusCode

from forked import finished
from nodes import connect_to, node_config
from peer_support import create, granted, until, with_peers
from rillnode.codecs.errors import ConfigError, RequestError
from rillnode.codecs.routing.stream import PushRequest, encode_request
from rillnode.node.config import Config, GrantTable, PeerTable
from rillnode.node.runtime import Node
from rillnode.node.spark.config import FilesSink, SinkTables
from rillnode.node.telemetry.config import TelemetryTable
from span_support import Kept, told


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def context_of(span: ReadableSpan) -> SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context


def id_of(span: ReadableSpan) -> int:
    return context_of(span).span_id


def times(span: ReadableSpan) -> tuple[int, int]:
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time, span.end_time


async def test_pushes_commits_pulls_and_deliveries(tmp_path: Path) -> None:
    kept = Kept()
    async with Node(node_config(tmp_path), given={"telemetry": kept.tracer}) as node:
        async with await connect_to(node) as client:
            stream = await client.stream("sensors", partitions=2)
            await stream.push_many([b"a", b"bc", b"def"], partition=1)
            push, commit = kept.one("push sensors"), kept.one("commit sensors")
            assert parent_of(push) is None
            assert parent_of(commit) == id_of(push)
            assert push.kind is SpanKind.SERVER
            assert told(push) == {
                "system": "rillnode",
                "operation.name": "push",
                "destination.name": "sensors",
                "destination.partition.id": "1",
                "batch.message_count": 3,
                "message.body.size": told(commit)["message.body.size"],
            }
            (begun, ended), (first, last) = times(push), times(commit)
            assert begun <= first < last <= ended
            assert len(await stream.pull(1, 10, partition=1)) == 2
            assert told(kept.one("pull sensors"))["batch.message_count"] == 2
            async for entry in stream.tail(start=0, partitions=[1]):
                if entry.index == 2:
                    break
            assert told(kept.one("deliver sensors"))["batch.message_count"] == 3
        # Those who count actors see the usual ones.
        assert not [name for name in node.status()["actors"] if "Traced" in name]
    assert kept.names == {"push sensors", "commit sensors", "pull sensors", "deliver sensors"}


async def test_ranges_of_a_sink(tmp_path: Path) -> None:
    sink = FilesSink(
        name="out", streams=("s*",), directory=tmp_path / "files", trigger_seconds=0.05
    )
    config = node_config(tmp_path / "data").having(SinkTables(files=(sink,)))
    kept = Kept()
    async with Node(config, given={"telemetry": kept.tracer}) as node:
        stream = await node.stream("s1")
        await stream.push_many([b"%d" % number for number in range(50)])
        await until(lambda: kept.all("range sink/out"))
    spans = kept.all("range sink/out")
    assert sum(told(span)["batch.message_count"] for span in spans) == 50


@asynccontextmanager
async def chain(directory: Path, *names: str) -> AsyncGenerator[dict[str, tuple[Node, Kept]]]:
    """Nodes each of which has the next as its peer, over rillnode's own links."""
    running: dict[str, tuple[Node, Kept]] = {}
    following: PeerTable | None = None
    entered: list[Node] = []
    before: Node | None = None
    plain = {name: node_config(directory / name, *granted("anonymous")) for name in names}
    identities = {name: Node(plain[name]).identity for name in names}
    try:
        for nth, name in reversed(list(enumerate(names))):
            config: Config = plain[name]
            if nth:
                before_identity = identities[names[nth - 1]]
                grant = GrantTable(
                    who=f"noise:{before_identity}", streams="*", may=("create", "push", "admin")
                )
                config = msgspec.structs.replace(config, grants=(*config.grants, grant))
            if following is not None:
                config = with_peers(config, following)
            kept = Kept()
            before = Node(config, given={"telemetry": kept.tracer})
            await before.start()
            entered.append(before)
            running[name] = before, kept
            following = PeerTable(
                name=name, noise=before.addresses()["noise"], identity=before.identity
            )
        yield running
    finally:
        for node in reversed(entered):
            await node.stop()


async def test_each_hop_is_a_child_of_the_hop_before(tmp_path: Path) -> None:
    async with chain(tmp_path, "a", "b", "c") as nodes:
        client = await connect_to(nodes["a"][0])
        route = await create(client, "peer/b", "peer/c")
        request = encode_request(PushRequest(1, b"x"))
        await client.ask(route, request, timeout_seconds=30.0)
        await client.close()
    (_, a), (_, b), (_, c) = nodes["a"], nodes["b"], nodes["c"]
    push, commit = c.one("push s"), c.one("commit s")
    assert parent_of(commit) == id_of(push)
    (last,) = [span for span in b.all("forward peer/c") if id_of(span) == parent_of(push)]
    (first,) = [span for span in a.all("forward peer/b") if id_of(span) == parent_of(last)]
    assert parent_of(first) is None
    traces = {context_of(span).trace_id for span in (first, last, push, commit)}
    assert len(traces) == 1
    assert told(first)["batch.message_count"] == 1
    # Two forwards at each: that of the stream's creation, and that of the push.
    assert (len(a.all("forward peer/b")), len(b.all("forward peer/c"))) == (2, 2)


async def test_a_link_of_another_protocol_carries_nothing(tmp_path: Path) -> None:
    near, far = Kept(), Kept()
    async with Node(node_config(tmp_path / "b"), given={"telemetry": far.tracer}) as b:
        peer = PeerTable(name="b", ockam=b.addresses()["ockam"])
        config = with_peers(node_config(tmp_path / "a", *granted("anonymous")), peer)
        async with (
            Node(config, given={"telemetry": near.tracer}) as a,
            await connect_to(a) as client,
        ):
            route = await create(client, "peer/b")
            request = encode_request(PushRequest(1, b"x"))
            await client.ask(route, request, timeout_seconds=30.0)
    assert near.all("forward peer/b")
    assert parent_of(far.one("push s")) is None


async def test_a_plain_node_takes_what_a_traced_one_sends(tmp_path: Path) -> None:
    kept = Kept()
    grants = granted("anonymous")
    first = Node(node_config(tmp_path / "a", *grants))
    knows = GrantTable(who=f"noise:{first.identity}", streams="*", may=("create", "push"))
    async with Node(node_config(tmp_path / "b", *grants, knows)) as b:
        peer = PeerTable(name="b", noise=b.addresses()["noise"], identity=b.identity)
        async with Node(with_peers(first.config, peer), given={"telemetry": kept.tracer}) as a:
            client = await connect_to(a)
            route = await create(client, "peer/b")
            request = encode_request(PushRequest(1, b"x"))
            await client.ask(route, request, timeout_seconds=30.0)
            await client.close()
        pulled = await (await b.stream("s")).pull()
    assert [entry.data for entry in pulled] == [b"x"]
    assert len(kept.all("forward peer/b")) == 2


async def test_what_cannot_be_forwarded_is_an_error(tmp_path: Path) -> None:
    kept = Kept()
    peer = PeerTable(name="gone", ockam="127.0.0.1:1")
    config = with_peers(node_config(tmp_path, *granted("anonymous")), peer)
    async with (
        Node(config, given={"telemetry": kept.tracer}) as node,
        await connect_to(node) as client,
    ):
        with pytest.raises(RequestError):
            await client.ask("peer/gone;echo", b"x", timeout_seconds=30.0)
    span = kept.one("forward peer/gone")
    assert span.status.status_code is StatusCode.ERROR
    assert told(span)["error.type"] == "peer_unreachable"


class Collector:
    """Takes OTLP over HTTP on a loopback address."""

    def __init__(self) -> None:
        bodies = self.bodies = list[bytes]()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *_: Any) -> None:  # noqa: A002
                """Say nothing."""

        self._server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> "Collector":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def exporting(directory: Path, endpoint: str) -> Config:
    table = TelemetryTable(enabled=True, endpoint=endpoint)
    return node_config(directory).having(table)


def push_one(config: Config) -> float:
    """Run a node, push to it, stop it; return how long it took to stop, in seconds."""

    async def run() -> float:
        async with Node(config) as node:
            await (await node.stream("sensors")).push(b"x")
            started = time.monotonic()
        return time.monotonic() - started

    return asyncio.run(run())


def test_spans_leave_for_the_collector(tmp_path: Path) -> None:
    with Collector() as collector:
        push_one(exporting(tmp_path, collector.endpoint))
    found: dict[str, dict[str, str]] = {}
    for body in collector.bodies:
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        for resource in request.resource_spans:
            about = {one.key: one.value.string_value for one in resource.resource.attributes}
            for scope in resource.scope_spans:
                found.update((span.name, about) for span in scope.spans)
    assert set(found) == {"push sensors", "commit sensors"}
    assert found["push sensors"]["service.name"] == "test"
    assert found["push sensors"]["service.namespace"] == "rillnode"


def test_a_collector_that_is_away_delays_a_stop_by_seconds_only(tmp_path: Path) -> None:
    assert push_one(exporting(tmp_path, "http://127.0.0.1:1")) < 30


def test_without_the_extra_the_node_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hidden(_name: str) -> None:
        return None

    monkeypatch.setattr("rillnode.node.telemetry.telemetry.find_spec", hidden)
    with pytest.raises(ConfigError, match=r"pip install .*\[telemetry\]'`") as raised:
        push_one(exporting(tmp_path, "http://127.0.0.1:1"))
    assert raised.value.code == "plugin.extra"


def test_a_node_without_spans_imports_nothing_of_them(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from nodes import node_config\n"
        "from rillnode.node.runtime import Node\n"
        "async def run():\n"
        f"    async with Node(node_config(Path({str(tmp_path)!r}))) as node:\n"
        "        await (await node.stream('s')).push(b'x')\n"
        "asyncio.run(run())\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    assert finished("-c", script).stdout.strip() == b"[]"
