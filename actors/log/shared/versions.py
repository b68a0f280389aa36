"""Knows which frames all nodes of a log can read: none is written that some cannot.

Each node tells in its record up to which version it reads them. Who joins later, and is too old,
finds frames of a newer version, and stops there: it never decides otherwise than the others.
"""

from collections.abc import Iterable
from typing import Final

from rillnode.actors.log.nodes import NODES, NodeRecord
from rillnode.actors.log.shared import frames
from rillnode.codecs.errors import StoreError

FIRST: Final = 1
"""The version that every node reads."""

GONE_MS: Final = 86_400_000
"""Who has told of itself this long before the last one that did is gone. Nodes do once a minute."""


class Versions:
    """The versions that the nodes of a log read.

    Attributes:
        common: the newest that all of them read; as long as they are not known the first.
    """

    def __init__(self) -> None:
        self.common = FIRST
        self._nodes: dict[str, NodeRecord] = {}

    def learn(self, values: Iterable[tuple[str, bytes | None]]) -> None:
        """Take named values, among which may be what nodes tell of themselves."""
        is_news = False
        for name, value in values:
            if name.startswith(NODES):
                is_news = True
                record = None if value is None else NodeRecord.decode(value)
                if record is None:  # it has left, or is newer than this node
                    self._nodes.pop(name, None)
                else:
                    self._nodes[name] = record
        if is_news:
            reads = [record.reads for record in self._present]
            self.common = max(FIRST, min([frames.FRAME_VERSION, *reads]))

    def outdated(self, version: int) -> StoreError:
        """The answer to what takes a version that some node does not read."""
        names = sorted(record.name for record in self._present if record.reads < version)
        who = ", ".join(names[:8]) or "which ones is not known so soon"
        return StoreError(
            "store.outdated",
            f"not all nodes of this log can read it yet ({who}): update them; one that tells "
            "nothing of itself any more is waited for no longer than a day",
            retryable=False,
        )

    @property
    def _present(self) -> list[NodeRecord]:
        records = list(self._nodes.values())
        last = max((record.told_at for record in records), default=0)
        return [record for record in records if record.told_at >= last - GONE_MS]
