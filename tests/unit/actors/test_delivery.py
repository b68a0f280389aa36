"""What lives no longer than a connection, when what it has sent is handled after its end."""

from core_support import Core, with_core
from rillnode.actors.streams.subscription import SubscriptionActor
from rillnode.codecs import native

NAME = f"{SubscriptionActor.__module__}.{SubscriptionActor.__qualname__}"


def test_who_subscribed_and_is_gone_when_that_is_handled_leaves_nothing() -> None:
    async def test(core: Core) -> None:
        peer, other = core.peer(), core.peer()
        (opened,) = await peer.ask("stream", native.OpenRequest(1, "s", 1))
        address = bytes(opened.stream.partitions[0].address)
        peer.origin.end()
        await peer.ask(address, native.SubscribeRequest(9, 0, 1_000))
        assert core.system.stats()[NAME].cells == 0
        assert not peer.origin.attached
        await other.ask(address, native.SubscribeRequest(9, 0, 1_000))
        assert core.system.stats()[NAME].cells == 1

    with_core(test)
