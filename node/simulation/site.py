"""The status page over simulated nodes: the same page, with a choice of the node and a picture.

There are two threads. HTTP is served in one of its own. All that is shown is read in the world's,
between two moments of virtual time (see `Watch`), so that who watches changes nothing.
"""

import asyncio
import math
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

from aiohttp import web

from rillnode.actors.log import ReadOperation
from rillnode.codecs.errors import ConfigError, RequestError
from rillnode.node.config import HttpListener, ListenAddress
from rillnode.node.http.answers import HEADERS, answered, json_answer
from rillnode.node.http.browsing import entries_document, hour, lines, sent_lines
from rillnode.node.http.documents import Documents, shown_of
from rillnode.node.http.events import Events
from rillnode.node.http.gate import Gate
from rillnode.node.http.history import PERIOD_SECONDS, History
from rillnode.node.http.page import Page
from rillnode.node.http.recent import WARNINGS_MAX, RecentWarnings
from rillnode.node.http.streams import Streams, View, view_of
from rillnode.node.runtime import Node
from rillnode.node.simulated.history import EPOCH_MS
from rillnode.node.simulation.loop import Life
from rillnode.node.simulation.results import Result
from rillnode.node.simulation.run import Run
from rillnode.node.simulation.world import Machine, NodeMachine, World
from rillnode.transports.web_server import listen_web

T = TypeVar("T")
OperationT = TypeVar("OperationT", bound=ReadOperation)

SAMPLED_NODES_MAX: Final = 256
"""Nodes whose last minutes are remembered before anybody looks at them. Own choice."""

PATHS: Final = {
    "/": "the status page of one node and the network",
    "/v1": "this list",
    "/v1/network": "hosts, connections, faults, and how the run goes",
    "/v1/{document}?node=n0": (
        "overview, history, streams, consumers, queues, links, peers, actors, sinks, warnings"
    ),
    "/v1/streams/{name}?node=n0": "one stream with its partitions and consumers",
    "/v1/streams/{name}/history?node=n0": "entries and bytes of the last virtual hour",
    "/v1/streams/{name}/entries?node=n0": "its entries, as of a node",
    "/v1/streams/{name}/lines?node=n0": "the same with all of their data, as lines of JSON",
    "/v1/streams/{name}/tail?node=n0": "what comes to it, as server-sent events",
    "/v1/events?node=n0": "the documents as server-sent events, every second",
}

_OF_STREAMS: Final = ("streams", "consumers")
"""Documents that are read from the store, and can be waited for."""


BIND_SECONDS: Final = 10.0

NEVER: Final = float("inf")


class Watch:
    """Takes from other threads what is to be looked at.

    Args:
        speed: virtual seconds that pass in a second at most; None: as many as there can be.
        on_moment: called with each new time before the world goes on.
    """

    def __init__(
        self, speed: float | None = None, on_moment: Callable[[float], object] | None = None
    ) -> None:
        self._speed = speed
        self._on_moment = on_moment
        self._asked: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._started: tuple[float, float] | None = None

    def ask(self, look: Callable[[], T]) -> "Future[T]":
        """Have the world's thread call `look` soon; from any thread."""
        future: Future[T] = Future()
        self._asked.put((look, future))
        return future

    def jump(self, then: float) -> None:
        """The world goes on at `then`: do what was asked, and wait where it goes too fast."""
        if self._on_moment is not None:
            self._on_moment(then)
        until = 0.0
        if self._speed is not None:
            now = time.monotonic()
            begun, first = self._started = self._started or (now, then)
            until = begun + (then - first) / self._speed
        self.answer(until)

    def answer(self, until: float) -> None:
        """Do what is asked until a monotonic time, and what has been asked already in any case."""
        while True:
            left = until - time.monotonic()
            try:
                look, future = (
                    self._asked.get(timeout=min(max(left, 0.0), 1.0))
                    if left > 0
                    else (self._asked.get_nowait())
                )
            except queue.Empty:
                if left <= 0:
                    return
                continue
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(look())
            except Exception as error:  # whatever it is, it is for who asked
                future.set_exception(error)


