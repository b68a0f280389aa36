"""Clients of all protocols at several nodes of one log, and what was confirmed to them.

Each producer pushes one text after the other, and pushes again at another node what was not
confirmed. So each text that was confirmed is there, and is there at most as often as it was tried;
NextGraph's are there once, since a commit that comes again is recognised.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp

from node_processes import NodeProcess
from ockam_peer import OckamPeer
from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.routing.stream import (
    CreateRequest,
    CreateResponse,
    PushConfirm,
    PushRequest,
    Status,
    decode_response,
    encode_request,
)
from rooms import modules
from shared_log_load import NEVER, STREAM, connected

PATIENCE_SECONDS: Final = 25.0
"""Without an answer for so long a node is left for the next one."""

PRODUCERS: Final = 2
PAUSE_SECONDS: Final = 0.05
"""Between two pushes, which leaves the machine to the faults."""

LOST: Final = (RillnodeError, TimeoutError, OSError, EOFError, aiohttp.ClientError)

Push = Callable[[str], Awaitable[int | None]]
"""Pushes a text until it is confirmed; returns its index, where that is told."""


def more_of(host: str) -> str:
    """What a node's configuration needs for these clients, at its address."""
    listeners = "".join(
        f'[{name}]\nlisten = "{host}:{port}"\nallow_plain = true\n{more}'
        for name, port, more in (("ockam", 4000, ""), *(one.LISTENER for one in modules("mixed")))
    )
    grant = '[[grant]]\nwho = "anonymous"\nstreams = "ockam"\nmay = ["create", "push", "pull"]\n'
    return listeners + grant


class Refused(RillnodeError):
    """A push was answered with an error."""


