"""Defines offsets in a checkpoint: positions, and the streams that they are in.

A stream that was removed and made anew has the same name and other entries. The time at which each
stream was created tells the two apart; without it, a new stream that is longer than the old one
was would be read from the middle.

    {"sensors": {"0": 5, "1": 7, "created_at": 1767225600000}}

Checkpoints of earlier versions have no `created_at`; it is taken in with their next batch.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, cast

from rillnode.codecs.errors import ConfigError, RequestError
from rillnode.node.spark.offsets import (
    Ends,
    Positions,
    Range,
    positions_from_json,
    positions_to_json,
    ranges_between,
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
