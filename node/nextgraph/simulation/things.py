"""Objects that simulated NextGraph users put, pin and delete, and what must be there of them.

They come in pairs that share a block: to delete one leaves what the other one needs. What was asked
and not answered may happen at any later time, as what was sent over a connection that is over may
still be on its way: no more is demanded than what is certain.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from rillnode.codecs.nextgraph.blocks import Block, block_id
from rillnode.codecs.nextgraph.objects import BLOCK_BYTES_STEP, split_object

LEAF_BYTES: Final = BLOCK_BYTES_STEP - 12
"""Of content in each block: what is left of one for it."""


class Held(Enum):
    """The known state of a user's pin."""

    ASKED = "asked for"
    CERTAIN = "there"
    LEAVING = "perhaps there"
    GONE = "not there"


@dataclass(slots=True, eq=False)
class Thing:
    """One object.

    Attributes:
        owner: the user who puts it.
        blocks: by id, the root first.
        put: whether it is durable, for its owner was told so.
        deleting: whether it was ever asked that it be deleted.
        deleted: whether the answer was that it is.
        unsure: whether something was asked of it, and not answered.
        pins: of users.
    """

    owner: str
    blocks: dict[bytes, Block]
    put: bool = False
    deleting: bool = False
    deleted: bool = False
    unsure: bool = False
    pins: dict[str, Held] = field(default_factory=dict[str, Held])

    @property
    def root(self) -> bytes:
        """The id of its root."""
        return next(iter(self.blocks))

    @property
    def pinned(self) -> bool:
        """Whether somebody but its owner certainly holds it."""
        return any(one is Held.CERTAIN for name, one in self.pins.items() if name != self.owner)

    @property
    def perhaps_pinned(self) -> bool:
        """Whether somebody but its owner may hold it."""
        others = [one for name, one in self.pins.items() if name != self.owner]
        return any(one is not Held.GONE for one in others) or (self.unsure and bool(others))

    @property
    def stays(self) -> bool:
        """Whether it must be there, whole."""
        return self.put and not self.deleted and (self.pinned or not self.deleting)

    @property
    def gone(self) -> bool:
        """Whether it must not be there."""
        return self.deleted and not self.unsure


class Things:
    """All objects of one document.

    Attributes:
        changes: how often anything has changed: what was asked before a change and answered after
            it says nothing.
    """

    def __init__(self) -> None:
        self.changes = 0
        self._all: list[Thing] = []

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Thing]:
        return iter(self._all)

    def make_pair(self, owner: str, filling: bytes, convergence: bytes) -> list[Thing]:
        """Two objects that share their second leaf; `filling` has three leaves' bytes at least."""
        first, shared, second = (
            filling[at : at + LEAF_BYTES] for at in range(0, 3 * LEAF_BYTES, LEAF_BYTES)
        )
        made = [split_object(leaf + shared, convergence).blocks for leaf in (first, second)]
        pair = [Thing(owner, {block_id(one): one for one in blocks}) for blocks in made]
        self._all += pair
        self.changed()
        return pair

    def changed(self) -> None:
        """Something is not as it was."""
        self.changes += 1

    def must_have(self, thing: Thing) -> list[bytes]:
        """Blocks of an object that must be there."""
        others = {one: None for other in self._all if other.stays for one in other.blocks}
        return [one for one in thing.blocks if one in others]

    def must_not_have(self, thing: Thing) -> list[bytes]:
        """Blocks of an object that must not be there."""
        if not thing.gone:
            return []
        others = {
            one: None
            for other in self._all
            if other is not thing and not other.gone
            for one in other.blocks
        }
        return [one for one in thing.blocks if one not in others]
