"""Numbers of messages that are published over HTTP without any."""

from typing import Final, NamedTuple

from rillnode.actors.ports import Entropy

_CHAIN_BYTES: Final = 10


class Number(NamedTuple):
    """A message's place; no other message of its chain has the same number."""

    timestamp: int
    sequence: int
    chain_id: str


class Numbers:
    """Numbers messages one above the other, on a chain that begins anew with each start."""

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy
        self._last = Number(0, 0, self.other_chain())

    def next(self, now_ms: int) -> Number:
        """The next number: of this millisecond, or above what was given before."""
        timestamp, sequence, chain_id = self._last
        if now_ms > timestamp:
            self._last = Number(now_ms, 0, chain_id)
        else:
            self._last = Number(timestamp, sequence + 1, chain_id)
        return self._last

    def other_chain(self) -> str:
        """A chain for one message whose time its publisher has chosen."""
        return f"rest{self._entropy(_CHAIN_BYTES).hex()}"
