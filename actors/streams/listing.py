"""A page of what an asker may see, gathered from as many pages of the store as that takes.

Where to go on is told by the last item that the asker sees: the name of one that it may not know
of is never told, not even as a place in a list.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, TypeVar

from rillnode.actors.delivery import Origin
from rillnode.codecs import native
from rillnode.codecs.ockam.routing import Route

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Listing(Generic[T]):
    """One list request to an address of a service, and the items found for it so far."""

    origin: Origin
    return_route: Route
    request: Any
    address: bytes
    items: list[T] = field(default_factory=list[T])

    def take(self, visible: Iterable[T]) -> None:
        """Add what the asker may see of one page of the store, as far as it fits."""
        self.items += islice(visible, native.LIST_MAX - len(self.items))

    @property
    def full(self) -> bool:
        """Whether one answer holds no more."""
        return len(self.items) == native.LIST_MAX
