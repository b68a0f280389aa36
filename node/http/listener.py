"""The `http` listener's paths, put together and bound."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from aiohttp import web

from rillnode.codecs.errors import RequestError
from rillnode.node.client.client import Client
from rillnode.node.config import HttpListener
from rillnode.node.http.answers import HEADERS, answered, json_answer
from rillnode.node.http.browsing import entries_document, hour, lines, sent_lines
from rillnode.node.http.console import Console
from rillnode.node.http.documents import Documents, shown_of
from rillnode.node.http.events import Events
from rillnode.node.http.gate import Gate
from rillnode.node.http.health import add_health
from rillnode.node.http.history import PERIOD_SECONDS, History
from rillnode.node.http.page import Page
from rillnode.node.http.recent import RecentWarnings
from rillnode.node.http.requests import json_body
from rillnode.node.http.routes import Routes, probed
from rillnode.node.http.streams import LISTED_MAX, Streams, view_of
from rillnode.node.metrics import CONTENT_TYPE, NodeMetrics
from rillnode.node.observation import Observation
from rillnode.node.plugin import Asked, Document
from rillnode.node.tls import tls_context
from rillnode.transports.web_server import WebServer, listen_web


class Path(NamedTuple):
    """A path, what it tells, and whether that is data (see `Gate`)."""

    path: str
    text: str
    is_data: bool = False


PATHS: Final = (
    Path("/", "the status page"),
    Path("/livez", "whether the node is alive"),
    Path("/readyz", "whether the node is ready, and why not; `?verbose` lists all checks"),
    Path("/healthz", "the same as `/readyz`"),
    Path("/metrics", "metrics for Prometheus"),
    Path("/v1", "this list"),
    Path("/v1/overview", "who the node is, how it is, and what it does per second"),
    Path("/v1/history", "the last five minutes, second by second"),
    Path(
        "/v1/streams",
        "streams with rates, subscribers and the worst lag of their consumers: those whose names "
        "contain `?search=`, sorted by `?sort=` (name, rate, lag, bytes, entries or age; "
        "`&descending=true`), `?limit=` of them (100, at most 500) from `?offset=` on",
    ),
    Path("/v1/streams/{name}", "one stream with its partitions and consumers"),
    Path(
        "/v1/streams/{name}/history",
        "entries and bytes that came to a stream in the last hour, in equal parts of it",
    ),
    Path(
        "/v1/streams/{name}/entries",
        "entries of `?partition=`: from `?index=` or `?since=` on (how long ago, as `1h`, or ISO "
        "8601 with its zone), or those "
        "before the index `?before=`, or else the last; at most `?limit=`; only what has the "
        "`?text=`, the `?key=`, and meets the condition `?where=`, out of 10,000. `before` and "
        "`reached` tell where to go on",
        is_data=True,
    ),
    Path(
        "/v1/streams/{name}/lines",
        "entries with all of their data as lines of JSON: from `?index=` or `?since=` on, filtered "
        "in the same way, at most 10,000",
        is_data=True,
    ),
    Path(
        "/v1/streams/{name}/tail",
        "what comes to a stream, as server-sent events `entries`, filtered in the same way",
        is_data=True,
    ),
    Path(
        "/v1/consumers",
        "saved positions of all streams, those with the largest lag first, and groups of consumers "
        "with their members",
    ),
    Path("/v1/links", "open links, and those that failed last"),
    Path("/v1/queues", "work queues in use: what waits, is with workers, and is dead"),
    Path("/v1/peers", "nodes that this one sends to"),
    Path(
        "/v1/actors",
        "the supervision tree, class by class; with `?pattern=*` what has a route, 250 to a page: "
        "`pattern` of address or name, `kind`, `after`, which is `next_after` of the page before",
    ),
    Path("/v1/sinks", "sinks, their jobs and newest batches"),
    Path("/v1/tables", "what plug-ins add to the status page: tables with their columns and rows"),
    Path("/v1/warnings", "the newest warnings of the log"),
    Path("/v1/status", "what `rillnode status` shows"),
    Path("/v1/config", "the configuration in effect, without secrets", is_data=True),
    Path(
        "/v1/events",
        "documents as server-sent events, every second that they change in: those that `?show=` "
        "names, as in `overview,streams`, else most; `streams` as of `/v1/streams`; and that of "
        "one `?stream=`",
    ),
    Path(
        "/v1/session",
        "the page's [admin session](../explanation/security.md#the-admin-session), where `[http] "
        'console` allows one: POST `{"ticket": "..."}` begins it, GET tells whose it is, DELETE '
        "ends it",
    ),
    Path(
        "/v1/console",
        'POST: what the page does in an admin session, as `{"do": "create", "stream": '
        '"sensors"}`; `do` is push, create, trim, remove, set_index, run_sink or retry',
    ),
    Path("/v1/route", 'POST `{"route": "peer/core;echo"}`: a route tried hop by hop', is_data=True),
)


class StatusSite:
    """All that the listener serves of one node.

    Args:
        node: what is told of.
        client: what the route probe sends with, once the node is ready.
        table: the listener's configuration.
        console: keeps the admin sessions, where there may be any.

    Raises:
        ConfigError: the token's file cannot be used.
    """

    def __init__(
        self,
        node: Observation,
        client: Callable[[], Client],
        table: HttpListener,
        console: Console | None,
    ) -> None:
        self._node = node
        self._client = client
        self._gate = Gate(table)
        self._console = console
        self._streams = Streams(node, LISTED_MAX)
        self._measured = Streams(node, node.config.metrics.streams_max)
        self._history = History()
        self._warnings = RecentWarnings()
        self._metrics = NodeMetrics(node)
        self._page = Page()
        self._routes = Routes(client)
        self._documents = Documents(
            node, self._streams, self._history, self._warnings, self._gate.terms
        )
        self._events = Events()
        self._probing = asyncio.Lock()
        self._looking = asyncio.Lock()

    def app(self) -> web.Application:
        """The application, to be served by any aiohttp runner."""
        app = web.Application(middlewares=[answered])
        app.cleanup_ctx.append(self._running)
        app.on_shutdown.append(self._end)
        add_health(app, self._node)
        get = app.router.add_get
        get("/", self._index)
        get("/metrics", self._scrape)
        get("/v1", self._list)
        documents = self._documents
        more = {"history": documents.history, "status": documents.status}
        for name, make in {**documents.live(), **more}.items():
            if name not in ("actors", "streams"):
                get(f"/v1/{name}", _answering(make))
        get("/v1/actors", self._actors)
        get("/v1/config", self._config)
        get("/v1/events", self._follow, allow_head=False)
        get("/v1/streams", self._list_streams)
        get("/v1/streams/{name}", self._stream)
        get("/v1/streams/{name}/history", self._hour)
        get("/v1/streams/{name}/entries", self._entries)
        get("/v1/streams/{name}/lines", self._lines, allow_head=False)
        get("/v1/streams/{name}/tail", self._tail, allow_head=False)
        app.router.add_post("/v1/route", self._route)
        for name, one in self._of_plug_ins():
            get(f"/v1/plugins/{name}/{one.path}", partial(self._document, one))
        if self._console is not None:
            self._console.add_to(app)
        return app

    async def _running(self, _: web.Application) -> AsyncIterator[None]:
        self._warnings.start()
        sampling = asyncio.get_running_loop().create_task(self._sample())
        yield
        sampling.cancel()
        self._warnings.stop()

    async def _end(self, _: web.Application) -> None:
        await self._events.close()

    async def _sample(self) -> None:
        while True:
            self._history.sample(time.monotonic(), self._node.totals())
            await asyncio.sleep(PERIOD_SECONDS)

    async def _index(self, _: web.Request) -> web.Response:
        documents: dict[str, Mapping[str, Any]] = {}
        for name, make in self._documents.live().items():
            with suppress(RequestError):
                documents[name] = await make()
                await asyncio.sleep(0)  # each takes a millisecond, as does the page
        headers = {**HEADERS, "Content-Security-Policy": self._page.policy}
        text = self._page.html(documents)
        return web.Response(text=text, content_type="text/html", headers=headers)

    async def _scrape(self, _: web.Request) -> web.Response:
        listed = None
        with suppress(RequestError):  # while it starts or stops, the node has other figures to tell
            listed = await self._measured.listed()
        headers = {**HEADERS, "Content-Type": CONTENT_TYPE}
        return web.Response(body=await self._metrics.text(listed), headers=headers)

    async def _list(self, _: web.Request) -> web.Response:
        brought = [
            Path(f"/v1/plugins/{name}/{one.path}", one.text, one.is_data)
            for name, one in self._of_plug_ins()
        ]
        return json_answer([one._asdict() for one in (*PATHS, *brought)])

    def _of_plug_ins(self) -> Iterator[tuple[str, Document]]:
        """The documents of plug-ins, each with the name of its own."""
        return self._node.parts.plug_ins.ask(
            "documents", lambda one: [(one.host.name, document) for document in one.documents]
        )

    async def _document(self, document: Document, request: web.Request) -> web.Response:
        if document.is_data:
            self._gate.check(request)
        self._check_ready()
        query: dict[str, str] = {}
        for key, text in request.query.items():
            query.setdefault(key, text)
        return json_answer(await document.answer(Asked(names=request.match_info, query=query)))

    def _check_ready(self) -> None:
        if self._node.state != "ready":
            raise RequestError("node.state", f"The node is {self._node.state}")

    async def _actors(self, request: web.Request) -> web.Response:
        if not request.query:
            return json_answer(await self._documents.actors())
        self._check_ready()
        return json_answer(await self._routes.document(request))

    async def _config(self, request: web.Request) -> web.Response:
        self._gate.check(request)
        return json_answer(await self._documents.config())

    async def _follow(self, request: web.Request) -> web.StreamResponse:
        shown = shown_of(request.query, self._documents.live(), self._streams.stream)
        return await self._events.serve(request, shown)

    async def _list_streams(self, request: web.Request) -> web.Response:
        return json_answer(await self._streams.document(view_of(request.query)))

    async def _stream(self, request: web.Request) -> web.Response:
        return json_answer(await self._streams.stream(request.match_info["name"]))

    async def _hour(self, request: web.Request) -> web.Response:
        async with self._looking:
            return json_answer(await hour(self._streams, request.match_info["name"], _now_ms()))

    async def _entries(self, request: web.Request) -> web.Response:
        self._gate.check(request)
        name = request.match_info["name"]
        async with self._looking:
            return json_answer(
                await entries_document(self._streams, name, request.query, _now_ms())
            )

    async def _lines(self, request: web.Request) -> web.StreamResponse:
        self._gate.check(request)
        name = request.match_info["name"]
        found = lines(self._streams, name, request.query, _now_ms())
        return await sent_lines(request, found)

    async def _tail(self, request: web.Request) -> web.StreamResponse:
        self._gate.check(request)
        return await self._events.tail(request, self._streams, request.match_info["name"])

    async def _route(self, request: web.Request) -> web.Response:
        self._gate.check(request)
        text = 'Send {"route": "peer/core;echo"}'
        asked = await json_body(request, dict[str, str], text)
        self._check_ready()
        if self._probing.locked():
            raise RequestError("route.busy", "Another route is being tried")
        async with self._probing:
            return json_answer(await probed(self._client(), asked.get("route", "")))


async def listen_status(
    node: Observation,
    client: Callable[[], Client],
    table: HttpListener,
    console: Console | None,
) -> WebServer:
    """Bind the `http` listener and serve a node's pages.

    Raises:
        ConfigError: the TLS certificate, its key or the token cannot be used.
        TransportError: the address cannot be bound.
    """
    app = StatusSite(node, client, table, console).app()
    return await listen_web(app, *table.address, tls=tls_context(table, "http"))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _answering(make: Callable[[], Awaitable[Any]]) -> Callable[..., Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        return json_answer(await make())

    return answer