class ShownNode:
    """A node as the page shows it; all but the streams in the world's thread.

    Args:
        run: the run that it is part of.
        machine: where it runs.
        watch: has the world's thread look.
    """

    def __init__(self, run: Run, machine: NodeMachine, watch: Watch) -> None:
        self._run = run
        self._machine = machine
        self._watch = watch
        self._node: Node | None = None
        self._documents: Documents | None = None
        self._streams: SimulatedStreams | None = None
        self._history = History()
        self._since = 0.0
        self._kept: dict[str, Any] | None = None

    def sample(self, now: float) -> None:
        """Remember what the node has done until now, in virtual seconds."""
        if self._present() is not None and self._kept is None:
            self._history.sample(now, self._machine.node.observed.totals())

    def keep(self) -> None:
        """Go on showing what there is now, for the node is about to stop; its disk stays."""
        if self._present() is not None:
            names = [name for name in (*_names(), "history") if name not in _OF_STREAMS]
            self._kept = {name: self._made(name) for name in names}
            self._kept["overview"]["state"] = "over"

    def end(self) -> None:
        """The run is over: nothing comes any more."""
        if self._streams is not None:
            self._streams.end()

    def document(self, name: str) -> dict[str, Any]:
        """One document.

        Raises:
            RequestError: the node has not started yet.
        """
        if self._kept is not None:
            return dict(self._kept[name])
        if self._present() is None:
            raise RequestError("node.state", "The node has not started yet")
        return self._made(name)

    def streams(self) -> Streams:
        """The node's streams, for the thread that serves HTTP; raises as `document` does."""
        if self._present() is None or self._streams is None:
            raise RequestError("node.state", "The node has not started yet")
        return self._streams

    def _present(self) -> Documents | None:
        """The documents of the node of the newest process."""
        machine = self._machine
        if machine.started and machine.node is not self._node and self._kept is None:
            node = self._node = machine.node
            self._history = History()
            self._since = self._run.world.now
            self._streams = SimulatedStreams(node, machine, self._run, self._watch)
            self._documents = Documents(
                node.observed, self._streams, self._history, RecentWarnings(), "open"
            )
        return self._documents

    def _made(self, name: str) -> dict[str, Any]:
        assert self._documents is not None
        if name == "warnings":
            return self._violations()
        made: Callable[[], Awaitable[dict[str, Any]]]
        made = self._documents.history if name == "history" else self._documents.live()[name]
        found = dict(finished(made()))
        if name == "overview":
            state = state_of(self._machine)
            found["state"] = self._machine.node.observed.state if state == "up" else state
            up = self._run.world.now - self._since
            found["uptime_seconds"] = round(up, 1)
            found["simulation"] = {"node": self._machine.name, "nodes": list(self._run.world.nodes)}
        return found

    def _violations(self) -> dict[str, Any]:
        """The rules that were broken, in the place of the log."""
        rows = [
            {
                "time": f"{_clock(one.at)}",
                "level": "error",
                "logger": "invariants",
                "event": one.rule,
                "text": one.text,
            }
            for one in self._run.history.violations[-WARNINGS_MAX:]
        ]
        return {"warnings": rows[::-1], "kept_max": WARNINGS_MAX}


class SimulatedStreams(Streams):
    """The streams of a simulated node as they stand on its disk, whether it runs or not."""

    def __init__(self, node: Node, machine: NodeMachine, run: Run, watch: Watch) -> None:
        limit = node.config.metrics.streams_max
        super().__init__(node.observed, limit, lambda: self._over or run.world.now)
        self._over = 0.0
        self._machine = machine
        self._watch = watch

    def end(self) -> None:
        """The virtual clock stands still: what was listed before is too old from now on."""
        self._over = math.inf

    async def _read(self, operation: OperationT) -> OperationT:
        disk = self._machine.disk
        await asyncio.wrap_future(self._watch.ask(lambda: disk.look(operation)))
        if operation.error is not None:
            raise RequestError(operation.error.code, operation.error.text)
        return operation


