"""A failing actor costs the message that it fails at, whose asker is told, and nothing else."""

from collections.abc import Callable
from typing import Any

import pytest

from core_support import Core, Peer, with_core
from rillnode.actors.core.streams.service import StreamService
from rillnode.actors.core.streams.stream import StreamActor
from rillnode.actors.core.streams.subscription import SubscriptionActor
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import log_id
from rillnode.codecs import native
from rillnode.codecs.entries import items_of, pack_body
from rillnode.codecs.routing.stream import CreateRequest, PushConfirm, PushRequest

ADDRESS = "ST_S_0_s"


def never(_: tuple[Any, ...]) -> bool:
    return False


def always(_: tuple[Any, ...]) -> bool:
    return True


class Failing:
    """Makes a method fail as long as it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cls: type, method: str) -> None:
        self.wants: Callable[[tuple[Any, ...]], bool] = never
        self.failures = 0
        good = getattr(cls, method)

        def patched(actor: Any, *arguments: Any) -> Any:
            if self.wants(arguments):
                self.failures += 1
                raise RuntimeError("planted")
            return good(actor, *arguments)

        monkeypatch.setattr(cls, method, patched)


def append(request_id: int, *items: bytes) -> native.AppendRequest:
    return native.AppendRequest(request_id, len(items), pack_body(items))


async def entries(peer: Peer) -> list[bytes]:
    (answer,) = await peer.ask(ADDRESS, native.ReadRequest(99, 0, 1_000, 1_000_000))
    assert isinstance(answer, native.BlocksResponse)
    return [bytes(item) for block in native.blocks_of(answer) for item in items_of(block.value)]


def test_who_asked_is_told_and_what_waits_behind_is_done_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing = Failing(monkeypatch, StreamActor, "_request")

    async def test(core: Core) -> None:
        peer = core.peer()
        await peer.ask("stream", CreateRequest("s"))
        bad = [2, 4]
        failing.wants = lambda arguments: arguments[2].request_id in bad
        peer.answers.clear()
        for number in range(1, 6):  # each by itself, none handled before all are there
            peer.send(ADDRESS, native.encode(append(number, b"%d" % number)))
        await core.settle()
        answers = [native.decode_response(one.payload) for one in peer.answers]
        failed = {one.request_id: one.code for one in answers if isinstance(one, native.Failure)}
        stored = [one.request_id for one in answers if isinstance(one, native.PositionResponse)]
        assert failed == dict.fromkeys(bad, "actor.failed")
        assert stored == [1, 3, 5]
        assert await entries(peer) == [b"1", b"3", b"5"]
        assert peer.origin.reserved_bytes == 0

    with_core(test)


def test_who_follows_goes_on_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failing(monkeypatch, StreamActor, "_request")

    async def test(core: Core) -> None:
        reader, writer = core.peer(), core.peer()
        await writer.ask("stream", CreateRequest("s"))
        await reader.ask(ADDRESS, native.SubscribeRequest(1, 0, 1_000_000))
        failing.wants = lambda arguments: isinstance(arguments[2], native.AppendRequest)
        (failure,) = await writer.ask(ADDRESS, append(1, b"lost"))
        assert isinstance(failure, native.Failure)
        failing.wants = never
        reader.answers.clear()
        assert isinstance(
            (await writer.ask(ADDRESS, append(2, b"kept")))[0], native.PositionResponse
        )
        (news,) = [native.decode_response(one.payload) for one in reader.answers]
        assert isinstance(news, native.BlocksResponse)

    with_core(test)


def test_a_stream_that_was_given_up_is_made_anew_after_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing = Failing(monkeypatch, StreamActor, "_request")

    async def test(core: Core) -> None:
        peer = core.peer()
        await peer.ask("stream", CreateRequest("s"))
        failing.wants = always
        first = core.router.lookup(ADDRESS.encode())
        for number in range(StreamActor.restarts_max + 1):
            (failure,) = await peer.ask(ADDRESS, append(number, b"x"))
            assert isinstance(failure, native.Failure)
            assert failure.code == "actor.failed"
        failing.wants = never
        (failure,) = await peer.ask(ADDRESS, append(7, b"x"))
        assert isinstance(failure, native.Failure)
        assert (failure.code, failure.retryable) == ("actor.busy", True)
        assert failure.text == "This has failed too often: try again in 0.1 s"
        assert failure.retry_milliseconds in (100, 101)
        assert core.router.lookup(ADDRESS.encode()) is None
        core.clock.advance(0.1)
        assert isinstance((await peer.ask(ADDRESS, append(1, b"x")))[0], native.PositionResponse)
        assert core.router.lookup(ADDRESS.encode()) is not first

    with_core(test)


def test_streams_outlive_the_service_that_made_them(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failing(monkeypatch, StreamService, "handle")

    async def test(core: Core) -> None:
        peer = core.peer()
        await peer.ask("stream", CreateRequest("s"))
        await peer.ask(ADDRESS, PushRequest(1, b"x"))
        failing.wants = always
        for number in range(10):
            await peer.ask("stream", native.DescribeRequest(number, "s"))
        assert core.streams.exited
        assert isinstance((await peer.ask(ADDRESS, PushRequest(2, b"y")))[0], PushConfirm)
        # The service's address is as unknown as any: who asks is told.
        (answer,) = await peer.ask("stream", native.DescribeRequest(1, "s"))
        assert isinstance(answer, native.Failure)

    with_core(test)


class Idle(Worker):
    def handle(self, message: object, sender: object) -> None:
        pass


async def test_who_asks_an_actor_that_ends_first_is_told_so(core: Core) -> None:
    peer, cell = core.peer(), core.system.spawn(Idle)
    core.router.register(b"ending", cell)
    await core.settle()
    core.system.exit(cell)
    peer.send("ending", native.encode(append(7, b"x")))
    await core.settle()
    (failure,) = [native.decode_response(one.payload) for one in peer.answers]
    assert isinstance(failure, native.Failure)
    assert (failure.request_id, failure.code) == (7, "actor.stopped")


def test_a_subscription_that_fails_ends_and_its_subscriber_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing = Failing(monkeypatch, SubscriptionActor, "_advance")

    async def test(core: Core) -> None:
        reader, writer = core.peer(), core.peer()
        await writer.ask("stream", CreateRequest("s"))
        await reader.ask(ADDRESS, native.SubscribeRequest(1, 0, 1_000_000))
        failing.wants = always
        reader.answers.clear()
        assert isinstance(
            (await writer.ask(ADDRESS, append(2, b"kept")))[0], native.PositionResponse
        )
        (told,) = [native.decode_response(one.payload) for one in reader.answers]
        assert isinstance(told, native.Failure)
        assert (told.request_id, told.code) == (1, "actor.stopped")
        assert not reader.origin.attached
        assert core.context.subscribers.of(log_id(1, 0)) == 0
        failing.wants = never
        (news,) = await reader.ask(ADDRESS, native.SubscribeRequest(3, 0, 1_000_000))
        assert isinstance(news, native.BlocksResponse)

    with_core(test)
