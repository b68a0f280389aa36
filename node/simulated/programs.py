"""Programs that use simulated nodes: real clients that note what they do and what they see.

Each runs in a process of its own. When that is killed, the next one begins as a new program would:
with what it had saved on a node, and nothing else.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import shake_128
from math import inf
from typing import Final

from rillnode.codecs.bare import Codec
from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.limits import MESSAGE_SECONDS_MAX
from rillnode.node.client.client import Client
from rillnode.node.client.session import Session
from rillnode.node.client.stream import Stream
from rillnode.node.simulated.history import History, Log, log_of
from rillnode.node.simulated.world import Machine, World

MARKER: Final = b"rill-simulated "
"""Begins each payload, so that it is recognised where it must not be seen."""

TEXT: Final[Codec[str]] = Codec(str)
"""How services of a node are sent a text."""

_FILLING_AHEAD: Final = 251

AGAIN_SECONDS: Final = 0.5
"""Pause of an application after a failure that it can do nothing about."""

CALL_SECONDS: Final = 5.0

CALM_SECONDS: Final = 75.0
"""What has become of links in trouble shows by then: no silence is borne for longer."""

REST_SECONDS: Final = 130.0
"""What is idle is passivated by then."""

ANSWER_SECONDS: Final = 30.0
"""Within which a request that is open when all faults are over is answered, whatever links need."""

HARM_SECONDS: Final = 2 * MESSAGE_SECONDS_MAX + 5.0
"""For how long what was harmed on the way may show: a link waits for the rest of a message that has
none, and who has asked over it does."""

NOT_THERE: Final = ("address.unknown", "stream.unknown", "stream.removed")
"""What a node says of a stream that is not there."""


@dataclass(frozen=True, slots=True)
class Share:
    """The state that all clients of a run share.

    Attributes:
        stream: which all nodes share; empty: each node has its own.
        nodes: those of a run whose nodes keep their streams in one log; else there are none.
    """

    world: World
    history: History
    partitions: int
    seconds: float
    stream: str = ""
    nodes: tuple[str, ...] = ()

    def log_for(self, node: str, client: str) -> str:
        """The stream that a client of a node uses, as the history calls it.

        Where all nodes keep all streams there are fewer of these than nodes, so that clients of
        several nodes use each.
        """
        if not self.nodes:
            return log_of(node)
        number = int(client[len(client.rstrip("0123456789")) :])
        return self.streams[number % len(self.streams)]

    @property
    def streams(self) -> list[str]:
        """Those of a run whose nodes keep them in one log."""
        return [log_of(node) for node in self.nodes[: max(1, len(self.nodes) - 1)]]


def payload_of(producer: str, number: int, size: int) -> bytes:
    """One entry's bytes: who pushes it, its number, and filling that depends on both."""
    return payloads_of(producer, (number,), size)[0]


def payloads_of(producer: str, numbers: Sequence[int], size: int) -> list[bytes]:
    """The bytes of some entries of one producer."""
    begin, filling = b"%b%b " % (MARKER, producer.encode()), _filling(producer, size)
    found: list[bytes] = []
    for number in numbers:
        head = b"%b%d " % (begin, number)
        at, rest = number % _FILLING_AHEAD, size - len(head)
        found.append(head + filling[at : at + rest] if rest > 0 else head)
    return found


@lru_cache(maxsize=64)
def _filling(producer: str, size: int) -> bytes:
    return shake_128(producer.encode()).digest(size + _FILLING_AHEAD)


