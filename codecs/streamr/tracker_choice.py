"""Which of several trackers is responsible for a stream partition: all nodes choose the same.

Source: streamr-network 7 and later: the absolute value of a Java string hash, modulo the count.
"""

from typing import Final

_BITS: Final = 0xFFFF_FFFF
_SIGN: Final = 0x8000_0000


def tracker_index(key: str, count: int) -> int:
    """The position of the tracker of a stream partition in everybody's list.

    Args:
        key: `streamId::partition`.
        count: how many trackers there are; at least one.
    """
    units = key.encode("utf-16-le", "surrogatepass")
    value = 0
    for nth in range(0, len(units), 2):
        value = (31 * value + (units[nth] | units[nth + 1] << 8)) & _BITS
    return abs(value - (_BITS + 1) if value & _SIGN else value) % count
