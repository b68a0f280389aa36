"""Defines the requests of other actors of the node to a stream's actor.

They serve protocols whose clients do not speak in wire messages, and so have no routes.
"""

from collections.abc import Sequence

from msgspec import Struct

from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.waiting import Then
from rillnode.codecs.entries import EntryKind
from rillnode.codecs.errors import RillnodeError


class AppendEntries(Struct, frozen=True):
    """Append entries as one block, all or none; `sender` is sent an EntriesAppended, once.

    Who asks has made sure that `principal` may push them.

    Attributes:
        principal: to whom they are charged.
        log: where they belong: another stream of the same name, made since the asker looked, does
            not get them.
        items: at most what makes one block, see `codecs.entries.split_items`.
        metas: what is kept beside each item; empty: nothing.
        entry_keys: each item's own key, or None; empty: none has any.
        headers: each item's headers, encoded; empty: none has any.
        keys: secondary keys, as an Append has them; those of arrival come to entries of kind BYTES
            by themselves.
        records: named values, as an Append has them.
        seen, follows: as an Append has them.
        token: the asker's own.
        then: what goes on with the answer in a turn of the asker, which is no message to it then.
    """

    sender: Cell
    principal: str
    log: int
    kind: EntryKind
    items: Sequence[bytes]
    metas: Sequence[bytes] = ()
    entry_keys: Sequence[bytes | None] = ()
    headers: Sequence[bytes] = ()
    keys: Sequence[tuple[bytes, int]] = ()
    records: Sequence[tuple[str, bytes | None]] = ()
    seen: int | None = None
    follows: Sequence[tuple[str, int]] = ()
    token: object = None
    then: Then | None = None

    def answer(self, first_index: int, error: RillnodeError | None = None) -> None:
        """Tell the asker what has become of it."""
        answer = EntriesAppended(self, first_index, error)
        self.sender.base.post(self.sender, answer, self.then)


class EntriesAppended(Struct, frozen=True):
    """The entries are durable, the first at `first_index`; or nothing of them is, and why."""

    request: AppendEntries
    first_index: int
    error: RillnodeError | None = None
