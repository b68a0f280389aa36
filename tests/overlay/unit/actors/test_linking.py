"""A node's table of neighbours: what of it the tracker is told, and when."""

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

from rillnode.actors.core.delivery import Origin
from rillnode.actors.overlay.context import OverlayContext
from rillnode.actors.overlay.dialect import Dialect
from rillnode.actors.overlay.linking import CONNECT_SECONDS, Neighbour, Neighbourhood
from rillnode.codecs.limits import FRAME_BYTES_MAX
from rillnode.codecs.streamr.node_address import parse_node_address

OWN, B, C, D = ("0" * 64, "b" * 64, "c" * 64, "d" * 64)
ADDRESSES = {one: parse_node_address(f"noise://{one}@h:1") for one in (B, C, D)}


def table(*, told_one_end: bool = False) -> Neighbourhood:
    settings = SimpleNamespace(identity=OWN, told_one_end=told_one_end)
    context = SimpleNamespace(settings=settings, admitted=Counter[str](), streams=None)
    return Neighbourhood(cast(OverlayContext, context), (), cast(Any, None))


def link(links: Neighbourhood, *identities: str) -> None:
    for identity in identities:
        origin = Origin(f"noise:{identity}", FRAME_BYTES_MAX, native=True)
        links.linked[identity] = Neighbour(identity, (), origin, Dialect())


def names(links: Neighbourhood, now: float) -> tuple[list[str], int] | None:
    told = links.news(now)
    return None if told is None else (sorted(one[:1] for one in told[0]), told[1])


def test_an_instruction_counts_once_everybody_is_linked() -> None:
    links = table()
    links.instruct([ADDRESSES[B], ADDRESSES[C]], 1, 0.0)
    link(links, B)
    assert names(links, 1.0) == (["b"], 0)
    link(links, C)
    assert names(links, 2.0) == (["b", "c"], 1)
    assert names(links, 3.0) is None
    assert links.exact


def test_an_instruction_that_cannot_be_carried_out_counts_after_a_while() -> None:
    links = table()
    links.instruct([ADDRESSES[B], ADDRESSES[C]], 1, 0.0)
    link(links, B)
    assert names(links, CONNECT_SECONDS / 2) == (["b"], 0)
    assert names(links, CONNECT_SECONDS) == (["b"], 1)
    assert not links.exact


def test_who_has_not_heard_that_it_is_wanted_no_more_is_told_of_after_a_while_only() -> None:
    """Else a tracker would keep links because those at their ends are slow to hear of it."""
    links = table()
    links.instruct([ADDRESSES[B], ADDRESSES[C]], 1, 0.0)
    link(links, B, C, D)
    assert names(links, 1.0) == (["b", "c"], 1)
    assert not links.exact
    assert names(links, CONNECT_SECONDS) == (["b", "c", "d"], 1)


def test_who_came_as_a_released_tracker_told_it_is_told_of_at_once() -> None:
    """Else the tracker would take the link back, or have this node dial as well."""
    links = table(told_one_end=True)
    links.instruct([ADDRESSES[B]], 1, 0.0)
    link(links, B, C)
    assert names(links, 1.0) == (["b", "c"], 1)
