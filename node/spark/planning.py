"""Plans micro-batches of a node's streams, for Spark's tasks or for one process to read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from rillnode.codecs.entries import decode_header
from rillnode.codecs.errors import ConfigError
from rillnode.node.spark.offsets import (
    Bound,
    Created,
    Ends,
    Key,
    Offset,
    Positions,
    Range,
    behind,
    check_ends,
    data_loss,
    limit_positions,
    made_anew,
    parse_bound,
    ranges_between,
    ranges_of,
    resolve_bound,
)
from rillnode.node.spark.ranges import ClientOptions, RangeClient, ask

OPTIONS: Final = {
    "url": "`noise://host:port`, or those of several nodes of the same streams, separated by "
    "commas; or `file:///directory` for files that a `[[sink.files]]` has written, without "
    "identity and key",
    "node_identity": "the node's identity, or those of several nodes, separated by commas",
    "key_file": "path of your key, on every machine that runs tasks; default: the variable "
    "`RILLNODE_KEY_FILE`, or the key itself in `RILLNODE_KEY`",
    "streams": "names or patterns, separated by commas, or a JSON list of them. Streams and "
    "partitions that are created later are read from their first entry; `spark.read` of a name "
    "that does not exist fails with `stream.unknown`",
    "sink": "instead of `streams`: the streams of one of the node's sinks, with its job's key",
    "consumer": "saves the position on the node under this name, so that `rillnode index ls` shows "
    "the lag. Only the checkpoint decides where a query resumes",
    "startingOffsets": '`earliest` (default), `latest`, or `{"readings": {"0": 17}}`, where -1 is '
    "the latest and -2 the earliest. Beside its partitions a stream may have `created_at`, as in a "
    "query's progress: one that was created again is refused then. For queries without a "
    "checkpoint",
    "startingTimestamp": "instead: milliseconds since 1970, or ISO 8601 with a zone. Starts at the "
    "first entry that the node received at that time or later",
    "endingOffsets`, `endingTimestamp": "the same for the end of `spark.read`, exclusive",
    "maxOffsetsPerTrigger": "entries of a micro-batch, divided in proportion to each partition's "
    "backlog",
    "maxBytesPerTrigger": "bytes of a micro-batch, to within a block of each partition",
    "minPartitions": "tasks of a micro-batch that is large enough for them",
    "failOnDataLoss": "`true` (default): the query fails if entries were trimmed before it read "
    "them, or a stream was removed and created again. `false`: a row of kind `gap` names them, and "
    "the query goes on behind them, or at the new stream's first entry",
    "drainFile": "while this file exists no new micro-batch begins",
}
"""The options of the Spark format as a source, named as those of Spark's Kafka source."""


class Probe(NamedTuple):
    """The findings about one block.

    Attributes:
        first: index of its first entry.
        next: index after its last.
        received_at: when the node took its entries, ms since 1970.
        position: data bytes of the log before it.
        size: bytes of the block.
    """

    first: int
    next: int
    received_at: int
    position: int
    size: int


ProbeBlock = Callable[[Key, int], Probe]
"""Tells of the block with an index. What was trimmed is one block of long ago, without bytes."""


def block_prober(options: ClientOptions) -> ProbeBlock:
    """A `ProbeBlock` that asks the node."""

    def probe(key: Key, index: int) -> Probe:
        kept, blocks = ask(options, lambda client: client.read(Range(*key, index, index + 1), 1))
        for block in blocks:
            if block.first_index <= index < block.next_index:
                header = decode_header(block.value)
                size = len(block.value)
                return Probe(
                    block.first_index, block.next_index, header.received_at, header.position, size
                )
        return Probe(index, max(kept, index + 1), 0, 0, 0)

    return probe


def positions_at(probe: ProbeBlock, ends: Ends, time_ms: int) -> Positions:
    """The first index of every partition that was received at or after a time."""
    return {
        key: _first_block(probe, key, first, until, lambda block: block.received_at >= time_ms)
        for key, (first, until) in ends.items()
    }


def limit_bytes(
    probe: ProbeBlock, start: Mapping[Key, int], end: Positions, bytes_max: int
) -> Positions:
    """Move `end` back so that about `bytes_max` bytes lie between.

    Every partition gets its share in proportion to what it has waiting, in whole blocks and at
    least one, so that none waits for ever; the limit is exceeded by a block of each at most.
    """
    waiting = {key: start.get(key, 0) for key, until in end.items() if until > start.get(key, 0)}
    begins = {key: probe(key, index).position for key, index in waiting.items()}
    sizes: dict[Key, int] = {}
    for key, begin in begins.items():
        last = probe(key, end[key] - 1)
        sizes[key] = max(0, last.position + last.size - begin)
    total = sum(sizes.values())
    if total <= bytes_max:
        return end
    limited = dict(end)
    for key, index in waiting.items():
        bound = begins[key] + sizes[key] * bytes_max // total
        found = _first_block(probe, key, index, end[key], partial(_lies_behind, bound))
        limited[key] = found if found > index else min(probe(key, index).next, end[key])
    return limited


def _lies_behind(position: int, block: Probe) -> bool:
    return block.position >= position


