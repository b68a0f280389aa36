"""Tests who may speak to a node's tracker, member and neighbours actors, and its links."""

import asyncio
from pathlib import Path

from msgspec.structs import replace

from core_support import Core
from neighbour_support import overlay_at, peers
from rillnode.actors.core.access import NODE_PRINCIPAL, Grant
from rillnode.codecs.keys import Identity
from rillnode.codecs.streamr.node_address import NodeAddress
from rillnode.node.config import Config, NoiseListener, PeerTable
from rillnode.node.overlay.config import OverlayTable, TrackerTable
from rillnode.node.overlay.overlay import RELEASE_SECONDS, OverlayLinks

OWN = Identity.from_seed(bytes(32))
TRACKER, FRIEND, STRANGER = "1" * 64, "2" * 64, "3" * 64
CONFIG = Config(
    name="a",
    data_dir=Path("a"),
    noise=NoiseListener(listen="127.0.0.1:4100"),
    peers=(PeerTable(name="t", noise="127.0.0.1:1", identity=TRACKER),),
    tables=[TrackerTable(enabled=True), OverlayTable(trackers=("t",))],
)


async def reached(core: Core, principal: str, address: bytes) -> bool:
    """Whether a principal's message comes to anybody."""
    before = core.router.undelivered.total()
    core.peer(principal).send(address, b"[]")
    await core.settle()
    return core.router.undelivered.total() == before


async def test_who_is_not_named_or_granted_reaches_nobody(core: Core) -> None:
    friend = Grant(who=f"noise:{FRIEND}", streams="s", may=frozenset(("push", "subscribe")))
    core.access.add(friend)
    overlay = overlay_at(core, CONFIG, OWN)
    peer = core.peer()
    await peer.ask("stream")  # let everything start
    stream = b"overlay/s/0"
    allowed = {
        (principal, address)
        for principal in (f"noise:{TRACKER}", f"noise:{FRIEND}", f"noise:{STRANGER}", "x")
        for address in (b"tracker", b"overlay")
        if await reached(core, principal, address)
    }
    assert allowed == {(f"noise:{FRIEND}", b"tracker"), (f"noise:{TRACKER}", b"overlay")}
    assert not await reached(core, f"noise:{STRANGER}", stream)
    assert await reached(core, NODE_PRINCIPAL, b"overlay")
    assert not overlay.admits(STRANGER)
    await overlay.close()


async def test_a_tracker_that_changes_its_key_is_heard_with_either(core: Core) -> None:
    peer = PeerTable(name="t", noise="127.0.0.1:1", identity=f"{TRACKER},{FRIEND}")
    overlay = overlay_at(core, replace(CONFIG, peers=(peer,)), OWN)
    await core.settle()
    assert await reached(core, f"noise:{TRACKER}", b"overlay")
    assert await reached(core, f"noise:{FRIEND}", b"overlay")
    assert not await reached(core, f"noise:{STRANGER}", b"overlay")
    await overlay.close()


async def test_a_link_stays_for_a_while_after_the_last_that_needed_it(core: Core) -> None:
    links = OverlayLinks(CONFIG, OWN, peers(core), core.clock)
    node = NodeAddress(FRIEND, "127.0.0.1", 1)
    route = links.hold(node)
    assert links.hold(node) == route
    links.release(node)
    links.release(node)
    links.hold(node)
    core.clock.advance(2 * RELEASE_SECONDS)
    assert core.router.lookup(route[0].value) is not None
    links.release(node)
    core.clock.advance(RELEASE_SECONDS / 2)
    assert core.router.lookup(route[0].value) is not None
    core.clock.advance(RELEASE_SECONDS)
    assert core.router.lookup(route[0].value) is None
    await asyncio.sleep(0)
    await links.close()
