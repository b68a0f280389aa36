"""The numbers of published messages: each names the one before it in its chain."""

from collections.abc import Callable
from string import ascii_letters, digits
from typing import Final, NamedTuple

from rillnode.codecs.streamr.encryption import Entropy
from rillnode.codecs.streamr.stream_message import MessageId, MessageRef

CHAIN_ID_LENGTH: Final = 20
"""As released clients make it: one for each instance of a publisher."""

_ALPHABET: Final = ascii_letters + digits
_EVEN: Final = 256 - 256 % len(_ALPHABET)
"""Bytes from here on would make the first characters likelier than the others."""


class Numbered(NamedTuple):
    """A message's number, and that of the one before it."""

    id: MessageId
    previous: MessageRef | None


class _Chain(NamedTuple):
    id: str
    last: MessageRef | None


class Numbering:
    """Numbers the messages of one publisher, in a chain for each stream partition.

    A chain only goes up, because readers drop what is older than what they have: a message that
    is dated before the last one begins a new chain.

    Args:
        publisher_id: of all messages.
        make_chain_id: makes an id that nobody else has.
    """

    def __init__(self, publisher_id: str, make_chain_id: Callable[[], str]) -> None:
        self._publisher_id = publisher_id
        self._make_chain_id = make_chain_id
        self._own = make_chain_id()
        self._chains: dict[tuple[str, int], _Chain] = {}

    def next(self, stream_id: str, partition: int, timestamp: int) -> Numbered:
        """Number the next message; `timestamp` is in milliseconds since 1970."""
        name = (stream_id, partition)
        chain_id, last = self._chains.get(name, _Chain(self._own, None))
        if last is not None and timestamp < last.timestamp:
            chain_id, last = self._make_chain_id(), None
        sequence = 0
        if last is not None and timestamp == last.timestamp:
            sequence = (last.sequence or 0) + 1
        self._chains[name] = _Chain(chain_id, MessageRef(timestamp, sequence))
        message_id = MessageId(
            stream_id, partition, timestamp, sequence, self._publisher_id, chain_id
        )
        return Numbered(message_id, last)


def random_chain_id(entropy: Entropy) -> str:
    """Make a chain id of CHAIN_ID_LENGTH letters and digits, all alike likely."""
    found = ""
    while len(found) < CHAIN_ID_LENGTH:
        found += "".join(_ALPHABET[b % len(_ALPHABET)] for b in entropy(32) if b < _EVEN)
    return found[:CHAIN_ID_LENGTH]
