"""Clients that speak Ockam's stream protocols, as unmodified Ockam workers do."""

import asyncio
from collections.abc import Iterator
from itertools import count
from typing import Final, TypeVar

from rillnode.codecs.errors import ActorError, CodecError, RequestError
from rillnode.codecs.ockam.routing import Route
from rillnode.codecs.ockam.stream import (
    CreateRequest,
    CreateResponse,
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
from rillnode.node.client.stream import Stream
from rillnode.node.simulation.clients import (
    AGAIN_SECONDS,
    CALL_SECONDS,
    Program,
    Share,
    check_pulled,
    payload_of,
)
from rillnode.node.simulation.history import Log, Push
from rillnode.node.simulation.world import Machine

T = TypeVar("T")

PULL_ENTRIES_MAX: Final = 30
PAYLOAD_BYTES: Final = 80
TOGETHER_MAX: Final = 3


class OckamUser(Program):
    """Pushes some entries, pulls on from its own position, saves that, and so on."""

    def __init__(self, share: Share, machine: Machine, node: str) -> None:
        super().__init__(share, machine, node)
        self._numbers = count()
        self._requests = count(1)
        self._reached = 0
        self._pulled_at = 0.0
        self.done = True

    async def live(self, client: Client, stream: Stream) -> None:
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
                self.done = False
                await asyncio.gather(*[self._push(client, route, log) for _ in range(together)])
                self.done = True
            index = await self._pull(client, route, log, index)
            self._reached = max(self._reached, index)
            request = SaveIndexRequest(self.name, self.stream_name, index)
            await client.send("stream_index", encode_request(request))

    def missing(self, healed_at: float) -> Iterator[str]:
        """Confirms, and the answer to a pull."""
        yield from super().missing(healed_at)
        if not self.done:
            yield "not everything is confirmed"
        if self._pulled_at < healed_at:
            yield "no pull is answered"

    async def _push(self, client: Client, route: Route, log: Log) -> None:
        history, producer, number = self.share.history, self.life, next(self._numbers)
        payload = payload_of(producer, number, PAYLOAD_BYTES)
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

    async def _pull(self, client: Client, route: Route, log: Log, index: int) -> int:
        history = self.share.history
        end = history.confirmed_end(log)
        request = PullRequest(next(self._requests), index, PULL_ENTRIES_MAX)
        pulled, _ = await self._ask(client, route, request, PullResponse)
        self._pulled_at = history.now()
        history.note(self.name, "pull", f"{log[1]} {index} {len(pulled.messages)}")
        check_pulled(history, self.name, log, request.index, request.limit, end, pulled.messages)
        return index + len(pulled.messages)

    async def _ask(
        self, client: Client, route: Route | str, request: Request, expected: type[T]
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
                self.share.history.note(self.name, "unanswered", error.code)
                if isinstance(request, PushRequest):
                    self._count_again(request)
                continue
            except CodecError as error:
                raise RequestError(error.code, error.text) from None
            if not isinstance(response, expected):
                raise RequestError("client.answer", f"the node gave another answer: {response}")
            return response, answer.return_route

    def _count_again(self, request: PushRequest) -> None:
        """The node may get this push twice."""
        self.share.history.pushes[request.data].attempts += 1
