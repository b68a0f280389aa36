"""A node's metrics, in Prometheus' text format.

Everything is counted anyway, as plain numbers; here they are read when somebody asks. Each node
has a registry of its own. A label is never an address, a key or a name that strangers choose
without bound: streams are capped by `[metrics] streams_max`, codes and classes are the program's.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from itertools import accumulate
from typing import Any, Final

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

import rillnode
from rillnode.actors.core.queues.names import Gauge
from rillnode.actors.engine.kinds import TURN_BOUNDS
from rillnode.actors.log import logs_of
from rillnode.node.http.streams import Listed
from rillnode.node.observation import Observation
from rillnode.node.plugin import Described, Sample
from rillnode.node.plugins import every_plug_in
from rillnode.transports.meters import Histogram

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


METRICS: Final = (
    Described("rillnode_build_info", "gauge", ("version",), "1, with the version as label."),
    Described("rillnode_uptime_seconds", "gauge", (), "Time since the node was made."),
    Described("rillnode_ready", "gauge", ("check",), "1 for each check of /readyz that is right."),
    Described(
        "rillnode_messages_total", "counter", ("direction", "protocol"),
        "Messages that links carried, as their protocol frames them.",
    ),
    Described(
        "rillnode_message_bytes_total", "counter", ("direction", "protocol"),
        "Bytes that links carried.",
    ),
    Described("rillnode_entries_appended_total", "counter", (), "Entries that became durable."),
    Described("rillnode_entry_block_bytes_total", "counter", (), "Bytes of their blocks."),
    Described(
        "rillnode_undelivered_messages_total", "counter", ("reason",),
        "Messages that reached nobody.",
    ),
    Described("rillnode_links", "gauge", ("state", "transport"), "Links that there are."),
    Described(
        "rillnode_handshakes_total", "counter", ("result", "transport"),
        "Handshakes, by whether a link came of them: ok or failed.",
    ),
    Described(
        "rillnode_handshake_seconds", "histogram", ("transport",),
        "Time from connected to authenticated.",
    ),
    Described(
        "rillnode_link_failures_total", "counter", ("code", "transport"),
        "Links that failed or were refused, by error code.",
    ),
    Described(
        "rillnode_decode_errors_total", "counter", ("code", "protocol"),
        "Messages of open links that could not be decoded, by error code.",
    ),
    Described(
        "rillnode_protocol_events_total", "counter", ("event", "protocol"),
        "What connections and secure channels of plug-ins' protocols dropped or refused.",
    ),
    Described(
        "rillnode_stream_last_index", "gauge", ("partition", "stream"),
        "Index of the newest entry; -1 before the first.",
    ),
    Described("rillnode_stream_bytes", "gauge", ("stream",), "Data bytes that a stream keeps."),
    Described("rillnode_stream_subscribers", "gauge", ("stream",), "Who follows a stream now."),
    Described(
        "rillnode_subscription_lag_messages", "gauge", ("consumer", "stream"),
        "Entries after a consumer's saved position, all partitions together.",
    ),
    Described(
        "rillnode_queue_depth_entries", "gauge", ("queue", "stream"),
        "Entries that a work queue has not settled, of queues that are in use here.",
    ),
    Described(
        "rillnode_queue_in_flight_entries", "gauge", ("queue", "stream"),
        "Entries of a work queue that are with workers.",
    ),
    Described(
        "rillnode_queue_oldest_seconds", "gauge", ("queue", "stream"),
        "Age of the oldest entry that a work queue has not settled; 0: there is none.",
    ),
    Described(
        "rillnode_queue_dead_entries", "gauge", ("queue", "stream"),
        "Dead letters of a work queue that were not given again.",
    ),
    Described(
        "rillnode_queue_held", "gauge", ("queue", "stream"),
        "1 while a work queue gives no further entries, as too many are open.",
    ),
    Described(
        "rillnode_group_members", "gauge", ("group", "stream"),
        "Members of a group of consumers; those of all nodes that share the log.",
    ),
    Described(
        "rillnode_group_generation", "gauge", ("group", "stream"),
        "Counts changes of a group of consumers: what moves often shows here.",
    ),
    Described("rillnode_actors", "gauge", ("actor",), "Actors of a class."),
    Described(
        "rillnode_actor_mailbox_messages", "gauge", ("actor",), "Messages waiting in mailboxes."
    ),
    Described("rillnode_actor_handled_total", "counter", ("actor",), "Messages handled."),
    Described("rillnode_actor_failures_total", "counter", ("actor",), "Handlers that raised."),
    Described("rillnode_actor_restarts_total", "counter", ("actor",), "Instances made anew."),
    Described(
        "rillnode_actor_slowest_handle_seconds", "gauge", ("actor",),
        "The longest that one message took since the start.",
    ),
    Described(
        "rillnode_actor_handle_seconds", "histogram", ("actor",),
        "Time of one turn of an actor: all messages that waited for it, up to the pump's slice.",
    ),
    Described(
        "rillnode_parts_lost_total", "counter", ("kind", "part"),
        "Threads that ended without being asked, and actors that all need, given up: by name.",
    ),
    Described("rillnode_store_writable", "gauge", (), "1 while the store takes writes."),
    Described("rillnode_store_pending_bytes", "gauge", (), "Bytes submitted, not yet durable."),
    Described(
        "rillnode_store_connected", "gauge", (),
        "1 while there is a connection to the servers of a shared log.",
    ),
    Described("rillnode_store_shards", "gauge", (), "Shards of the shared log; 0: there is none."),
    Described(
        "rillnode_store_view_sequence", "gauge", ("shard",),
        "The last frame of a shard that this node's view has.",
    ),
    Described(
        "rillnode_store_view_frames_behind", "gauge", ("shard",),
        "Frames that are known to be in the log, and not in this node's view yet.",
    ),
    Described(
        "rillnode_store_view_failed", "gauge", ("shard",),
        "1 while a shard takes no writes at this node.",
    ),
    Described(
        "rillnode_store_view_snapshot_seconds", "gauge", ("shard",),
        "Age of the newest snapshot of a shard; nothing before there is one.",
    ),
    Described("rillnode_peer_links", "gauge", ("peer",), "Links open to a configured peer."),
)  # fmt: skip


def every_metric() -> tuple[Described, ...]:
    """The kernel's metrics and those of all plug-ins that are installed, for who describes them."""
    return (*METRICS, *(one for plug_in in every_plug_in() for one in plug_in.metrics))


