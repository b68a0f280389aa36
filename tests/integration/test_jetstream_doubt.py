"""A cluster in trouble may say for a moment that less is there than it confirmed."""

from collections.abc import Iterator

import pytest
from nats.js import JetStreamContext
from nats.js.api import AccountInfo
from nats.js.errors import ServiceUnavailableError

from nats_support import JetStreamDriver, NatsServer, needs_nats
from rillnode.actors.storage import PutRecord
from rillnode.actors.storage.jetstream.server import Server
from store_support import ANSWER_SECONDS, LOG, append, texts, wait_until

pytestmark = needs_nats

LOG_STREAM = f"t-{LOG:016x}"


@pytest.fixture
def driver(nats: NatsServer) -> Iterator[JetStreamDriver]:
    driver = JetStreamDriver(
        nats, "t", patience_seconds=ANSWER_SECONDS, doubt_seconds=ANSWER_SECONDS
    )
    yield driver
    driver.store.close()


def late(patch: pytest.MonkeyPatch, name: str, answers: list[int | None]) -> None:
    """A leader that has not applied all that it holds when it is asked."""
    real = Server.last_sequence

    async def last_sequence(self: Server, asked: str) -> int | None:
        if asked == name and answers:
            return answers.pop()
        return await real(self, asked)

    patch.setattr(Server, "last_sequence", last_sequence)


@pytest.mark.parametrize("said", [None, 0, 1])
def test_a_log_that_seems_shorter_is_asked_for_again(
    nats: NatsServer,
    driver: JetStreamDriver,
    monkeypatch: pytest.MonkeyPatch,
    said: int | None,
) -> None:
    for number in range(3):
        driver.write(append(b"%d" % number))
    # Another store has written, so that the end must be read anew.
    other = JetStreamDriver(nats, "t")
    other.write(append(b"3"))
    other.store.close()
    answers = [said] * 3
    late(monkeypatch, LOG_STREAM, answers)
    operation = driver.write(append(b"4"))
    assert (operation.error, operation.first_index, answers) == (None, 4, [])
    assert texts(driver) == [b"%d" % number for number in range(5)]


def test_a_journal_that_seems_shorter_is_asked_for_again(
    nats: NatsServer, driver: JetStreamDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.write(PutRecord(key="a", value=b"1"))
    answers: list[int | None] = [None, 0]
    late(monkeypatch, "t-journal", answers)
    nats.kill()
    nats.start()
    # A write that came before would be right, too: it says what it is to stand behind.
    wait_until(lambda: not answers)
    assert driver.write(PutRecord(key="b", value=b"2")).error is None


def test_a_new_stream_that_was_taken_back_is_made_again(
    driver: JetStreamDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, made = Server.make_stream, [False]

    async def make_stream(self: Server, name: str) -> None:
        if made:
            made.pop()
            return
        await real(self, name)

    monkeypatch.setattr(Server, "make_stream", make_stream)
    assert driver.write(append(b"0")).first_index == 0
    assert made == []


def test_a_store_that_is_opened_waits_for_an_election(
    driver: JetStreamDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, unavailable = JetStreamContext.account_info, [True] * 3

    async def account_info(self: JetStreamContext) -> AccountInfo:
        if unavailable:
            unavailable.pop()
            raise ServiceUnavailableError
        return await real(self)

    monkeypatch.setattr(JetStreamContext, "account_info", account_info)
    driver.reopen()
    assert unavailable == []
    assert driver.write(append(b"0")).error is None