class Program(ABC):
    """One client program, on a machine of its own.

    Attributes:
        machine: where it runs.
        node: the node that it talks to.
        done: whether all that it has to push is confirmed.
        stream_name: the node's stream.
        log_name: what the history calls the node's log of it.
        life: the program's name and how often it was started: no two lives push the same.
        random: what is chance in its deeds.
        only_log: whether it uses the node's stream, which is always there, and nothing else.
        roams: whether it may go on at another node that keeps the same streams.
    """

    only_log = False
    roams = True

    def __init__(self, share: Share, machine: Machine, node: str) -> None:
        self.share = share
        self.machine = machine
        self.node = node
        self.done = False
        self.name = machine.name
        self.log_name = share.log_for(node, machine.name)
        self.stream_name = share.stream or self.log_name
        self.life = f"{self.name}.0"
        self._lives = 0
        self._places = share.world.network.random(f"nodes of {machine.name}")
        self.random = share.world.network.random(f"deeds of {machine.name}")
        self._task: asyncio.Task[None]
        self._asked: tuple[Session | None, frozenset[int]] = (None, frozenset())
        self._healed_at = inf

    def start(self) -> None:
        """Begin, in the process that runs on the machine now."""
        share = self.share
        if share.nodes:
            if self._lives and self.roams:
                self.node = self._places.choice(share.nodes)
            share.history.nodes[self.name] = self.node
        self._lives += 1
        self.life = f"{self.name}.{self._lives}"
        self._task = self.machine.loop.create_task(self._run())

    def rest(self) -> None:
        """Stay connected, and do nothing more."""
        self.machine.loop.call_soon(self._task.cancel)

    def healed(self) -> None:
        """All faults are over: what is asked now must be answered."""
        session, self._healed_at = self.machine.session, self.share.history.now()
        if session is not None:
            self._asked = session, session.open_requests

    @abstractmethod
    async def live(self, client: Client, stream: Stream) -> None:
        """Do what such a client does; returns when there is nothing left to do."""

    def missing(self, healed_at: float) -> Iterator[str]:
        """What it has not got yet, and must get since all faults were over at `healed_at`."""
        session, asked = self._asked
        if (
            session is not None
            and session is self.machine.session
            and asked & session.open_requests
        ):
            yield "what it has asked is not answered"

    async def _connect(self) -> Client:
        return await self.share.world.client(self.machine, self.node)

    async def _use(self, client: Client) -> None:
        partitions = self.share.partitions
        await self.live(client, await client.stream(self.stream_name, partitions=partitions))

    async def _run(self) -> None:
        history = self.share.history
        while True:
            client: Client | None = None
            try:
                client = await self._connect()
                await self._use(client)
                await client.close()
                return
            except RillnodeError as error:
                history.note(self.name, "failed", error.code)
                self._look_at(error)
            if client is not None:
                with suppress(RillnodeError):  # positions are saved, if they can be
                    await client.close()
            await asyncio.sleep(AGAIN_SECONDS)

    def _look_at(self, error: RillnodeError) -> None:
        """See whether a failure may be."""
        history, told = self.share.history, f"{self.name} is told by {self.node}: {error}"
        if error.code == "store.corrupt":
            history.broken("log-dense", told)
        quiet_at = max(
            self._healed_at + ANSWER_SECONDS, self.share.world.network.harmed_at + HARM_SECONDS
        )
        if error.code == "request.timeout" and history.now() > quiet_at:
            history.broken("no-progress", f"{self.name} is not answered by {self.node}: {error}")
        if self.only_log and error.code in NOT_THERE and self.log_name not in history.lost:
            history.broken("stream-changed", told)


def check_pulled(
    history: History,
    who: str,
    log: Log,
    index: int,
    limit: int,
    end: int,
    pulled: Sequence[tuple[int, bytes]],
) -> None:
    """Check what a pull of `limit` entries from `index` on has brought.

    Args:
        history: of the run.
        who: has pulled.
        log: from where.
        index: first index that was asked for.
        limit: entries that were asked for.
        end: index up to which entries were known to be committed when it was asked.
        pulled: what came.
    """
    if log[0] in history.lost:
        return
    found = [one for one, _ in pulled]
    if found != list(range(index, index + len(found))) or len(found) > limit:
        history.broken("pull-gap", f"{who} pulled {index}+{limit}, got {found}")
    if index + len(found) < min(end, index + limit):
        history.broken("pull-short", f"{who} pulled {index}+{limit} of {end}, got {len(found)}")
    history.saw(who, log, pulled)
