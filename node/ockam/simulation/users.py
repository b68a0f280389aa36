"""Clients that speak Ockam's stream protocols, as unmodified Ockam workers do."""

import asyncio
from collections.abc import Iterator
from itertools import count
from typing import Final, Protocol, TypeVar

from rillnode.codecs.errors import ActorError, CodecError, RequestError
from rillnode.codecs.limits import BLOCK_BYTES_MAX, FRAME_BYTES_MAX
from rillnode.codecs.routing.routes import Route
from rillnode.codecs.routing.stream import (
    CreateRequest,
    CreateResponse,
    ErrorResponse,
    GetIndexRequest,
    IndexResponse,
    PullRequest,
    PullResponse,
    PushConfirm,
    PushRequest,
    Request,
    SaveIndexRequest,
    Status,
    decode_response,
    encode_request,
)
from rillnode.node.client.client import Client
from rillnode.node.client.messages import Answer
from rillnode.node.client.stream import Stream
from rillnode.node.simulated.history import History, Log, Push
from rillnode.node.simulated.nodes import CLOSED_STREAM, READ_ONLY_STREAM
from rillnode.node.simulated.programs import (
    AGAIN_SECONDS,
    CALL_SECONDS,
    Program,
    Share,
    check_pulled,
    payload_of,
)
from rillnode.node.simulated.world import Machine

T = TypeVar("T")


class Way(Protocol):
    """A way to a node and back: a client's link, or a secure channel."""

    async def send(self, route: Route | str, payload: bytes, /) -> None:
        """Send a message; nothing tells whether it arrives."""
        ...

    async def ask(self, route: Route | str, payload: bytes, /, *, timeout_seconds: float) -> Answer:
        """Send a message and wait for what comes back.

        Raises:
            ActorError: nothing has come back in time.
            RillnodeError: nothing can.
        """
        ...


PULL_ENTRIES_MAX: Final = 30
PAYLOAD_BYTES: Final = 80
TOGETHER_MAX: Final = 3

BACK_PART: Final = 0.3
"""How many pulls are followed by one from anywhere before, out of the midst of a block, too."""

BACK_ENTRIES_MAX: Final = 5

LARGE_PART: Final = 0.05
"""How many lives begin with some entries that leave no room in a block for those behind them."""

LARGE_BYTES: Final = BLOCK_BYTES_MAX - PAYLOAD_BYTES // 2
LARGE_ENTRIES: Final = 4

WRONG_ANSWER: Final = "client.answer"

ANSWER_BYTES: Final = 1_000
"""What an answer may hold beside data."""

SHARED_FACTOR: Final = 8
"""Entries of an overlay are kept as text, with a head: small ones take this many times as much."""


def pushed_to(history: History, log: Log) -> set[bytes]:
    """All that was pushed where it may have come to stand in a log."""
    return {data for data, push in history.pushes.items() if history.shared or push.log == log}


def all_fits(history: History, log: Log, room: int) -> bool:
    """Whether all that a log may hold, seen or not, has room in one answer."""
    seen = history.logs.get(log, {}).values()
    unseen = pushed_to(history, log) - set(seen)
    return sum(map(len, seen)) + sum(map(len, unseen)) <= room