_OF_VIEWS: Final[dict[str, Callable[[Mapping[str, Any]], float | None]]] = {
    "sequence": lambda view: view["sequence"],
    "frames_behind": lambda view: view["behind"],
    "failed": lambda view: view["error"] is not None,
    "snapshot_seconds": lambda view: view["snapshot_seconds"],
}

_OF_LINKS: Final = (
    "rillnode_messages_total",
    "rillnode_message_bytes_total",
    "rillnode_handshakes_total",
    "rillnode_links",
    "rillnode_link_failures_total",
)

Distribution = tuple[str, Sequence[float], Sequence[int], float]
"""A label, upper bounds, how many values are within each and above all, and the values' sum."""


SLICE_SAMPLES: Final = 250
"""Lines written in one turn of the loop: each takes about 6 us. Own choice."""

_HEAD_LINES: Final = 2
"""What a family begins with: its help and its type."""


class NodeMetrics:
    """The metrics of one node."""

    def __init__(self, node: Observation) -> None:
        self._node = node
        self._process = ProcessCollector(registry=None)

    async def text(self, listed: Listed | None) -> bytes:
        """All metrics now, in the order of `METRICS`; others have their turns in between.

        Args:
            listed: the streams, as far as they could be read.
        """
        values = {
            **self._general(),
            **await self._links(),
            **self._streams(listed),
            **self._queues(),
        }
        values |= self._actors()
        values |= dict(self._node.parts.plug_ins.ask("samples", lambda one: one.samples().items()))
        texts: list[bytes] = []
        # Counts the open files, one by one, in the system's tables.
        process = await asyncio.to_thread(lambda: tuple(self._process.collect()))
        for metric in (*self._families(values), *process):
            for text in _texts(metric):
                texts.append(text)
                await asyncio.sleep(0)
        return b"".join(texts)

    def _families(self, values: Mapping[str, Iterable[Sample]]) -> Iterator[Metric]:
        own = self._node.parts.plug_ins.ask("metrics", lambda one: one.metrics)
        for one in (*METRICS, *own):
            if one.kind == "histogram":
                yield self._histogram(one)
                continue
            family = CounterMetricFamily if one.kind == "counter" else GaugeMetricFamily
            metric = family(one.name, one.text, labels=one.labels)
            for labels, value in values.get(one.name, ()):
                metric.add_metric(labels, value)
            yield metric

    def _general(self) -> dict[str, Iterable[Sample]]:
        node = self._node
        totals = node.totals()
        configured = {table.name for table in node.config.peers}
        log = node.shared_log or {"shards": 0, "views": [], "connected": False}
        counted = [*node.parts.plug_ins.ask("counters", lambda one: one.counters().items())]
        return {
            "rillnode_build_info": [((rillnode.__version__,), 1)],
            "rillnode_uptime_seconds": [((), node.uptime_seconds)],
            "rillnode_ready": [((check.name,), check.ok) for check in node.checks()],
            "rillnode_entries_appended_total": [((), totals.entries)],
            "rillnode_entry_block_bytes_total": [((), totals.entry_bytes)],
            "rillnode_undelivered_messages_total": _by_key(node.router.undelivered),
            "rillnode_protocol_events_total": [
                ((event, protocol), count)
                for protocol, events in counted
                for event, count in events.items()
            ],
            "rillnode_decode_errors_total": [
                ((code, protocol), count) for (protocol, code), count in node.malformed.items()
            ],
            "rillnode_parts_lost_total": [
                ((lost.kind, lost.name), lost.times) for lost in node.lost
            ],
            "rillnode_store_writable": [((), node.health.writable)],
            "rillnode_store_pending_bytes": [((), node.store.pending_bytes)],
            "rillnode_store_connected": [((), bool(log.get("connected", True)))],
            "rillnode_store_shards": [((), log["shards"])],
            **{
                f"rillnode_store_view_{name}": [
                    ((str(view["shard"]),), found)
                    for view in log["views"]
                    if (found := value(view)) is not None
                ]
                for name, value in _OF_VIEWS.items()
            },
            "rillnode_peer_links": [
                ((name,), peer["links"])
                for name, peer in node.parts.peers.statuses().items()
                if name in configured
            ],
        }

    async def _links(self) -> dict[str, list[Sample]]:
        found: dict[str, dict[tuple[str, ...], float]] = {}

        def add(name: str, labels: tuple[str, ...], value: float) -> None:
            samples = found.setdefault(f"rillnode_{name}", {})
            samples[labels] = samples.get(labels, 0) + value  # listener and dialler of one name

        for group in self._node.groups():
            name, total = group.transport, group.total()
            add("messages_total", ("in", name), total.messages_in)
            add("messages_total", ("out", name), total.messages_out)
            add("message_bytes_total", ("in", name), total.bytes_in)
            add("message_bytes_total", ("out", name), total.bytes_out)
            add("handshakes_total", ("ok", name), group.opened)
            add("handshakes_total", ("failed", name), group.unproven)
            states = await group.states()
            for state in ("handshake", "open", "closing"):
                add("links", (state, name), states[state])
            for code, count in group.counters.items():
                add("link_failures_total", (code, name), count)
        return {name: list(found.get(name, {}).items()) for name in _OF_LINKS}

    def _histogram(self, described: Described) -> HistogramMetricFamily:
        metric = HistogramMetricFamily(described.name, described.text, labels=described.labels)
        of_turns = described.name == "rillnode_actor_handle_seconds"
        for label, bounds, counts, total in self._turns() if of_turns else self._handshakes():
            below = accumulate(counts)
            limits = map(str, (*bounds, "+Inf"))
            metric.add_metric((label,), list(zip(limits, below, strict=True)), total)
        return metric

    def _turns(self) -> Iterator[Distribution]:
        for name, kind in self._node.system.stats().items():
            yield name, TURN_BOUNDS, kind.turns, kind.turn_seconds

    def _handshakes(self) -> Iterator[Distribution]:
        merged: dict[str, Histogram] = {}
        for group in self._node.groups():
            one = group.handshakes
            total = merged.setdefault(group.transport, Histogram(one.bounds))
            total.counts = [a + b for a, b in zip(total.counts, one.counts, strict=True)]
            total.total += one.total
        for transport, one in merged.items():
            yield transport, one.bounds, one.counts, one.total

    def _streams(self, listed: Listed | None) -> dict[str, list[Sample]]:
        subscribers = self._node.subscribers
        streams = () if listed is None else listed.streams
        lags: dict[tuple[str, str], float] = {}
        limit = self._node.config.metrics.streams_max
        for one in () if listed is None else listed.consumers:
            labels = (one.key.client_id, one.key.stream)
            if labels in lags or len(lags) < limit:
                lags[labels] = lags.get(labels, 0) + one.lag
        return {
            "rillnode_stream_last_index": [
                ((str(partition), record.name), extent.next_index - 1)
                for record, extents in streams
                for partition, extent in enumerate(extents)
            ],
            "rillnode_stream_bytes": [
                ((record.name,), sum(extent.data_bytes for extent in extents))
                for record, extents in streams
            ],
            "rillnode_stream_subscribers": [
                (
                    (record.name,),
                    sum(subscribers.of(log) for log in logs_of(record.id, record.partitions)),
                )
                for record, _ in streams
            ],
            "rillnode_subscription_lag_messages": list(lags.items()),
            "rillnode_group_members": [
                ((view.name, view.stream), len(view.state.members))
                for view in self._node.consumer_groups
            ],
            "rillnode_group_generation": [
                ((view.name, view.stream), view.state.generation)
                for view in self._node.consumer_groups
            ],
        }

    def _queues(self) -> dict[str, list[Sample]]:
        queues = self._node.queues[: self._node.config.metrics.streams_max]
        now_ms = time.time() * 1_000

        def of_each(value: Callable[[Gauge], float]) -> list[Sample]:
            return [((one.queue, one.stream), value(one)) for one in queues]

        def age(one: Gauge) -> float:
            return max(0.0, now_ms - one.oldest_at) / 1_000 if one.oldest_at else 0.0

        return {
            "rillnode_queue_depth_entries": of_each(lambda one: one.depth),
            "rillnode_queue_in_flight_entries": of_each(lambda one: one.in_flight),
            "rillnode_queue_oldest_seconds": of_each(age),
            "rillnode_queue_dead_entries": of_each(lambda one: one.dead),
            "rillnode_queue_held": of_each(lambda one: bool(one.held)),
        }

    def _actors(self) -> dict[str, list[Sample]]:
        rows = [((name,), kind) for name, kind in self._node.system.stats().items()]
        return {
            "rillnode_actors": [(name, kind.cells) for name, kind in rows],
            "rillnode_actor_mailbox_messages": [(name, kind.mailbox_depth) for name, kind in rows],
            "rillnode_actor_handled_total": [(name, kind.handled) for name, kind in rows],
            "rillnode_actor_failures_total": [(name, kind.failures) for name, kind in rows],
            "rillnode_actor_restarts_total": [(name, kind.restarts) for name, kind in rows],
            "rillnode_actor_slowest_handle_seconds": [
                (name, kind.slowest_handler_seconds) for name, kind in rows
            ],
        }


class _Family(Collector):
    """A registry of one family, or of a part of its samples."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        """That one."""
        yield self._metric


def _texts(metric: Metric) -> Iterator[bytes]:
    """A family's text, in pieces of at most `SLICE_SAMPLES` lines; the first has its head."""
    for start in range(0, max(1, len(metric.samples)), SLICE_SAMPLES):
        part = copy(metric)
        part.samples = metric.samples[start : start + SLICE_SAMPLES]
        text: bytes = generate_latest(_Family(part))
        yield text if not start else text.split(b"\n", _HEAD_LINES)[-1]


def _by_key(counts: Mapping[str, int]) -> list[Sample]:
    return [((key,), count) for key, count in counts.items()]
