"""Positions in streams: what a batch covers, how it is limited and how it is split into tasks.

Pure arithmetic without Spark or a node. A *position* is the index of the next entry to read of
one (stream, partition). In options and in Spark's checkpoint positions are JSON,
`{"stream": {"partition": index}}`, always in the same order, because Spark compares their text.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple, cast

from rillnode.codecs.errors import ConfigError, RequestError

Key = tuple[str, int]
Positions = dict[Key, int]
Ends = Mapping[Key, tuple[int, int]]
"""First index kept and next index, per (stream, partition)."""

LATEST: Final = -1
EARLIEST: Final = -2
TASK_ROWS_MIN: Final = 4_096
"""Fewer rows are not worth a task and a file of their own. Own choice: one full block."""


class Range(NamedTuple):
    """Entries `start <= index < until` of one partition; a `gap` was trimmed unread.

    `created_at` tells which stream of this name is meant, ms since 1970; 0 is whichever has it.
    """

    stream: str
    partition: int
    start: int
    until: int
    gap: bool = False
    created_at: int = 0


def positions_to_json(positions: Mapping[Key, int]) -> dict[str, dict[str, int]]:
    """Positions as they stand in Spark's checkpoint, in ascending order."""
    document: dict[str, dict[str, int]] = {}
    for (stream, partition), index in sorted(positions.items()):
        document.setdefault(stream, {})[str(partition)] = index
    return document


def positions_from_json(document: object, where: str) -> Positions:
    """Read positions; `where` names their origin in errors.

    Raises:
        ConfigError: not of the form `{"stream": {"partition": index}}`.
    """
    positions: Positions = {}
    for stream, partitions in _items(document, where):
        for partition, index in _items(partitions, where):
            if not (partition.isdecimal() and partition.isascii()):
                raise _not_positions(where, f"partition {partition!r} is no number")
            if type(index) is not int or index < EARLIEST:
                raise _not_positions(where, f"index {index!r} of stream {stream!r} is no index")
            positions[stream, int(partition)] = index
    return positions


