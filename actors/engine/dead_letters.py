"""Dead letters: messages that no actor has handled."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from thespian.actors import ActorAddress

Reason = Literal["gone", "unhandled", "poison", "unwanted", "unknown"]
"""Why nobody handled it: its target had exited; its target exited first; it made the target fail
twice and has no sender to go back to; it went to an address that is no actor and did not want it,
such as an answer that came too late; its target is an address of nothing here."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One message that was not handled."""

    target: ActorAddress
    message: Any
    sender: ActorAddress | None
    reason: Reason


class DeadLetters:
    """Counts all dead letters and keeps the newest; iterates over those kept, oldest first."""

    def __init__(self, kept_max: int) -> None:
        self.reasons: Counter[Reason] = Counter()
        self._kept: list[DeadLetter] = []
        self._kept_max = kept_max

    @property
    def count(self) -> int:
        """How many there have been."""
        return self.reasons.total()

    def add(self, letter: DeadLetter) -> None:
        """Count and keep one."""
        self.reasons[letter.reason] += 1
        self._kept.append(letter)
        if len(self._kept) > self._kept_max:
            del self._kept[0]

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[DeadLetter]:
        return iter(tuple(self._kept))
