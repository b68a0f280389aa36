"""The plug-in `ockam` keeps the contract of plug-ins."""

from collections.abc import Sequence
from pathlib import Path

from long_suites import leaves_long
from ockam_peer import OckamPeer
from rillnode.actors.ockam.answering import AnsweringActor
from rillnode.codecs.routing.stream import CreateRequest, PushRequest, encode_request
from rillnode.node.config import PlugInTable
from rillnode.node.ockam.config import OckamListener, ServicesTable
from rillnode.testing.contract import PlugInContract, Used


# As `test_failing_once`, as the hub's suite, and as for Streamr's simulated clients.
@leaves_long(
    "test_an_actor_that_fails_loses_its_message_and_nothing_else",
    "test_what_was_stored_before_a_kill_is_there_after_it",
    "test_a_simulated_run_is_the_same_again",
)
class TestOckam(PlugInContract):
    name = "ockam"
    listeners = ("ockam",)
    actors = (AnsweringActor,)
    scenario = """
        nodes = 1
        messages = 20
        seconds = 5.0
        clients.ockam_tcp_users = 1
        clients.channel_users = 1
    """

    def tables(self, directory: Path) -> Sequence[PlugInTable]:
        return (OckamListener(listen="127.0.0.1:0"), ServicesTable())

    async def use(self, used: Used) -> None:
        async with await OckamPeer.connect(used.addresses["ockam"]) as peer:
            assert (await peer.ask("echo", b"\x01x")).payload == b"\x01x"
            await peer.ask("stream", encode_request(CreateRequest("readings")))
            await peer.ask("ST_S_0_readings", encode_request(PushRequest(1, b"x")))
        stream = await used.client.stream("readings")
        assert [one.data for one in await stream.pull(-1)] == [b"x"]
