"""Tests that what actors say of their mailboxes is true under every load."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import pytest
from thespian.actors import Actor, ActorSystemMessage

from contract_cases import MUCH, RARE, SHARED, USUAL, contract_holds, id_of, with_node
from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.mailboxes import Mailboxes
from rillnode.actors.engine.waiting import Continuation
from rillnode.actors.nextgraph import connection
from rillnode.actors.nextgraph.session import Forwarded
from rillnode.testing import actor_classes

LOADS: Final = (USUAL, RARE, MUCH, SHARED)

SOURCES: Final[set[tuple[type[Actor], type]]] = {(connection.ConnectionActor, Forwarded)}
"""What is nowhere declared, because its sender looks first whether there is room."""


class Posts:
    """Notes what nobody waits for.

    Attributes:
        most: how many of a message have waited in one mailbox, by class of the actor.
    """

    def __init__(self) -> None:
        self.most: Counter[tuple[type[Actor], type]] = Counter()

    def note(self, mailboxes: Mailboxes, cell: Any, message: object, sender: object) -> None:
        if (
            cell.__class__ is not Cell
            or cell.kind.actor_class is None
            or sender is not None
            or isinstance(message, ActorSystemMessage)
            or type(message) in mailboxes._letters.outcomes  # pyright: ignore[reportPrivateUsage]
        ):
            return
        alike = [one for one, by in cell.mailbox if type(one) is type(message) and by is None]
        key = cell.kind.actor_class, type(message)
        self.most[key] = max(self.most[key], len(alike) + 1)


@pytest.fixture(scope="module")
def posts() -> Posts:
    """All that is posted under all loads, whose contract holds, too, as nothing fails."""
    noted, post = Posts(), Mailboxes.post

    def noting(self: Mailboxes, target: Any, message: Any, sender: Any = None) -> None:
        if not isinstance(sender, Continuation):
            noted.note(self, target, message, sender)
        post(self, target, message, sender)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Mailboxes, "post", noting)
        for load in LOADS:
            with_node(contract_holds, load)
    return noted


def name_of(actor_class: Any, kind: type) -> str:
    return id_of((actor_class, kind))


def spare(actor_class: Any) -> Mapping[type, int]:
    declared: Mapping[type, int] = actor_class.spare
    return declared


def test_news_that_nobody_waits_for_is_declared(posts: Posts) -> None:
    undeclared = [
        name_of(actor_class, kind)
        for actor_class, kind in posts.most
        if kind not in spare(actor_class)
        and not hasattr(kind, "merged")
        and (actor_class, kind) not in SOURCES
    ]
    assert undeclared == []


def test_of_news_no_more_waits_than_is_declared(posts: Posts) -> None:
    too_many = [
        name_of(actor_class, kind)
        for (actor_class, kind), number in posts.most.items()
        if number > spare(actor_class).get(kind, number)
    ]
    assert too_many == []


def test_all_that_is_declared_comes(posts: Posts) -> None:
    plain = [one for one in actor_classes() if ".telemetry." not in one.__module__]
    declared = {(one, kind) for one in plain for kind in one.spare}
    assert [name_of(*one) for one in declared - posts.most.keys()] == []