def limit_positions(start: Mapping[Key, int], end: Mapping[Key, int], rows_max: int) -> Positions:
    """Move `end` back so that at most `rows_max` rows lie between.

    Every partition gets its share in proportion to what it has waiting. Rows that shares leave
    over after rounding down go to the largest remainders, so that a batch is full and a partition
    with one row beside a large one is served too.
    """
    waiting = {key: max(0, until - start.get(key, 0)) for key, until in end.items()}
    total = sum(waiting.values())
    if total <= rows_max:
        return dict(end)
    shares = {key: rows * rows_max // total for key, rows in waiting.items()}
    left = rows_max - sum(shares.values())
    by_remainder = sorted(waiting, key=lambda key: (-(waiting[key] * rows_max % total), key))
    for key in by_remainder[:left]:
        shares[key] += 1
    return {key: min(until, start.get(key, 0) + shares[key]) for key, until in end.items()}


def ranges_between(start: Mapping[Key, int], end: Mapping[Key, int], ends: Ends) -> list[Range]:
    """What lies between two positions, in order; what is trimmed already as ranges marked `gap`.

    A partition that `start` does not know is new and read from index 0.
    """
    ranges: list[Range] = []
    for key, until in sorted(end.items()):
        begin = start.get(key, 0)
        kept = min(max(begin, ends[key][0]), until) if key in ends else begin
        if begin < kept:
            ranges.append(Range(*key, begin, kept, gap=True))
        if kept < until:
            ranges.append(Range(*key, kept, until))
    return ranges


def check_streams(patterns: Iterable[str], ends: Ends) -> None:
    """Refuse to read nothing where a stream is named that is not there.

    A query may wait for streams to come, and a pattern may match none; a batch read of a name
    would only hide a misspelt one.

    Raises:
        RequestError: `stream.unknown`.
    """
    present = {stream for stream, _ in ends}
    for name in patterns:
        if name not in present and not any(sign in name for sign in "*?["):
            text = f"there is no stream {name!r}, or this key may not pull it"
            raise RequestError("stream.unknown", text)


def check_ends(start: Mapping[Key, int], ends: Ends) -> None:
    """Refuse to go on in a partition that is shorter than what was already read of it.

    Raises:
        RequestError: `sink.reset`, the stream was made anew; its indexes mean other entries.
    """
    for (stream, partition), begin in start.items():
        until = ends.get((stream, partition), (0, begin))[1]
        if begin > until:
            raise RequestError(
                "sink.reset",
                f"stream {stream!r} partition {partition} ends at index {until}, but entries up "
                f"to index {begin} were read of it: it was made anew. Start with a new "
                "checkpoint directory to read it from its beginning",
            )


def data_loss(lost: Range) -> RequestError:
    """The error for entries that were trimmed before they were read."""
    return RequestError(
        "sink.data_loss",
        f"stream {lost.stream!r} partition {lost.partition}: entries {lost.start} to "
        f"{lost.until - 1} were trimmed before they were read. With failOnDataLoss=false the job "
        "goes on behind them and writes a row of kind 'gap'",
    )


def behind(part: Range | None = None) -> RequestError:
    """The answer of a node that does not know of what another one has told of.

    Args:
        part: the range that it was asked for; None: where the last batch has ended.
    """
    what = "what the last batch has read"
    if part is not None:
        what = f"entry {part.start} of stream {part.stream!r} partition {part.partition}"
    text = f"the node does not have {what} yet: ask again, or another node"
    return RequestError("client.behind", text, retryable=True)


def split_ranges(ranges: Iterable[Range], tasks_max: int | None) -> list[tuple[Range, ...]]:
    """Cut ranges into tasks of equal size: large ranges are split, small ones share a task.

    At most `tasks_max` tasks, by default as many as there are ranges; but no task is planned for
    less than `TASK_ROWS_MIN` rows unless it is the only one. Order is kept.
    """
    queue = list(ranges)
    total = sum(_weight(item) for item in queue)
    if not total:
        return []
    count = max(1, min(tasks_max or len(queue), -(-total // TASK_ROWS_MIN)))
    tasks: list[tuple[Range, ...]] = []
    task: list[Range] = []
    taken = 0
    for item in queue:
        rest = item
        while _weight(rest):
            room = total * (len(tasks) + 1) // count - taken
            if _weight(rest) <= room:
                task.append(rest)
                taken += _weight(rest)
                break
            if room > 0:
                task.append(rest._replace(until=rest.start + room))
                rest = rest._replace(start=rest.start + room)
                taken += room
            tasks.append(tuple(task))
            task = []
    tasks.append(tuple(task))
    return [task for task in tasks if task]


def _weight(item: Range) -> int:
    """Rows that a range makes: a gap makes one however long it is."""
    return 1 if item.gap else item.until - item.start


def _items(document: object, where: str) -> Iterable[tuple[str, object]]:
    if not isinstance(document, dict):
        raise _not_positions(where, f"not {document!r}")
    return cast("dict[str, object]", document).items()


def _not_positions(where: str, reason: str) -> ConfigError:
    return ConfigError(
        "spark.option",
        f"{where} must be earliest, latest or "
        f'JSON like {{"stream": {{"0": 5}}}} with an index per partition: {reason}',
    )


Created = Mapping[str, int]
"""When streams were created, ms since 1970, by name; without those of which nobody knows."""
_CREATED_AT: Final = "created_at"


class Offset(NamedTuple):
    """The end of a batch.

    Attributes:
        positions: the next index of every partition.
        created: when their streams were created.
    """

    positions: Positions
    created: Created

    @classmethod
    def from_json(cls, document: object, where: str) -> "Offset":
        """Read an offset; `where` names its origin in errors.

        Raises:
            ConfigError: it is none.
        """
        if not isinstance(document, dict):
            return cls(positions_from_json(document, where), {})
        created: dict[str, int] = {}
        positions: dict[str, object] = {}
        for stream, partitions in cast("dict[str, object]", document).items():
            positions[stream] = partitions
            if isinstance(partitions, dict) and _CREATED_AT in partitions:
                indexes = dict(cast("dict[str, object]", partitions))
                created[stream] = _time(indexes.pop(_CREATED_AT), where)
                positions[stream] = indexes
        return cls(positions_from_json(positions, where), created)

    def to_json(self) -> dict[str, Any]:
        """The offset as it stands in Spark's checkpoint, in ascending order."""
        document: dict[str, Any] = positions_to_json(self.positions)
        for stream, partitions in document.items():
            if stream in self.created:
                partitions[_CREATED_AT] = self.created[stream]
        return document

    def made_anew(self, created: Created) -> set[str]:
        """The streams that are others than the offset's, where both sides know."""
        return {name for name, at in self.created.items() if created.get(name, at) != at}

    def without(self, streams: Collection[str]) -> Positions:
        """The positions in all but some streams."""
        return {key: index for key, index in self.positions.items() if key[0] not in streams}

    def is_past(self, ends: Ends, created: Created) -> bool:
        """Whether it names what these ends do not reach: who gave them is behind others."""
        older = any(created.get(name, at) < at for name, at in self.created.items())
        same = self.still(created).items()
        return older or any(key in ends and ends[key][1] < index for key, index in same)

    def still(self, created: Created) -> Positions:
        """The positions in streams that are the offset's still."""
        return self.without(self.made_anew(created))


Bound = Literal["earliest", "latest"] | Offset


def parse_bound(text: str, option: str) -> Bound:
    """Read `startingOffsets` or `endingOffsets`: earliest, latest or positions as JSON.

    In JSON, -1 stands for the latest and -2 for the earliest index, as in Kafka's source. It may be
    an offset of a checkpoint, which says which streams it is in.

    Raises:
        ConfigError: none of these.
    """
    word = text.strip()
    if word.lower() == "earliest":
        return "earliest"
    if word.lower() == "latest":
        return "latest"
    where = f"option `{option}`"
    try:
        document: object = json.loads(word)
    except ValueError:
        raise _not_positions(where, f"not {text!r}") from None
    return Offset.from_json(document, where)


def resolve_bound(bound: Bound, ends: Ends, created: Created, option: str) -> Positions:
    """The position that a bound means for every partition that exists now.

    Partitions that JSON leaves out are at their first index as a start and at their next index as
    an end.

    Raises:
        ConfigError: JSON names a partition that does not exist, or an index behind its end.
        RequestError: `sink.reset`, it names a stream that was made anew.
    """
    if bound == "earliest":
        return {key: first for key, (first, _) in ends.items()}
    if bound == "latest":
        return {key: until for key, (_, until) in ends.items()}
    if anew := bound.made_anew(created):
        raise made_anew(anew)
    unknown = bound.positions.keys() - ends.keys()
    if unknown:
        stream, partition = min(unknown)
        raise ConfigError(
            "spark.option",
            f"option `{option}` names stream {stream!r} partition {partition}, "
            "which is not there, or not for this key",
        )
    left_out = EARLIEST if option == "startingOffsets" else LATEST
    positions: Positions = {}
    for key, (first, until) in ends.items():
        index = bound.positions.get(key, left_out)
        if index > until:
            stream, partition = key
            raise ConfigError(
                "spark.option",
                f"option `{option}` names index {index} of stream {stream!r} partition "
                f"{partition}, which ends at index {until}",
            )
        positions[key] = {EARLIEST: first, LATEST: until}.get(index, index)
    return positions


def ranges_of(start: Offset, end: Offset, ends: Ends, created: Created) -> list[Range]:
    """What lies between two offsets, as `offsets.ranges_between` has it.

    Where a stream was made anew between the two, there is an empty gap at each of its old
    positions, because nobody knows what it still had, and the new stream from its beginning. Where
    it was made anew after `end`, all that lies between is a gap.
    """
    anew, gone = start.made_anew(end.created), end.made_anew(created)
    cut = [
        Range(*key, index, index, gap=True)
        for key, index in sorted(start.positions.items())
        if key[0] in anew
    ]
    trimmed = {key: (until, until) for key, until in end.positions.items() if key[0] in gone}
    return cut + ranges_between(start.without(anew), end.positions, {**ends, **trimmed})


def of_streams(ranges: Iterable[Range], created: Created) -> list[Range]:
    """The same ranges, with which streams they are ranges of."""
    return [item._replace(created_at=created.get(item.stream, 0)) for item in ranges]


def made_anew(streams: Collection[str]) -> RequestError:
    """What to say where such a stream is not to be gone on with."""
    return RequestError(
        "sink.reset",
        f"stream {min(streams)!r} was removed and made anew; what it had and was not read is lost. "
        "With failOnDataLoss=false the job goes on with the new stream's first entry and writes "
        "a row of kind 'gap'",
    )


def _time(value: object, where: str) -> int:
    if type(value) is not int or value < 0:
        raise ConfigError("spark.option", f"{where}: {_CREATED_AT} {value!r} is no time in ms")
    return value
