"""Watches as an eavesdropper that no key and no nonce seal two messages."""

from typing import Final

from rillnode.node.simulated.history import History

HEAD_BYTES: Final = 12
"""Messages of one direction begin with the same plain bytes (lengths, routes), so that the first
sealed bytes of two are the same if their nonces are. By chance that happens once in 2**96."""


class Sealing:
    """Watches the keys and sealed messages of a run's connections of one kind."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._ephemerals: dict[bytes, str] = {}

    def shown(self, who: str, ephemeral: bytes) -> None:
        """A handshake shows the ephemeral key of a side, which nobody has used before."""
        if ephemeral in self._ephemerals:
            text = f"{who} and {self._ephemerals[ephemeral]} have the same ephemeral key"
            self._history.broken("nonce-reuse", text)
        self._ephemerals[ephemeral] = who

    def sealed(self, who: str, head: bytes, heads: dict[bytes, None]) -> None:
        """A sealed message begins with `head`, as none of its direction did; `heads` are these."""
        if head in heads:
            self._history.broken("nonce-reuse", f"{who} sealed two messages alike")
        heads[head] = None
