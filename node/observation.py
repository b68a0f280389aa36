"""Defines readiness checks and the status document."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from typing import Any, Final, Literal, TypeVar

import msgspec

import rillnode
from rillnode.actors.core.groups.registry import GroupView
from rillnode.actors.core.links.connection import PeerContext
from rillnode.actors.core.queues.names import Gauge
from rillnode.actors.core.router import Router
from rillnode.actors.core.streams.context import StreamContext
from rillnode.actors.core.streams.subscribers import Subscribers
from rillnode.actors.engine.system import AsyncioSystemBase, Cell
from rillnode.actors.log import LogStore, StoreHealth
from rillnode.node.config import Config
from rillnode.node.http.history import Totals
from rillnode.node.peers import Peers
from rillnode.node.plugin import Check, Listening, PlugIn
from rillnode.node.plugins import PlugIns
from rillnode.transports.groups import LinkGroup

P = TypeVar("P", bound=PlugIn)

State = Literal["new", "starting", "ready", "draining", "stopped"]
LostKind = Literal["actor", "thread"]

LINKS_LISTED_MAX: Final = 200
"""Links in one document. Own choice: what people look through."""

GROUPS_LISTED_MAX: Final = 100
MEMBERS_LISTED_MAX: Final = 100
"""Likewise groups of consumers, and members of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a node that are looked at.

    Attributes:
        links: the bound listeners by name; filled while the node starts.
    """

    links: Mapping[str, Listening]
    peers: Peers
    plug_ins: PlugIns


@dataclass(frozen=True, slots=True)
class Lost:
    """A part of the node that has failed for good: it is back when the node is started anew.

    Attributes:
        kind: `actor` or `thread`.
        name: the actor's class, or the thread's name.
        error: what it failed with, last.
        at: when that was, UTC.
        times: how many such parts have failed since the node was made.
    """

    kind: LostKind
    name: str
    error: str
    at: str
    times: int

    @property
    def text(self) -> str:
        """What has happened, and what to do, for people."""
        how = "was given up" if self.kind == "actor" else "has ended"
        return (
            f"the {self.kind} {self.name} {how} at {self.at} ({self.error}): see the log, and "
            "start the node anew"
        )


def group_row(view: GroupView) -> dict[str, Any]:
    """A group of consumers with its members, those that have come first where there are many."""
    held = view.state.held()
    members = [
        {"id": one.id[:8], "principal": one.principal, "partitions": held.get(one.id, [])}
        for one in view.state.members[:MEMBERS_LISTED_MAX]
    ]
    return {
        "name": view.name,
        "stream": view.stream,
        "generation": view.state.generation,
        "members_count": len(view.state.members),
        "members": members,
    }


class Observation:
    """A node's state, for people and machines; all calls but `lose` on the loop's thread.

    Attributes:
        state: where the node is in its life; the node sets it.
        health: what the store last told of itself; the node sets it.
    """

    def __init__(self, config: Config, identity: str, parts: Parts) -> None:
        self.config = config
        self.identity = identity
        self.parts = parts
        self.state: State = "new"
        self.health = StoreHealth(writable=False, reason="the store is not open yet")
        self._started_at = time.monotonic()
        self._streams: StreamContext | None = None
        self._connections: PeerContext | None = None
        self._lost: dict[str, Lost] = {}

    def begin(self, system: AsyncioSystemBase, router: Router, store: LogStore) -> None:
        """Take what the node makes at its start; before anything else is asked but `state`."""
        self.system = system
        self.router = router
        self.store = store

    def spawned(self, streams: StreamContext, connections: PeerContext) -> None:
        """Take what the node's actors share."""
        self._streams = streams
        self._connections = connections

    def lose(self, kind: LostKind, name: str, error: BaseException, at_ms: int) -> Lost:
        """Note that a part has failed for good, at so many ms since 1970; from any thread."""
        before = self._lost.get(name)
        said = f"{type(error).__name__}: {error}".partition("\n")[0].removesuffix(": ")
        at = datetime.fromtimestamp(at_ms // 1000, UTC).isoformat().replace("+00:00", "Z")
        lost = self._lost[name] = Lost(kind, name, said, at, before.times + 1 if before else 1)
        return lost

    @property
    def lost(self) -> Sequence[Lost]:
        """Parts that have failed for good, by class or thread."""
        return tuple(self._lost.values())

    @property
    def subscribers(self) -> Subscribers:
        """How many follow each log."""
        return Subscribers() if self._streams is None else self._streams.subscribers

    @property
    def queues(self) -> Sequence[Gauge]:
        """The work queues in use, as they stood when something of them was last written."""
        return () if self._streams is None else tuple(self._streams.queues.gauges.values())

    @property
    def consumer_groups(self) -> Sequence[GroupView]:
        """The groups of consumers that have members here, the first of them where there are many.

        A name that single consumers use is none.
        """
        views = () if self._streams is None else self._streams.groups
        return tuple(islice((view for view in views if view.state.shared), GROUPS_LISTED_MAX))

    @property
    def members(self) -> int:
        """How many members of groups, and single consumers, have links here."""
        return 0 if self._streams is None else self._streams.groups.links.total()

    @property
    def uptime_seconds(self) -> float:
        """Time since the node was made."""
        return time.monotonic() - self._started_at

    @property
    def malformed(self) -> Mapping[tuple[str, str], int]:
        """Messages that could not be decoded, by protocol and error code."""
        return {} if self._connections is None else self._connections.malformed

    def groups(self) -> Iterator[LinkGroup]:
        """The links by where they come from: listeners, then what is dialled."""
        for listener in self.parts.links.values():
            if listener.group is not None:
                yield listener.group
        yield from self.parts.peers.groups()

    @property
    def connections(self) -> Sequence[Cell]:
        """The actors of links that carry Ockam's messages."""
        return () if self._connections is None else tuple(self._connections.open)

    @property
    def shared_log(self) -> Mapping[str, Any] | None:
        """The log that the node shares with others; None where it has its store alone."""
        return self.store.describe() or None

    def totals(self) -> Totals:
        """What the node did since its start."""
        appended = None if self._streams is None else self._streams.appended
        meters = [(group.total(), len(group)) for group in self.groups()]
        return Totals(
            entries=0 if appended is None else appended.entries,
            entry_bytes=0 if appended is None else appended.block_bytes,
            messages_in=sum(meter.messages_in for meter, _ in meters),
            messages_out=sum(meter.messages_out for meter, _ in meters),
            bytes_in=sum(meter.bytes_in for meter, _ in meters),
            bytes_out=sum(meter.bytes_out for meter, _ in meters),
            undelivered=self.router.undelivered.total(),
            links=sum(count for _, count in meters),
        )

    def links(self) -> dict[str, Any]:
        """The open links and the newest failures, as a JSON document."""
        rows: list[dict[str, Any]] = []
        failed: list[dict[str, Any]] = []
        count = 0
        routes = self._routes_of_links()
        for group in self.groups():
            count += len(group)
            for view in group.views():
                if len(rows) == LINKS_LISTED_MAX:
                    break
                route = routes.get((view.protocol, view.remote))
                rows.append({**msgspec.to_builtins(view), "route": route})
            now = group.clock.monotonic()
            failed += [
                {
                    "protocol": group.transport,
                    "remote": one.remote,
                    "code": one.code,
                    "text": one.text,
                    "seconds_ago": round(now - one.at, 1),
                }
                for one in group.failures
            ]
        failed.sort(key=lambda one: one["seconds_ago"])
        return {"links": rows, "count": count, "listed_max": LINKS_LISTED_MAX, "failed": failed}

    def _routes_of_links(self) -> dict[tuple[str, str], str]:
        """The routes of the oldest links, of which those are that are listed."""
        found: dict[tuple[str, str], str] = {}
        plug_ins = self.parts.plug_ins.ask("links", lambda one: one.links)
        for cell in chain(islice(self.connections, LINKS_LISTED_MAX), plug_ins):
            instance: Any = cell.instance
            link = getattr(instance, "link", None)
            if link is not None:
                found[link.info.transport, link.info.remote] = instance.route.decode()
            if len(found) >= 2 * LINKS_LISTED_MAX:
                break
        return found

    def actors(self) -> dict[str, Any]:
        """Who supervises whom, class by class: each after its parent, as a JSON document."""
        stats = self.system.stats()
        children: dict[str | None, list[str]] = {}
        for name, kind in sorted(stats.items(), key=lambda item: item[0].rpartition(".")[2]):
            has_parent = kind.parent in stats and kind.parent != name
            children.setdefault(kind.parent if has_parent else None, []).append(name)
        rows: list[dict[str, Any]] = []

        def add(name: str, depth: int) -> None:
            row = {"class": name.rpartition(".")[2], "module": name.rpartition(".")[0]}
            rows.append({**row, "depth": depth, **msgspec.to_builtins(stats[name])})
            for child in children.pop(name, ()):
                add(child, depth + 1)

        for root in children.pop(None, []):
            add(root, 0)
        return {"actors": rows}

    def checks(self) -> list[Check]:
        """What must be right for the node to be ready."""
        state = self.state
        reasons = {"draining": "the node is stopping", "starting": "the node is starting"}
        checks = [
            Check("node", state == "ready", reasons.get(state, state)),
            self._store_check(),
        ]
        actors = [lost.text for lost in self.lost if lost.kind == "actor"]
        threads = [lost.text for lost in self.lost if lost.kind == "thread"]
        for name, texts in (("actors", actors), ("threads", threads)):
            if texts:
                checks.append(Check(name, False, "; ".join(texts)))
        return [*checks, *self.parts.plug_ins.ask("checks", lambda one: one.checks(), _unknown)]

    def _store_check(self) -> Check:
        """Whether writes are taken, as far as is known; while they wait for servers, not."""
        log = self.shared_log if self.health.writable else None
        if log is None or log.get("connected", True):
            return Check("store", self.health.writable, self.health.reason)
        reason = log.get("reason", "")
        return Check("store", False, f"the servers of the log are out of reach: {reason}")

    def status(self) -> dict[str, Any]:
        """How the node is, as a JSON document."""
        parts = self.parts
        return {
            "name": self.config.name,
            "identity": self.identity,
            "version": rillnode.__version__,
            "state": self.state,
            "uptime_seconds": round(self.uptime_seconds, 1),
            "checks": [msgspec.to_builtins(check) for check in self.checks()],
            "listeners": {
                name: {
                    "address": listener.address,
                    "links": listener.link_count,
                    "errors": dict(listener.counters),
                }
                for name, listener in parts.links.items()
            },
            "store": {
                "writable": self.health.writable,
                "reason": self.health.reason,
                "pending_bytes": self.store.pending_bytes,
                "log": self.shared_log,
            },
            "queues": [msgspec.to_builtins(one) for one in self.queues],
            "undelivered": dict(self.router.undelivered),
            "groups": [group_row(view) for view in self.consumer_groups],
            "lost": [asdict(lost) for lost in self.lost],
            "actors": msgspec.to_builtins(self.system.stats()),
            "peers": parts.peers.statuses(),
            **self.of_plug_ins(),
        }

    def of_plug_ins(self) -> dict[str, Any]:
        """What plug-ins add to the status document."""
        # As JSON has it, here already: else what cannot be told would end all of the document.
        asked = self.parts.plug_ins.ask("status", lambda one: _as_json(one.status()).items())
        return dict(asked)

    def plug_in(self, kind: type[P]) -> P | None:
        """The plug-in of a class, where the node has it."""
        return next((one for one in self.parts.plug_ins if isinstance(one, kind)), None)

    def status_document(self) -> bytes:
        """`status`, as JSON text."""
        return msgspec.json.encode(self.status())


def _unknown(plug_in: PlugIn, error: Exception) -> Iterator[Check]:
    """What stands in place of checks that could not be made."""
    yield Check(plug_in.host.name, False, f"its checks have failed ({error!r}): see the log")


def _as_json(status: Mapping[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(status, str_keys=True)
    return shown