class Users(ABC):
    """Producers of one protocol.

    Args:
        nodes: where they go.
        hosts: the nodes' addresses, in the same order.

    Attributes:
        confirmed: by text, the index that it was confirmed with; None where none is told.
        troubles: how often they were told what, in place of a confirm.
    """

    stream = ""
    """Where the texts are, by its name here."""

    def __init__(self, nodes: Sequence[NodeProcess], hosts: Sequence[str]) -> None:
        self._nodes, self.hosts = nodes, hosts
        self.tries: Counter[str] = Counter()
        self.confirmed: dict[str, int | None] = {}
        self.troubles: Counter[str] = Counter()
        self._counts = [0] * PRODUCERS
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin."""
        self._tasks = [asyncio.create_task(self._produce(who)) for who in range(PRODUCERS)]

    async def progress(self, texts: int = 10, *, seconds: float = 240.0) -> None:
        """Wait until each producer has so many confirmed texts more."""
        wanted = [count + texts for count in self._counts]
        try:
            async with asyncio.timeout(seconds):
                while any(a < b for a, b in zip(self._counts, wanted, strict=True)):
                    for task in self._tasks:
                        if task.done():
                            task.result()
                    await asyncio.sleep(0.05)
        except TimeoutError:
            told = dict(self.troubles)
            raise AssertionError(f"{type(self).__name__} get no confirms: {told}") from None

    async def stop(self) -> None:
        """End them."""
        self._stop.set()
        await asyncio.gather(*self._tasks)

    async def check(self) -> None:
        """Hold what was confirmed against what each node has."""
        logs = [await self._log(node) for node in self._nodes]
        assert all(one == logs[0] for one in logs), f"nodes have different logs of {self.stream}"
        for host, node in zip(self.hosts, self._nodes, strict=True):
            found = await self._patiently(partial(self.texts_at, host, node))
            counts = Counter(found)
            assert self.confirmed.keys() <= counts.keys(), "what was confirmed is lost"
            assert counts.keys() <= self.tries.keys(), "what nobody has pushed is there"
            for text, count in counts.items():
                assert count <= self.copies_max(text), f"{text} is there {count} times"
            for text, index in self.confirmed.items():
                assert index is None or found[index] == text, f"{text} was moved from {index}"

    def copies_max(self, text: str) -> int:
        """How often a text may be there."""
        return self.tries[text]

    @abstractmethod
    def connected(self, host: str, who: int) -> AbstractAsyncContextManager[Push]:
        """A connection of a producer to a node."""

    @abstractmethod
    async def texts_at(self, host: str, node: NodeProcess) -> list[str]:
        """All texts as clients of the protocol find them at a node."""

    async def _produce(self, who: int) -> None:
        at = who
        while not self._stop.is_set():
            try:
                async with self.connected(self.hosts[at % len(self.hosts)], who) as push:
                    while not self._stop.is_set():
                        await self._push(push, who)
                        await asyncio.sleep(PAUSE_SECONDS)
            except LOST as error:
                code = error.code if isinstance(error, RillnodeError) else type(error).__name__
                self.troubles[code] += 1
                if code in NEVER:
                    raise
            at += 1
            await asyncio.sleep(0.1)

    async def _push(self, push: Push, who: int) -> None:
        text = f"{who} {self._counts[who]}"
        self.tries[text] += 1
        async with asyncio.timeout(PATIENCE_SECONDS):
            self.confirmed[text] = await push(text)
        self._counts[who] += 1

    async def _log(self, node: NodeProcess) -> list[bytes]:
        async def pulled() -> list[bytes]:
            async with connected(node) as client:
                found: list[bytes] = []
                stream = await client.stream(self.stream)
                while entries := await stream.pull(len(found), 1_000):
                    found += [entry.data for entry in entries]
                return found

        return await self._patiently(pulled)

    async def _patiently(self, ask: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
        """Ask until it is answered: machines that were away may still come to themselves."""
        async with asyncio.timeout(120.0):
            while True:
                with suppress(*LOST):
                    async with asyncio.timeout(PATIENCE_SECONDS):
                        return await ask()
                await asyncio.sleep(0.5)


class OckamUsers(Users):
    """Push to a stream of the hub, over plain TCP, and know where it is by its return route."""

    stream = "ockam"

    @asynccontextmanager
    async def connected(self, host: str, who: int) -> AsyncGenerator[Push]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            peer = await OckamPeer.connect(f"{host}:4000")
        async with peer:
            request = encode_request(CreateRequest(self.stream))
            async with asyncio.timeout(PATIENCE_SECONDS):
                made = await peer.ask("stream", request)
            answer = decode_response(made.payload)
            if not isinstance(answer, CreateResponse):
                raise Refused("ockam.refused", str(answer))

            async def push(text: str) -> int:
                number = self.tries.total()
                request = PushRequest(number, text.encode())
                confirm = decode_response(
                    (await peer.ask(made.return_route, encode_request(request))).payload
                )
                if not isinstance(confirm, PushConfirm) or confirm.status is not Status.OK:
                    raise Refused("ockam.refused", str(confirm))
                assert confirm.request_id == number
                return confirm.index

            yield push

    async def texts_at(self, host: str, node: NodeProcess) -> list[str]:
        return [data.decode() for data in await self._log(node)]


class Savers(Users):
    """Save positions of a native stream, and look for each other's: none goes back."""

    stream = STREAM

    def __init__(self, nodes: Sequence[NodeProcess], hosts: Sequence[str]) -> None:
        super().__init__(nodes, hosts)
        self._saved = [0] * PRODUCERS

    @asynccontextmanager
    async def connected(self, host: str, who: int) -> AsyncGenerator[Push]:
        node, other = self._nodes[self.hosts.index(host)], (who + 1) % PRODUCERS
        async with connected(node) as client:

            async def push(text: str) -> None:
                self._saved[who] = await client.set_index(_saver(who), STREAM, self.tries.total())
                known = self._saved[other]
                found = await client.get_index(_saver(other), STREAM) or 0
                assert found >= known, f"a position went back from {known} to {found}"

            yield push

    async def check(self) -> None:
        """Each node has what was saved last."""
        for node in self._nodes:
            found = await self._patiently(partial(self._found, node))
            assert all(a >= b for a, b in zip(found, self._saved, strict=True))

    async def _found(self, node: NodeProcess) -> list[int]:
        async with connected(node) as client:
            return [await client.get_index(_saver(who), STREAM) or 0 for who in range(PRODUCERS)]

    async def texts_at(self, host: str, node: NodeProcess) -> list[str]:
        return []  # they push nothing


def _saver(who: int) -> str:
    return f"saver-{who}"


def all_users(nodes: Sequence[NodeProcess], hosts: Sequence[str]) -> Iterable[Users]:
    """Producers of each of these kinds."""
    kinds = (OckamUsers, Savers, *(module.USERS for module in modules("mixed")))
    return [kind(nodes, hosts) for kind in kinds]


def prepare(data: Path) -> None:
    """Put what these clients ask for into a node's data directory, before it starts."""
    for module in modules("mixed"):
        module.prepare(data)
