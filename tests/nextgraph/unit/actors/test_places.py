"""Tests that NextGraph's names that are written at once lie in one shard."""

import pytest

from rillnode.actors.log.shared.placement import CATALOGUE, Placement
from rillnode.actors.nextgraph.names import place_of, topic_stream
from rillnode.actors.nextgraph.records import name_of
from rillnode.codecs.words import reserved_streams

OVERLAY, ONE, OTHER = b"\x11" * 32, b"\x22" * 32, b"\x33" * 32


@pytest.mark.parametrize(
    "name",
    [
        topic_stream(OVERLAY, ONE),
        name_of("overlay", OVERLAY),
        name_of("pin", OVERLAY, ONE, "inner", OTHER),
        name_of("pin", OVERLAY, ONE, ""),
        name_of("published", OVERLAY, ONE),
        name_of("block", OVERLAY, ONE),
        name_of("parent", OVERLAY, ONE, ""),
        name_of("object", OVERLAY, ONE, OTHER),
        name_of("bytes", OVERLAY, ONE),
        name_of("held", OVERLAY),
    ],
)
def test_all_of_an_overlay_lies_in_one_place(name: str) -> None:
    assert place_of(name) == OVERLAY.hex()


@pytest.mark.parametrize(
    "name",
    [
        name_of("user", OVERLAY),
        name_of("invitation", ONE),
        name_of("outer", OVERLAY),
        name_of("inbox", f"inner-{OVERLAY.hex()}", ONE),
        name_of("letters", "global", ONE),
        name_of("wallet", ONE),
        "nextgraph/",
        "beside/4294967296/a",
        "streamr/revoked/a",
        f"block/{OVERLAY.hex()}/{ONE.hex()}",
    ],
)
def test_all_else_lies_where_every_node_has_it(name: str) -> None:
    assert place_of(name) is None
    if not name.startswith("beside/"):
        assert Placement(16, [place_of]).of_value(name) == CATALOGUE


def test_overlays_are_spread() -> None:
    place = Placement(16, [place_of])
    names = [topic_stream(bytes([number]) * 32, ONE) for number in range(64)]
    assert len({place.of_stream(name) for name in names}) > 8


def test_nobody_makes_a_stream_of_these_names() -> None:
    assert topic_stream(OVERLAY, ONE).startswith(reserved_streams())