def _first_block(
    probe: ProbeBlock, key: Key, low: int, high: int, wanted: Callable[[Probe], bool]
) -> int:
    """The first index of the first block that is wanted, where all behind it are; else `high`."""
    begin = low
    while low < high:
        block = probe(key, (low + high) // 2)
        if wanted(block):
            high = block.first
        else:
            low = block.next
    return max(begin, min(low, high))


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """A source's options, checked."""

    client: ClientOptions
    starting: Bound = "earliest"
    starting_ms: int | None = None
    ending: Bound = "latest"
    ending_ms: int | None = None
    rows_max: int | None = None
    bytes_max: int | None = None
    tasks_max: int | None = None
    fail_on_data_loss: bool = True
    drain_file: Path | None = None

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> "SourceOptions":
        """Check a data source's options.

        Raises:
            ConfigError: one is missing or wrong.
        """
        drain_file = options.get("drainFile")
        return cls(
            client=ClientOptions.from_options(options),
            starting=parse_bound(options.get("startingOffsets", "earliest"), "startingOffsets"),
            starting_ms=_instant(options, "startingTimestamp", instead_of="startingOffsets"),
            ending=parse_bound(options.get("endingOffsets", "latest"), "endingOffsets"),
            ending_ms=_instant(options, "endingTimestamp", instead_of="endingOffsets"),
            rows_max=_positive(options, "maxOffsetsPerTrigger"),
            bytes_max=_positive(options, "maxBytesPerTrigger"),
            tasks_max=_positive(options, "minPartitions"),
            fail_on_data_loss=_boolean(options, "failOnDataLoss", default=True),
            drain_file=Path(drain_file) if drain_file else None,
        )


class BatchPlanner:
    """Plans a query's micro-batches.

    It keeps no more between calls than what it last saw of the ends, and the target of a query that
    runs until the present end only.

    Attributes:
        latest: the ends as the last plan saw them; None before the first.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self.latest: Offset | None = None
        self._target: Positions | None = None

    def first(self) -> Offset:
        """Where a query begins that has read nothing."""
        ends, created = look(self._options)
        return Offset(start_of(self._options, ends, created), created)

    def end_at_present(self) -> None:
        """Take the present ends as the query's last."""
        self._target = {key: until for key, (_, until) in look(self._options)[0].items()}

    def after(self, before: Offset, rows_max: int | None, bytes_max: int | None = None) -> Offset:
        """Where the next micro-batch ends; `before` where there is nothing for one.

        A partition that disappears, because the sink's pattern no longer includes it, keeps its
        position, so that it goes on there if it comes back. A stream that was made anew is read
        from its beginning.

        Raises:
            RequestError: entries were trimmed unread, or a stream was made anew, and
                `failOnDataLoss` is set.
        """
        ends, created = look(self._options, before)
        anew = before.made_anew(created)
        begin = before.without(anew)
        known = {**before.created, **created}
        self.latest = Offset(begin | {key: until for key, (_, until) in ends.items()}, known)
        if self._options.drain_file is not None and self._options.drain_file.exists():
            return before
        if anew and self._options.fail_on_data_loss:
            raise made_anew(anew)
        check_ends(begin, ends)
        # What is trimmed costs one row however long it is; it must not use up the limit.
        reachable = {key: max(begin.get(key, 0), first) for key, (first, _) in ends.items()}
        end = {key: self._bounded(key, until) for key, (_, until) in ends.items()}
        end = {key: max(until, begin.get(key, 0)) for key, until in end.items()}
        if rows_max is not None:
            end = limit_positions(reachable, end, rows_max)
        if bytes_max is not None:
            end = limit_bytes(block_prober(self._options.client), reachable, end, bytes_max)
        self._refuse_loss(begin, end, ends)
        return Offset(begin | end, known)

    def ranges(self, start: Offset, end: Offset) -> list[Range]:
        """What a micro-batch has to read."""
        return ranges_of(start, end, *look(self._options, end))

    def _bounded(self, key: Key, until: int) -> int:
        return until if self._target is None else min(until, self._target.get(key, 0))

    def _refuse_loss(self, begin: Positions, end: Positions, ends: Ends) -> None:
        if self._options.fail_on_data_loss:
            for item in ranges_between(begin, end, ends):
                if item.gap:
                    raise data_loss(item)


def save(options: ClientOptions, offset: Offset) -> None:
    """Save an offset at the node."""
    ask(options, lambda client: client.commit(offset))


def look(options: SourceOptions, known: Offset | None = None) -> tuple[Ends, Created]:
    """The ends of all partitions; of several nodes, those of one that has heard of `known`."""
    several = len(options.client.nodes) > 1

    def question(client: RangeClient) -> tuple[Ends, Created]:
        ends, created = _extents(client)
        if several and known is not None and known.is_past(ends, created):
            raise behind()
        return ends, created

    return ask(options.client, question)


def _extents(client: RangeClient) -> tuple[Ends, Created]:
    return client.ends(), client.created()


def start_of(options: SourceOptions, ends: Ends, created: Created) -> Positions:
    """Where a read without a checkpoint starts.

    Raises:
        ConfigError: it is to start where there is nothing.
        RequestError: `sink.reset`, it is to start in a stream that was made anew, and
            `failOnDataLoss` is set.
    """
    if options.starting_ms is not None:
        return positions_at(block_prober(options.client), ends, options.starting_ms)
    bound = options.starting
    if isinstance(bound, Offset) and not options.fail_on_data_loss:
        bound = Offset(bound.still(created), {})
    return resolve_bound(bound, ends, created, "startingOffsets")


def _positive(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not (text.isdecimal() and text.isascii() and int(text) > 0):
        raise ConfigError("spark.option", f"option `{name}` must be a number above 0, not {text!r}")
    return int(text)


def _instant(options: Mapping[str, str], name: str, *, instead_of: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if options.get(instead_of) is not None:
        raise ConfigError("spark.option", f"options `{name}` and `{instead_of}` exclude each other")
    if text.isdecimal() and text.isascii():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ConfigError(
            "spark.option",
            f"option `{name}` must be milliseconds since 1970, or a time with a zone like "
            f"2026-11-21T12:00:00Z, not {text!r}",
        )
    return round(moment.timestamp() * 1000)


def _boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise ConfigError("spark.option", f"option `{name}` must be true or false, not {text!r}")
    return text == "true"