class OckamUser(Program):
    """Pushes some entries, pulls on from its own position, saves that, and so on."""

    def __init__(self, share: Share, machine: Machine, node: str) -> None:
        super().__init__(share, machine, node)
        self._numbers = count()
        self._requests = count(1)
        self._reached = 0
        self._pulled_at = 0.0
        self._chance = share.world.network.random(f"places of {machine.name}")
        self._back_part, self._large_left, self._first = 0.0, 0, False
        self.done = True

    async def live(self, client: Client, stream: Stream) -> None:
        """Use the stream over the client's own link."""
        self._back_part = BACK_PART
        self._large_left = LARGE_ENTRIES if self._chance.random() < LARGE_PART else 0
        await self.work(client)

    async def work(self, client: Way) -> None:
        """Use the stream's partition 0 for as long as there are faults, then only read."""
        self.done = True  # what a life before this one has pushed is its own affair
        log = (self.log_name, 0)
        _, route = await self._ask(
            client, "stream", CreateRequest(self.stream_name), CreateResponse
        )
        found, _ = await self._ask(
            client, "stream_index", GetIndexRequest(self.name, self.stream_name), IndexResponse
        )
        index = found.index or 0
        if index > self._reached and self.log_name not in self.share.history.lost:
            text = f"{self.name} of {log[0]}: {index} after {self._reached} entries"
            self.share.history.broken("saved-index-ahead", text)
        while True:
            await asyncio.sleep(self.random.uniform(0.3, 1.0))
            if self.machine.loop.time() < self.share.seconds:
                # What comes together is appended as one, and each is confirmed by itself.
                together = self.random.randrange(1, TOGETHER_MAX + 1)
                self.done, self._first = False, True
                await asyncio.gather(*[self._push(client, route, log) for _ in range(together)])
                self.done = True
            index = await self._pull(client, route, log, index)
            self._reached = max(self._reached, index)
            if self._chance.random() < self._back_part:
                limit = self._chance.randint(1, BACK_ENTRIES_MAX)
                await self._pull(client, route, log, self._chance.randint(0, index), limit)
            request = SaveIndexRequest(self.name, self.stream_name, index)
            await client.send("stream_index", encode_request(request))

    def missing(self, healed_at: float) -> Iterator[str]:
        """Confirms, and the answer to a pull."""
        yield from super().missing(healed_at)
        if not self.done:
            yield "not everything is confirmed"
        if self._pulled_at < healed_at:
            yield "no pull is answered"

    async def refused(self, client: Way) -> None:
        """Ask for streams that are not granted over this way."""
        for name in (CLOSED_STREAM, READ_ONLY_STREAM, f"own-{self.name}"):
            try:
                await self._ask(client, "stream", CreateRequest(name), ErrorResponse)
            except RequestError as error:
                if error.code != WRONG_ANSWER:
                    raise
                text = f"{self.name} at {self.node} has opened {name}"
                self.share.history.broken("grant-ignored", text)

    def payload_bytes(self) -> int:
        """How large the next entry is."""
        first, self._first = self._first, False
        if not first or not self._large_left:
            return PAYLOAD_BYTES
        self._large_left -= 1
        return LARGE_BYTES

    @property
    def answer_bytes_max(self) -> int:
        """How large an answer the link takes."""
        return FRAME_BYTES_MAX

    def unanswered(self, error: ActorError) -> None:
        """Nothing has come back in time; it is asked again, unless this raises."""
        self.share.history.note(self.name, "unanswered", error.code)

    async def _push(self, client: Way, route: Route, log: Log) -> None:
        history, producer, number = self.share.history, self.life, next(self._numbers)
        payload = payload_of(producer, number, self.payload_bytes())
        push = Push(producer, number, log, history.now())
        history.pushed({payload: push})
        while True:
            push.attempts += 1
            request = PushRequest(next(self._requests), payload)
            confirm, _ = await self._ask(client, route, request, PushConfirm)
            if confirm.request_id != request.request_id:
                history.broken("route-answer", f"{self.name} got the confirm of another push")
            if confirm.status is Status.OK:
                history.confirmed([payload], [confirm.index])
                return
            history.note(self.name, "refused", str(number))
            await asyncio.sleep(AGAIN_SECONDS)

    async def _pull(
        self, client: Way, route: Route, log: Log, index: int, limit: int = PULL_ENTRIES_MAX
    ) -> int:
        history = self.share.history
        end = history.end_for(self.name, log)
        request = PullRequest(next(self._requests), index, limit)
        pulled, _ = await self._ask(client, route, request, PullResponse)
        self._pulled_at = history.now()
        came = len(pulled.messages)
        history.note(self.name, "pull", f"{log[1]} {index} {came}")
        # What fits no answer is passed over, and nothing comes where nothing else follows.
        first = pulled.messages[0][0] if came else end
        while index < first and not self._fits(log, index):
            history.note(self.name, "passed over", str(index))
            index += 1
        # What is read for an answer is whole blocks: one of them may be left out for what it has
        # behind all that is asked for.
        cut = came < min(end, index + limit) - index and not all_fits(history, log, self._room)
        if 0 < came <= limit and (cut or index > request.index):
            limit = came
        check_pulled(history, self.name, log, index, limit, end, pulled.messages)
        return index + came

    def _fits(self, log: Log, index: int) -> bool:
        """Whether an answer has room for an entry, which nobody may have seen yet."""
        history = self.share.history
        entry = history.logs.get(log, {}).get(index)
        sizes = map(len, pushed_to(history, log)) if entry is None else [len(entry)]
        return max(sizes, default=0) <= self._room

    @property
    def _room(self) -> int:
        room = self.answer_bytes_max - ANSWER_BYTES
        return room // SHARED_FACTOR if self.share.history.shared else room

    async def _ask(
        self, client: Way, route: Route | str, request: Request, expected: type[T]
    ) -> tuple[T, Route]:
        """Ask until there is an answer; what of a request is lost on the way is asked again.

        Raises:
            RequestError: it is of another kind than expected.
        """
        while True:
            try:
                answer = await client.ask(
                    route, encode_request(request), timeout_seconds=CALL_SECONDS
                )
                response = decode_response(answer.payload)
            except ActorError as error:
                self.unanswered(error)
                if isinstance(request, PushRequest):
                    self._count_again(request)
                continue
            except CodecError as error:
                raise RequestError(error.code, error.text) from None
            if not isinstance(response, expected):
                raise RequestError(WRONG_ANSWER, f"the node gave another answer: {response}")
            return response, answer.return_route

    def _count_again(self, request: PushRequest) -> None:
        """The node may get this push twice."""
        self.share.history.pushes[request.data].attempts += 1