class SimulationSite:
    """All that is served of one run.

    Args:
        run: the run; it must not have begun.
        speed: virtual seconds that pass in a second at most; None: as many as there can be.
    """

    def __init__(self, run: Run, speed: float | None) -> None:
        self._run = run
        self.watch = Watch(speed, self._on_moment)
        self._shown = {
            name: ShownNode(run, machine, self.watch) for name, machine in run.world.nodes.items()
        }
        self._sampled = list(self._shown.values())[:SAMPLED_NODES_MAX]
        self._sample_at = 0.0
        self._network: dict[str, Any] | None = None
        self._gate = Gate(HttpListener(listen="127.0.0.1:0"))
        self._page = Page()
        self._events = Events()
        run.world.scheduler.on_jump = self.watch.jump
        run.on_settled = self._keep

    # In the world's thread -------------------------------------------------------------------

    def _on_moment(self, now: float) -> None:
        if now >= self._sample_at:
            self._sample_at = now + PERIOD_SECONDS
            for shown in self._sampled:
                shown.sample(now)

    def _keep(self) -> None:
        self._network = self._network_now()
        for shown in self._shown.values():
            shown.keep()

    def ended(self, result: Result) -> None:
        """The run is over: what was kept is shown from now on."""
        self._run.world.scheduler.on_jump = None
        for shown in self._shown.values():
            shown.end()
        found = self._network or self._network_now()
        found |= {
            "running": False,
            "at": result.virtual_seconds,
            "trace_hash": result.trace_hash,
            "violations": len(result.violations),
        }
        self._network = found

    def network(self) -> dict[str, Any]:
        """The network, and how the run goes."""
        return self._network or self._network_now()

    def _network_now(self) -> dict[str, Any]:
        run, history = self._run, self._run.history
        homes = {name: program.node for name, program in run.programs.items()}
        return {
            **network_view(run.world, homes),
            "scenario": run.scenario.name,
            "seed": run.seed,
            "running": True,
            "at": run.world.now,
            "trace_hash": history.trace_hash,
            "pushed": len(history.pushes),
            "violations": len(history.violations),
            "faults": [
                {"kind": fault.kind, "host": fault.host, "other": fault.other}
                for fault in run.active_faults
            ],
        }

    # In the thread that serves HTTP ----------------------------------------------------------

    def app(self) -> web.Application:
        """The application, to be served by any aiohttp runner."""
        app = web.Application(middlewares=[answered])
        app.on_shutdown.append(self._end)
        get = app.router.add_get
        get("/", self._index)
        get("/v1", self._list)
        get("/v1/events", self._follow, allow_head=False)
        get("/v1/network", self._tell_network)
        for name in (*_names(), "history"):
            get(f"/v1/{name}", partial(self._tell, name))
        get("/v1/streams/{name}", self._stream)
        get("/v1/streams/{name}/history", self._hour)
        get("/v1/streams/{name}/entries", self._entries)
        get("/v1/streams/{name}/lines", self._lines, allow_head=False)
        get("/v1/streams/{name}/tail", self._tail, allow_head=False)
        return app

    async def _end(self, _: web.Application) -> None:
        await self._events.close()

    async def _ask(self, look: Callable[[], T]) -> T:
        return await asyncio.wrap_future(self.watch.ask(look))

    def _chosen(self, request: web.Request) -> str:
        """The name of the node that a request is about."""
        name = request.query.get("node") or next(iter(self._shown))
        if name not in self._shown:
            raise RequestError("http.path", "There is no such node: /v1/network lists all hosts")
        return name

    async def _document(self, node: str, name: str, view: View | None = None) -> dict[str, Any]:
        shown = self._shown[node]
        if name == "network":
            return await self._ask(self.network)
        if name in _OF_STREAMS:
            streams = await self._ask(shown.streams)
            return await (streams.document(view) if name == "streams" else streams.consumers())
        return await self._ask(lambda: shown.document(name))

    async def _list(self, _: web.Request) -> web.Response:
        return json_answer([{"path": path, "text": text} for path, text in PATHS.items()])

    async def _tell_network(self, _: web.Request) -> web.Response:
        return json_answer(await self._ask(self.network))

    async def _tell(self, name: str, request: web.Request) -> web.Response:
        view = view_of(request.query) if name == "streams" else None
        return json_answer(await self._document(self._chosen(request), name, view))

    async def _index(self, request: web.Request) -> web.Response:
        node = self._chosen(request)
        documents: dict[str, dict[str, Any]] = {}
        for name in _names():
            try:
                documents[name] = await self._document(node, name)
            except RequestError:
                continue
        headers = {**HEADERS, "Content-Security-Policy": self._page.policy}
        text = self._page.html(documents)
        return web.Response(text=text, content_type="text/html", headers=headers)

    async def _follow(self, request: web.Request) -> web.StreamResponse:
        node = self._chosen(request)
        names = ("history", *_names(), "network")
        makers = {name: partial(self._document, node, name) for name in names}

        async def stream(name: str) -> dict[str, Any]:
            return await (await self._ask(self._shown[node].streams)).stream(name)

        return await self._events.serve(request, shown_of(request.query, makers, stream, node))

    async def _streams(self, request: web.Request) -> Streams:
        self._gate.check(request)
        return await self._ask(self._shown[self._chosen(request)].streams)

    async def _stream(self, request: web.Request) -> web.Response:
        streams = await self._streams(request)
        return json_answer(await streams.stream(request.match_info["name"]))

    async def _entries(self, request: web.Request) -> web.Response:
        streams = await self._streams(request)
        name = request.match_info["name"]
        return json_answer(await entries_document(streams, name, request.query, self._now_ms()))

    async def _lines(self, request: web.Request) -> web.StreamResponse:
        streams = await self._streams(request)
        name = request.match_info["name"]
        return await sent_lines(request, lines(streams, name, request.query, self._now_ms()))

    async def _hour(self, request: web.Request) -> web.Response:
        streams = await self._streams(request)
        return json_answer(await hour(streams, request.match_info["name"], self._now_ms()))

    async def _tail(self, request: web.Request) -> web.StreamResponse:
        streams = await self._streams(request)
        return await self._events.tail(request, streams, request.match_info["name"])

    def _now_ms(self) -> int:
        return EPOCH_MS + int(self._run.world.now * 1_000)


