"""Tracks messages that a WebSocket was handed and that may not be stored.

The protocol has no word for having taken a message. What was handed over just before a WebSocket
broke may be lost, and no later answer tells: it is about what came on its own WebSocket.
"""

from collections import OrderedDict
from typing import Final

HANDED_OVER_MAX: Final = 10_000
"""Messages that are remembered; those before them are likely to be stored."""

Partition = tuple[str, int]
"""Stream id, partition."""


class HandedOver:
    """Remembers messages by the numbers of their requests, which only grow."""

    def __init__(self) -> None:
        self._partitions: OrderedDict[int, Partition] = OrderedDict()
        self._lost: set[Partition] = set()

    def add(self, number: int, partition: Partition) -> None:
        """A message was handed over."""
        self._partitions[number] = partition
        if len(self._partitions) > HANDED_OVER_MAX:
            self._partitions.popitem(last=False)

    def settled(self, number: int, partition: Partition) -> None:
        """What was handed over of a partition before a request is stored or refused."""
        for before, name in list(self._partitions.items()):
            if name == partition and before < number:
                del self._partitions[before]

    def broken(self) -> None:
        """The WebSocket broke."""
        self._lost.update(self._partitions.values())
        self._partitions.clear()

    def take_loss(self, partition: Partition) -> bool:
        """Whether messages of a partition may be lost; each loss is told once."""
        lost = partition in self._lost
        self._lost.discard(partition)
        return lost
