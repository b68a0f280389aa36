"""Served addresses while links are cut and programs and nodes die: each call has one outcome."""

import asyncio
from collections import Counter
from random import Random
from typing import Final

import pytest

from rillnode import Client, Message
from rillnode.codecs import native
from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.routing.routes import WireMessage
from rillnode.node.client.messages import Answer
from rillnode.testing import Network

HUB: Final = "hub"
FAR: Final = "far"
PRESSES: Final = ("press-1", "press-2", "press-3")
FAULTY_SECONDS: Final = 120.0
SETTLED_SECONDS: Final = 150.0
"""Until a link that brings nothing is found dead, twice over."""

CODES: Final = {"call.lost", "peer.unreachable", "address.unknown", "actor.busy", "node.draining"}
"""What a caller may be told while whoever serves comes and goes."""


async def press(network: Network, random: Random, far: bool) -> None:
    """Serve for ever, one of a group; `far`: through the node that is not the hub."""

    async def work(message: Message) -> bytes:
        await asyncio.sleep(random.expovariate(2.0))
        return b"printed " + message.payload

    client = await network.client(FAR if far else HUB)
    at = f"peer/{HUB}" if far else ""
    service = await client.serve("printer", work, at=at, group=True, calls_max=4, lease_seconds=5.0)
    await service.wait()


class Caller:
    """Sends calls that are not repeated, and notes what comes of each."""

    def __init__(self, client: Client, route: str, random: Random) -> None:
        self._client = client
        self._route = route
        self._random = random
        self.sent = 0
        self.outcomes: dict[int, list[str]] = {}

    async def call_for(self, network: Network, seconds: float) -> None:
        until = network.now + seconds
        while network.now < until:
            await self._send()
            await asyncio.sleep(self._random.expovariate(10.0))

    async def _send(self) -> None:
        number = self.sent
        found: list[str] = []

        def came(wire: WireMessage) -> None:
            found.append(_outcome(number, wire.payload))

        messages = self._client._session.messages  # pyright: ignore[reportPrivateUsage]
        address = messages.attach(came)
        try:
            await self._client.send(self._route, b"%d" % number, return_address=address)
        except RillnodeError:
            messages.detach(address)  # there is no link: it was not sent
            return
        self.sent += 1
        self.outcomes[number] = found


def _outcome(number: int, payload: bytes) -> str:
    if not native.is_native(payload):
        return "printed" if payload == b"printed %d" % number else "another's"
    response = native.decode_response(payload)
    assert isinstance(response, native.Failure)
    return response.code


class Faults:
    """Kills, pauses and cuts off hosts, one after the other."""

    def __init__(
        self, network: Network, random: Random, hosts: tuple[str, ...], *, far: bool
    ) -> None:
        self._network = network
        self._far = far
        self._random = random
        self._hosts = hosts

    def run(self, host: str) -> None:
        self._network.start(host, press, self._network, self._random, self._far)

    async def go_on_for(self, seconds: float) -> None:
        network, random = self._network, self._random
        until = network.now + seconds
        while network.now < until:
            await asyncio.sleep(random.expovariate(0.2))
            host = random.choice(self._hosts)
            match random.choice(("kill", "power", "pause", "partition")):
                case "kill" | "power" as how:
                    (network.kill if how == "kill" else network.cut_power)(host)
                    await asyncio.sleep(random.expovariate(0.3))
                    network.restart(host)
                case "pause":
                    network.pause(host)
                    await asyncio.sleep(random.expovariate(0.5))
                    network.resume(host)
                case _:
                    with network.partition(host):
                        await asyncio.sleep(random.expovariate(0.2))


def run(seed: int, hosts: tuple[str, ...], *, far: bool = False) -> Caller:
    """Call a group of three while some hosts fail; what came of it.

    Either who calls or who serves (`far`) is behind another node than the hub, where that may fail.
    """
    with Network(seed=seed, jitter_ms=2.0) as network:
        network.add_node(HUB)
        network.add_node(FAR, peers=(HUB,))
        random = Random(seed)
        faults = Faults(network, random, hosts, far=far)
        near = far or hosts == PRESSES
        route = "printer" if near else f"peer/{HUB};printer"

        async def application() -> Caller:
            for host in PRESSES:
                faults.run(host)
            client = await network.client(HUB if near else FAR)
            caller = Caller(client, route, random)
            await asyncio.gather(
                caller.call_for(network, FAULTY_SECONDS), faults.go_on_for(FAULTY_SECONDS)
            )
            await asyncio.sleep(SETTLED_SECONDS)
            # All is well again.
            answers = await asyncio.gather(*(client.ask(route, b"1") for _ in range(3)))
            assert {answer.payload for answer in answers} == {b"printed 1"}
            await client.close()
            return caller

        return network.run(application())


QUICK_AND_LONG: Final = [
    0,
    *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 6)),
]
"""Seeds, of which the quick part has one."""


@pytest.mark.parametrize("seed", QUICK_AND_LONG)
def test_each_call_has_one_outcome_whatever_becomes_of_who_serves(seed: int) -> None:
    caller = run(seed, PRESSES)
    assert caller.sent > 500
    assert {len(found) for found in caller.outcomes.values()} == {1}
    codes = Counter(found[0] for found in caller.outcomes.values())
    assert set(codes) <= {"printed", *CODES}
    assert codes["printed"] > caller.sent // 4


@pytest.mark.parametrize("seed", QUICK_AND_LONG)
def test_no_call_has_two_outcomes_whatever_fails(seed: int) -> None:
    caller = run(seed, (*PRESSES, HUB))
    assert caller.sent > 500
    assert {len(found) for found in caller.outcomes.values()} <= {0, 1}
    assert ["another's"] not in caller.outcomes.values()
    assert sum(found == ["printed"] for found in caller.outcomes.values()) > caller.sent // 10


@pytest.mark.parametrize(
    "seed", [153, *(pytest.param(n, marks=pytest.mark.long) for n in range(6))]
)
def test_each_call_has_one_outcome_where_who_serves_is_behind_another_node(seed: int) -> None:
    caller = run(seed, (*PRESSES, FAR), far=True)
    assert caller.sent > 500
    assert {len(found) for found in caller.outcomes.values()} == {1}
    codes = Counter(found[0] for found in caller.outcomes.values())
    assert set(codes) <= {"printed", *CODES}
    assert codes["printed"] > caller.sent // 10


async def asks(client: Client, count: int) -> list[Answer | BaseException]:
    calls = (client.ask("printer", b"%d" % n, timeout_seconds=30.0) for n in range(count))
    return await asyncio.gather(*calls, return_exceptions=True)


def test_a_node_that_is_restarted_in_turn_loses_no_question() -> None:
    """Asked again over a new link, each has its answer or says why not; the address comes back."""
    with Network(seed=3) as network:
        network.add_node(HUB)

        async def application() -> Counter[str]:
            async with (
                await network.client(HUB) as client,
                await client.serve("printer", lambda message: message.payload),
            ):
                codes: Counter[str] = Counter()
                for _ in range(5):
                    asking = asyncio.ensure_future(asks(client, 20))
                    await asyncio.sleep(0.001)
                    network.kill(HUB)
                    await asyncio.sleep(1.0)
                    network.restart(HUB)
                    for found in await asking:
                        codes[getattr(found, "code", "answered")] += 1
                    await asyncio.sleep(10.0)
                assert (await client.ask("printer", b"x")).payload == b"x"
                return codes

        codes = network.run(application())
        assert codes.total() == 100
        assert set(codes) <= {"answered", "address.unknown"}
