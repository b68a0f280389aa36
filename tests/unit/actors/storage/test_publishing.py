"""Publishing to JetStream: every answer, and every lack of one, has its meaning."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.errors import APIError, NoStreamResponseError

from rillnode.actors.storage.jetstream.publishing import Publisher

HEADERS = {"Nats-Expected-Last-Sequence": "4"}


class Connected:
    """A client that notes what is published, and answers when told."""

    def __init__(self) -> None:
        self.published: list[tuple[str, bytes, str, dict[str, str] | None]] = []
        self.subject = ""
        self._take: Callable[[Msg], Awaitable[None]] | None = None

    def new_inbox(self) -> str:
        return "_INBOX.one"

    async def subscribe(self, subject: str, cb: Callable[[Msg], Awaitable[None]]) -> None:
        self.subject, self._take = subject, cb

    async def publish(
        self, name: str, data: bytes, reply: str, headers: dict[str, str] | None = None
    ) -> None:
        self.published.append((name, data, reply, headers))

    async def answer(self, reply: str, data: bytes, headers: Any = None) -> None:
        assert self._take is not None
        await self._take(Msg(cast(Client, self), reply, "", data, headers))


async def begun(client: Connected, seconds: float = 10.0) -> Publisher:
    publisher = Publisher(cast(Client, client), seconds)
    await publisher.begin()
    return publisher


def answered(data: bytes, headers: Any = None) -> int:
    """What a publication returns, or raises, that is answered so."""

    async def run() -> int:
        client = Connected()
        publisher = await begun(client)
        publishing = asyncio.create_task(publisher.publish("log", b"data", HEADERS))
        await asyncio.sleep(0)
        ((name, sent, reply, shown),) = client.published
        assert (name, sent, shown) == ("log", b"data", HEADERS)
        assert client.subject == "_INBOX.one.*"
        assert reply.startswith("_INBOX.one.")
        await client.answer(reply, data, headers)
        # A second answer is nobody's.
        await client.answer(reply, b'{"seq": 99}')
        return await publishing

    return asyncio.run(run())


def test_an_acknowledgement_has_the_sequence() -> None:
    assert answered(b'{"stream": "log", "seq": 5, "duplicate": false, "new": {}}') == 5


@pytest.mark.parametrize("code", [400, 500, 503])
def test_a_refusal_has_its_code_and_reason(code: int) -> None:
    data = b'{"error": {"code": %d, "err_code": 10071, "description": "wrong"}, "seq": 0}' % code
    with pytest.raises(APIError) as caught:
        answered(data)
    error = caught.value
    assert (error.code, error.err_code, error.description) == (code, 10071, "wrong")


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff", b"[]", b"{}", b'{"seq": 0}', b'{"seq": -1}', b'{"seq": "5"}', b'{"error": 1}'],
)
def test_what_is_no_acknowledgement_leaves_it_unknown(data: bytes) -> None:
    with pytest.raises(NoStreamResponseError):
        answered(data)


def test_a_stream_that_nobody_leads_leaves_it_unknown() -> None:
    with pytest.raises(NoStreamResponseError):
        answered(b"", {"Status": "503"})


def test_an_answer_that_does_not_come_is_not_waited_for() -> None:
    async def run() -> None:
        client = Connected()
        publisher = await begun(client, 0.01)
        with pytest.raises(TimeoutError):
            await publisher.publish("log", b"data", HEADERS)
        await client.answer(client.published[0][2], b'{"seq": 5}')

    asyncio.run(run())


def test_each_answer_is_waited_for_as_long_though_one_timer_serves_all() -> None:
    async def run() -> None:
        loop, client, waited = asyncio.get_running_loop(), Connected(), list[float]()
        publisher = await begun(client, 0.05)

        async def publish() -> None:
            asked_at = loop.time()
            with pytest.raises(TimeoutError):
                await publisher.publish("log", b"data", HEADERS)
            waited.append(loop.time() - asked_at)

        first = asyncio.create_task(publisher.publish("log", b"data", HEADERS))
        await asyncio.sleep(0)
        await client.answer(client.published[0][2], b'{"seq": 5}')
        assert await first == 5
        second = asyncio.create_task(publish())
        await asyncio.sleep(0.02)
        await asyncio.gather(second, publish())
        assert all(seconds >= 0.05 for seconds in waited)
        # Once nobody waits, the next one does as the first did.
        await publish()

    asyncio.run(run())


def test_what_could_not_be_sent_is_not_waited_for() -> None:
    class Broken(Connected):
        async def publish(self, *_: Any, **__: Any) -> None:
            raise OSError("broken")

    async def run() -> list[Any]:
        told = list[Any]()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        publisher = await begun(Broken(), 0.01)
        with pytest.raises(OSError, match="broken"):
            await publisher.publish("log", b"data", HEADERS)
        await asyncio.sleep(0.03)
        publisher.end(ConnectionError("lost"))
        gc.collect()
        return told

    assert asyncio.run(run()) == []


def test_answers_find_who_asked_in_any_order() -> None:
    async def run() -> None:
        client = Connected()
        publisher = await begun(client)
        tasks = [asyncio.create_task(publisher.publish("log", b"data", HEADERS)) for _ in range(3)]
        await asyncio.sleep(0)
        replies = [reply for _, _, reply, _ in client.published]
        assert len({*replies}) == 3
        await client.answer("_INBOX.one.strange", b'{"seq": 9}')
        for number, reply in reversed([*enumerate(replies, 1)]):
            await client.answer(reply, b'{"seq": %d}' % number)
        assert await asyncio.gather(*tasks) == [1, 2, 3]

    asyncio.run(run())


def test_the_end_of_the_connection_is_told_to_all_who_wait() -> None:
    async def run() -> None:
        client = Connected()
        publisher = await begun(client)
        tasks = [asyncio.create_task(publisher.publish("log", b"data", HEADERS)) for _ in range(2)]
        await asyncio.sleep(0)
        await client.answer(client.published[0][2], b'{"seq": 5}')
        publisher.end(ConnectionError("lost"))
        first, second = await asyncio.gather(*tasks, return_exceptions=True)
        assert first == 5
        assert isinstance(second, ConnectionError)

    asyncio.run(run())


def read(*answers: tuple[bytes, dict[str, str] | None]) -> list[bytes | None]:
    """What is read, from sequence 7 on, that is answered so, the last one first."""

    async def run() -> list[bytes | None]:
        client = Connected()
        publisher = await begun(client)
        reading = asyncio.create_task(publisher.read("log", 7, len(answers)))
        await asyncio.sleep(0)
        assert [(name, sent) for name, sent, _, _ in client.published] == [
            ("$JS.API.DIRECT.GET.log", b'{"seq":%d}' % (7 + at)) for at in range(len(answers))
        ]
        for (_, _, reply, _), (data, headers) in reversed(
            [*zip(client.published, answers, strict=True)]
        ):
            await client.answer(reply, data, headers)
        return await reading

    return asyncio.run(run())


def test_messages_are_read_in_order_but_for_those_that_are_not_there() -> None:
    there = [(b"%d" % n, {"Nats-Stream": "log", "Nats-Sequence": str(n)}) for n in (7, 8, 9)]
    there[1] = (b"", {"Status": "404", "Description": "Message Not Found"})
    assert read(*there) == [b"7", None, b"9"]
    assert read() == []


@pytest.mark.parametrize(
    ("headers", "raised"),
    [
        ({"Status": "503"}, NoStreamResponseError),
        ({"Status": "408", "Description": "Empty Request"}, APIError),
        ({"Nats-Sequence": "8"}, APIError),
        ({}, APIError),
        (None, APIError),
    ],
)
def test_what_is_no_message_is_none(
    headers: dict[str, str] | None, raised: type[Exception]
) -> None:
    with pytest.raises(raised):
        read((b"data", headers))


def test_messages_that_do_not_come_are_not_waited_for_without_end() -> None:
    async def run() -> None:
        publisher = await begun(Connected(), seconds=0.01)
        with pytest.raises(TimeoutError):
            await publisher.read("log", 1, 3)

    asyncio.run(run())
