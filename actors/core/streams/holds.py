"""Keeps what sinks have not committed yet from retention."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class SinkHold:
    """One sink's claim.

    Attributes:
        committed: by log, the index below which nothing is needed any more.
        known: whether `committed` names every log; before, all logs are held.
        released: the sink is too far behind and holds nothing.
    """

    committed: dict[int, int] = field(default_factory=dict[int, int])
    known: bool = False
    released: bool = False

    def lowest(self, log: int) -> int | None:
        """The index from which on it holds a log, or None where it does not."""
        if self.released:
            return None
        return self.committed.get(log) if self.known else 0


class Holds:
    """The claims of all sinks of a node."""

    def __init__(self) -> None:
        self._sinks: dict[str, SinkHold] = {}

    def add(self, sink: str) -> SinkHold:
        """Start a sink's claim, on everything until it knows better."""
        hold = self._sinks[sink] = SinkHold()
        return hold

    def lowest(self, log: int) -> int | None:
        """The index from which on a log must be kept, or None where nobody holds it."""
        held = [hold.lowest(log) for hold in self._sinks.values()]
        return min((index for index in held if index is not None), default=None)
