"""A topic's history: which commits there are, what each comes after, and which come last.

A history is what the secondary keys of the topic's log say; it knows nothing of what events hold.
An event may come before the ones that it acknowledges.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rillnode.codecs.nextgraph.types import DIGEST_BYTES

_MARK: Final = b"c"
"""Of the secondary keys that lead to commits."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit: the index of its event in the topic's log, and the commits that it comes after."""

    index: int
    parents: tuple[bytes, ...]


def commit_key(commit: bytes, parents: Sequence[bytes]) -> bytes:
    """The secondary key of a commit's event."""
    return b"".join((_MARK, commit, *parents))


def parse_commit_key(key: bytes) -> tuple[bytes, tuple[bytes, ...]]:
    """The commit, and its parents, that a secondary key was made of."""
    start = len(_MARK)
    cut = range(start, len(key), DIGEST_BYTES)
    commit, *parents = [key[at : at + DIGEST_BYTES] for at in cut]
    return commit, tuple(parents)


class History:
    """The commits of one topic.

    Attributes:
        heads: commits that no other comes after, in order of their events.
    """

    def __init__(self) -> None:
        self._commits: dict[bytes, Commit] = {}
        self._acknowledged: set[bytes] = set()
        self._heads: dict[bytes, None] = {}

    def __len__(self) -> int:
        return len(self._commits)

    def __contains__(self, commit: bytes) -> bool:
        return commit in self._commits

    @property
    def heads(self) -> list[bytes]:
        """Commits that no other comes after, in order of their events."""
        return list(self._heads)

    def add(self, commit: bytes, parents: Sequence[bytes], index: int) -> None:
        """Note a commit whose event has the next index; what is known already is left as it is."""
        if commit in self._commits:
            return
        self._commits[commit] = Commit(index, tuple(parents))
        self._acknowledged.update(parents)
        for parent in parents:
            self._heads.pop(parent, None)
        if commit not in self._acknowledged:
            self._heads[commit] = None

    def index(self, commit: bytes) -> int | None:
        """Where a commit's event is in the log."""
        found = self._commits.get(commit)
        return None if found is None else found.index

    def missing(
        self,
        known_heads: Iterable[bytes],
        target_heads: Iterable[bytes],
        known: Container[bytes],
    ) -> list[bytes]:
        """The commits that someone has not, each after all of its parents.

        Args:
            known_heads: commits that are known there, with all before them.
            target_heads: commits that are wanted, with all before them.
            known: others that are known there. What only they lead to is not looked for.

        Returns:
            Commits of this history, and after which there is none of, first, commits that it
            names as parents and has not.
        """
        theirs = self._before(known_heads, lambda _: False)
        wanted = self._before(target_heads, lambda one: one in theirs or one in known)
        return self._ordered(wanted)

    def _before(self, heads: Iterable[bytes], stop: Callable[[bytes], bool]) -> set[bytes]:
        found: set[bytes] = set()
        waiting = list(heads)
        while waiting:
            commit = waiting.pop()
            if commit in found or stop(commit):
                continue
            if commit in self._commits:
                found.add(commit)
                waiting += self._commits[commit].parents
            elif commit in self._acknowledged:
                found.add(commit)
        return found

    def _ordered(self, commits: set[bytes]) -> list[bytes]:
        """Parents first, and otherwise in order of the events."""
        ordered: dict[bytes, None] = {}
        opened: set[bytes] = set()
        waiting = sorted(commits, key=self._place, reverse=True)
        while waiting:
            commit = waiting[-1]
            if commit not in opened:
                opened.add(commit)
                before = [one for one in self._parents(commit) if one in commits]
                fresh = [one for one in before if one not in opened]
                waiting += sorted(fresh, key=self._place, reverse=True)
            else:
                waiting.pop()
                ordered[commit] = None
        return list(ordered)

    def _parents(self, commit: bytes) -> tuple[bytes, ...]:
        found = self._commits.get(commit)
        return () if found is None else found.parents

    def _place(self, commit: bytes) -> int:
        found = self._commits.get(commit)
        return -1 if found is None else found.index
