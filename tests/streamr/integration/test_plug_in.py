"""The plug-in `streamr` keeps the contract of plug-ins."""

from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

from long_suites import leaves_long
from rillnode import streamr
from rillnode.actors.streamr.connection import StreamrConnection
from rillnode.actors.streamr.directory import Directory
from rillnode.actors.streamr.relay import RelayActor
from rillnode.actors.streamr.resend import ResendActor
from rillnode.codecs.streamr.ethereum import EthereumKey
from rillnode.node.config import PlugInTable
from rillnode.node.streamr.client.client import Client
from rillnode.node.streamr.client.endpoints import endpoints_of
from rillnode.node.streamr.config import StreamrListener
from rillnode.testing.contract import PlugInContract, Used
from streamr_keys_support import rsa_key


# As `test_failing_once`, and as the client's suite.
@leaves_long(
    "test_an_actor_that_fails_loses_its_message_and_nothing_else",
    "test_what_was_stored_before_a_kill_is_there_after_it",
)
class TestStreamr(PlugInContract):
    name = "streamr"
    listeners = ("streamr",)
    actors = (StreamrConnection, Directory, RelayActor, ResendActor)
    scenario = """
        nodes = 1
        messages = 20
        seconds = 5.0
        streamr = { users = 1 }
    """
    wrong = (("[streamr]\nlisten = '0.0.0.0:0'", "config.plain"),)

    def tables(self, directory: Path) -> Sequence[PlugInTable]:
        return (StreamrListener(listen="127.0.0.1:0"),)

    async def use(self, used: Used) -> None:
        stream = await used.client.stream("readings")
        number = (await used.client.describe("readings")).partitions[0].next_index
        endpoints = endpoints_of(f"ws://{used.addresses['streamr']}")
        key = EthereumKey(b"a user's key".ljust(32, b"."))
        async with Client(endpoints, key=key, make_rsa_key=rsa_key) as client:
            await client.open()
            async with await client.subscribe("readings") as messages:
                await client.publish("readings", number)
                assert (await anext(messages)).content == number
            await client.flush()
            async with aclosing(client.resend("readings", streamr.Last(1))) as resent:
                assert [one.content async for one in resent] == [number]
        assert len(await stream.pull(number)) == 1