def finished(made: Awaitable[T]) -> T:
    """The result of what has nothing to wait for."""
    steps = made.__await__()
    try:
        next(steps)
    except StopIteration as done:
        result: T = done.value
        return result
    raise RuntimeError("what is shown of a simulated node cannot be waited for")


def _names() -> tuple[str, ...]:
    """The documents that the page follows."""
    return (
        "overview",
        "streams",
        "consumers",
        "queues",
        "links",
        "peers",
        "actors",
        "sinks",
        "tables",
        "warnings",
    )


def _clock(at: float) -> str:
    """Virtual seconds as a time of the first day there is."""
    minutes, seconds = divmod(at, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"1970-01-01T{hours:02}:{minutes:02}:{seconds:06.3f}Z"


HOSTS_MAX: Final = 128
"""Hosts in one picture. Own choice: as many as can be told apart."""

WAYS_MAX: Final = 2_000


def state_of(machine: Machine) -> str:
    """How a machine is: `up`, `starting`, `paused`, `killed` or `off` (no power)."""
    if not machine.runs:
        return "killed" if machine.host.up else "off"
    if machine.loop.life is Life.PAUSED:
        return "paused"
    if isinstance(machine, NodeMachine) and not machine.ready:
        return "starting"
    return "up"


def network_view(world: World, homes: Mapping[str, str]) -> dict[str, Any]:
    """The network now, as a JSON document; `homes` are the nodes of clients, by their names."""
    machines = list(world.machines.values())[:HOSTS_MAX]
    names = {machine.name for machine in machines}
    groups = _groups(world, sorted(names))
    ways = [
        [source, target, count]
        for (source, target), count in world.network.connections().items()
        if source in names and target in names
    ]
    cut = [list(way) for way in world.network.cut() if names.issuperset(way)]
    return {
        "hosts": [
            {
                "name": machine.name,
                "kind": "node" if isinstance(machine, NodeMachine) else "client",
                "state": state_of(machine),
                "home": homes.get(machine.name),
                "group": groups[machine.name],
            }
            for machine in machines
        ],
        "links": ways[:WAYS_MAX],
        "cut": cut[:WAYS_MAX],
        "more": len(world.machines) > HOSTS_MAX,
    }


def _groups(world: World, names: list[str]) -> dict[str, int]:
    """Numbers of the parts that the network has fallen into: 0 is the largest."""
    apart = set(world.network.cut())
    left, parts = set(names), list[list[str]]()
    while left:
        reached = [min(left)]
        left.remove(reached[0])
        for one in reached:
            near = [
                other for other in sorted(left)
                if (one, other) not in apart and (other, one) not in apart
            ]  # fmt: skip
            left.difference_update(near)
            reached += near
        parts.append(reached)
    parts.sort(key=len, reverse=True)
    return {name: number for number, part in enumerate(parts) for name in part}


class ServedRun:
    """A run whose page is served.

    Attributes:
        url: where the page is.
    """

    def __init__(self, run: Run, site: SimulationSite, url: str) -> None:
        self.url = url
        self._run = run
        self._site = site

    def run(self) -> Result:
        """Run it; whoever watches sees it happen."""
        result = self._run.run()
        self._site.ended(result)
        return result

    def answer(self, seconds: float) -> None:
        """Answer who looks, for this long."""
        self._site.watch.answer(time.monotonic() + seconds)

    def stay(self) -> None:
        """Show how it ended, until interrupted."""
        try:
            self.answer(NEVER)
        except KeyboardInterrupt:
            return


@contextmanager
def served(run: Run, address: ListenAddress, speed: float | None) -> Generator[ServedRun]:
    """Serve a run's page.

    Args:
        run: it must not have begun.
        address: what is bound; of this machine only, for nobody is asked who he is.
        speed: virtual seconds that pass in a second at most; None: as many as there can be.

    Raises:
        ConfigError: the address is not a loopback address.
        TransportError: it cannot be bound.
    """
    if not address.loopback:
        text = f"--http: {address} is not of this machine alone: take 127.0.0.1:{address.port}"
        raise ConfigError("sim.http", text)
    site = SimulationSite(run, speed)
    bound: Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        try:
            server = await listen_web(site.app(), *address)
        except BaseException as error:
            bound.set_exception(error)
            return
        over = asyncio.Event()
        bound.set_result((server.address, asyncio.get_running_loop(), over))
        await over.wait()
        await server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="page", daemon=True)
    thread.start()
    where, loop, over = bound.result(BIND_SECONDS)
    try:
        yield ServedRun(run, site, f"http://{where}/")
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(BIND_SECONDS)
