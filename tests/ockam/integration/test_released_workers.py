"""Workers of released Ockam nodes ask an application's actors and clients, and are asked by them.

Over TCP, through a secure channel, by an alias at either side, and from the command line.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from command_line import begun, call, lines
from forked import PIPE
from nodes import CLIENT, connect_to, node_config, store_with
from ockam_worker import SECONDS, Level, Worker, workers
from rillnode import Actor, Client, Context, Message, Node, RillnodeError
from rillnode.node.config import GrantTable, PeerTable
from rillnode.node.keys.files import write_key
from rillnode.node.ockam.client.channel import SecureChannel
from rillnode.node.ockam.client.hub import Hub
from rillnode.node.ockam.config import ChannelTable, OckamListener

Make = Callable[[Level], Worker]

WORKERS = workers()

each_worker = pytest.mark.parametrize(
    ("level", "make"), [one[1:] for one in WORKERS], ids=[one[0] for one in WORKERS]
)
each_with_channels = pytest.mark.parametrize(
    ("level", "make"),
    [one[1:] for one in WORKERS if one[1].channel],
    ids=[one[0] for one in WORKERS if one[1].channel],
)
_CHANNELLED = next(one for one in WORKERS if one[1].channel)
one_with_channels = pytest.mark.parametrize(
    ("level", "make"),
    [
        pytest.param(*one[1:], id=one[0], marks=() if one is _CHANNELLED else pytest.mark.long)
        for one in WORKERS
    ],
)


class Greeter(Actor):
    """Greets, and asks whoever a message names after `ask`."""

    async def receive(self, message: Message, ctx: Context) -> bytes:
        if message.payload.startswith(b"ask "):
            return (await ctx.ask(message.payload[4:].decode(), b"ada")).payload
        return b"hello," + message.payload


@dataclass
class Scene:
    """A released worker, a node that knows it as its peer `released`, and a client of the node."""

    worker: Worker
    node: Node
    client: Client
    ockam: str


@asynccontextmanager
async def scene(directory: Path, level: Level, make: Make) -> AsyncGenerator[Scene]:
    async with asyncio.timeout(120.0), make(level) as worker:
        config = node_config(
            directory,
            GrantTable(
                who=f"noise:{CLIENT.public_hex}", streams="*", addresses="*", may=("admin",)
            ),
            GrantTable(who="anonymous", addresses="printer*", may=("send",)),
            GrantTable(who="ockam:*", addresses="printer*", may=("send",)),
        )
        listener = config.table(OckamListener)
        assert listener is not None
        released = PeerTable(name="released", ockam=await worker.listen(), dialect=level.dialect)
        config = replace(config, peers=(released,)).having(
            replace(listener, channel=ChannelTable())
        )
        async with Node(config, make_store=store_with()) as node, await connect_to(node) as client:
            await node.spawn(Greeter, address="greeter", allow=["anonymous", "ockam:*"])
            yield Scene(worker, node, client, node.addresses()["ockam"])


async def printed(message: Message) -> bytes:
    return b"printed," + message.payload


async def ask(client: Client, route: str, payload: bytes = b"ada") -> bytes:
    return (await client.ask(route, payload, timeout_seconds=SECONDS)).payload


@each_worker
async def test_it_asks_and_is_asked_over_tcp(tmp_path: Path, level: Level, make: Make) -> None:
    async with scene(tmp_path, level, make) as there, await there.client.serve("printer", printed):
        assert await there.worker.ask(there.ockam, "greeter", "Ada") == "hello,Ada"
        assert await there.worker.ask(there.ockam, "printer", "page") == "printed,page"
        assert await ask(there.client, "peer/released;shout") == b"ADA"
        # An actor asks it as well.
        assert await ask(there.client, "greeter", b"ask peer/released;shout") == b"ADA"


@each_with_channels
async def test_it_asks_and_is_asked_through_secure_channels(
    tmp_path: Path, level: Level, make: Make
) -> None:
    async with scene(tmp_path, level, make) as there, await there.client.serve("printer", printed):
        assert await there.worker.channel(there.ockam, "greeter", "Ada") == "hello,Ada"
        assert await there.worker.channel(there.ockam, "printer", "page") == "printed,page"
        assert level.channel is not None
        async with await SecureChannel.open(
            there.client, "peer/released;SC_listener", level=level.channel
        ) as channel:
            assert (await channel.ask("shout", b"ada")).payload == b"ADA"

            # What comes back finds an address that is served at this end.
            principals: list[str] = []

            async def note(message: Message) -> None:
                principals.append(f"{message.principal} {message.payload.decode()}")

            async with await channel.serve("notes", note):
                await channel.send("shout", b"bob", return_address=b"notes")
                while not principals:
                    await asyncio.sleep(0.01)
            assert principals == [f"ockam:{channel.remote_key} BOB"]

            # By an alias, too, whose messages come sealed.
            async with await Hub(channel).serve(None, printed) as service:
                assert await there.worker.ask(service.address, "page") == "printed,page"


@each_worker
async def test_it_is_asked_by_its_alias_at_the_node(
    tmp_path: Path, level: Level, make: Make
) -> None:
    async with scene(tmp_path, level, make) as there:
        alias = await there.worker.register(there.ockam, "forwarding")
        assert alias.startswith("FWD_")
        assert await ask(there.client, alias) == b"ADA"
        assert await ask(there.client, "greeter", b"ask " + alias.encode()) == b"ADA"


@each_worker
async def test_it_asks_a_client_by_its_alias_at_the_hub(
    tmp_path: Path, level: Level, make: Make
) -> None:
    async with scene(tmp_path, level, make) as there:
        hub = Hub(there.client, "peer/released")
        async with await hub.serve(None, printed) as service:
            assert await there.worker.ask(service.address, "page") == "printed,page"
            assert await ask(there.client, f"peer/released;{service.address}") == b"printed,ada"
        if level.named_aliases:
            async with await hub.serve("printer", printed) as service:
                assert service.address == "forward_to_printer"
                assert await there.worker.ask("forward_to_printer", "page") == "printed,page"
        else:
            hub = Hub(there.client, "peer/released", answer_seconds=0.2)
            with pytest.raises(RillnodeError, match="has it such a service") as refused:
                await hub.serve("printer", printed)
            assert refused.value.code == "hub.timeout"


@one_with_channels
async def test_the_command_line_asks_it_and_answers_it(
    tmp_path: Path, level: Level, make: Make
) -> None:
    key = tmp_path / "client.key"
    write_key(key, CLIENT)
    async with scene(tmp_path / "node", level, make) as there:
        where = f"noise://{there.node.addresses()['noise']}"
        options = ("--node", where, "--node-identity", there.node.identity, "--key", str(key))

        async def shown(route: str, *more: str) -> str:
            asked = await asyncio.to_thread(call, "route", "ask", route, "ada", *more, *options)
            (answer,) = lines(asked)
            return str(answer["text"])

        assert await shown("peer/released;shout") == "ADA"
        assert await shown(await there.worker.register(there.ockam, "forwarding")) == "ADA"
        if level.channel is not None:
            listener = ("--channel", "peer/released;SC_listener")
            assert await shown("shout", *listener, "--channel-level", level.channel) == "ADA"

        @asynccontextmanager
        async def serving(*words: str) -> AsyncGenerator[str]:
            argv = ("route", "serve", *words, *options, "--", "tr", "a-z", "A-Z")
            with begun(*argv, stderr=PIPE, text=True) as process:
                try:
                    assert process.stderr is not None
                    line = await asyncio.to_thread(process.stderr.readline)
                    yield str(line).removeprefix("serving ").partition(";")[0]
                finally:
                    process.terminate()
                    await asyncio.to_thread(process.wait)

        async with serving("printer") as address:
            assert await there.worker.ask(there.ockam, address, "page") == "PAGE"
            if level.channel is not None:
                assert await there.worker.channel(there.ockam, address, "page") == "PAGE"
        to_hub = ("route", "serve", "-", "--hub", "peer/released", "--group", *options, "--", "tr")
        assert b"--group" in (await asyncio.to_thread(call, *to_hub)).stderr
        async with serving("-", "--hub", "peer/released") as alias:
            assert await there.worker.ask(alias, "page") == "PAGE"
