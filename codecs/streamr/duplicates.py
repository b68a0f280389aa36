"""Duplicate messages: what a node forwards only once.

Messages of one chain (publisher and chain id) are numbered by (timestamp, sequence) and name
their predecessor, so between a message and its predecessor there is nothing. A detector keeps
what is still open: gaps `(lower, upper]` in ascending order, the last of which never ends.

Source: streamr-network 22.1.0, DuplicateMessageDetector.
"""

from bisect import bisect_right
from collections import OrderedDict
from typing import Final

from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.limits import STREAMR_CHAINS_MAX, STREAMR_GAPS_MAX

Number = tuple[int, int]
"""Timestamp in milliseconds, and sequence within it."""

_ENDLESS: Final = (float("inf"), float("inf"))


class DuplicateDetector:
    """Tells fresh numbers of one chain from duplicates.

    The first number seen is fresh, and everything before it counts as seen. At most `gaps_max`
    gaps are kept; beyond, the lowest is forgotten, and with it what is missing there.
    """

    __slots__ = ("_gaps_max", "_lowers", "_uppers")

    def __init__(self, *, gaps_max: int = STREAMR_GAPS_MAX) -> None:
        self._gaps_max = gaps_max
        self._lowers: list[Number] = []
        self._uppers: list[tuple[float, float]] = []

    def check(self, previous: Number | None, number: Number) -> bool:
        """Whether `number` is fresh; it is a duplicate from then on.

        Without a predecessor only a number above all others is fresh. Time is logarithmic in
        the gaps, apart from moving them.

        Raises:
            CodecError: `duplicate.numbering`, the predecessor is not before the number;
                `duplicate.overlap`, what lies between them was seen. Nothing is changed.
        """
        lowers, uppers = self._lowers, self._uppers
        if previous is not None and previous >= number:
            raise CodecError("duplicate.numbering", f"{number} does not follow {previous}")
        if not lowers:
            lowers.append(number)
            uppers.append(_ENDLESS)
            return True
        if previous is None:
            if number <= lowers[-1]:
                return False
            lowers[-1] = number
            return True
        nth = bisect_right(lowers, previous) - 1
        if nth + 1 < len(lowers) and number > lowers[nth + 1]:
            raise CodecError("duplicate.overlap", f"messages before {number} were seen")
        if nth < 0 or previous >= uppers[nth]:
            return False
        if number > uppers[nth]:
            raise CodecError("duplicate.overlap", f"messages before {number} were seen")
        self._fill(nth, previous, number)
        return True

    def _fill(self, nth: int, previous: Number, number: Number) -> None:
        """Close the part of gap `nth` from `previous` to `number`."""
        lowers, uppers = self._lowers, self._uppers
        before = previous != lowers[nth]
        after = number != uppers[nth]
        if before and after:
            lowers.insert(nth + 1, number)
            uppers.insert(nth, previous)
            if len(lowers) > self._gaps_max:
                del lowers[0], uppers[0]
        elif before:
            uppers[nth] = previous
        elif after:
            lowers[nth] = number
        else:
            del lowers[nth], uppers[nth]

    @property
    def gaps(self) -> list[tuple[Number, tuple[float, float]]]:
        """What is open, ascending: above the first, up to and with the second."""
        return list(zip(self._lowers, self._uppers, strict=True))


class ChainDuplicates:
    """Detectors of the chains of one stream partition; the longest unused is forgotten first."""

    __slots__ = ("_chains_max", "_detectors")

    def __init__(self, *, chains_max: int = STREAMR_CHAINS_MAX) -> None:
        self._chains_max = chains_max
        self._detectors: OrderedDict[tuple[str, str], DuplicateDetector] = OrderedDict()

    def check(
        self, publisher_id: str, chain_id: str, previous: Number | None, number: Number
    ) -> bool:
        """Whether the message is fresh; publishers are compared without case.

        Raises:
            CodecError: as `DuplicateDetector.check` does.
        """
        detectors = self._detectors
        chain = (publisher_id.lower(), chain_id)
        detector = detectors.get(chain)
        if detector is None:
            detector = detectors[chain] = DuplicateDetector()
            if len(detectors) > self._chains_max:
                detectors.popitem(last=False)
        else:
            detectors.move_to_end(chain)
        return detector.check(previous, number)
