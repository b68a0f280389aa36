"""The actor of a peer: what waits for a link, what fails, what is dialled when."""

import pytest

from coroutines import run_with
from dialling_support import DOWN, Bench
from rillnode.actors.core.links.dialling import (
    BACKOFF_SECONDS,
    FORGET_SECONDS,
    PATIENCE_SECONDS,
    STEADY_SECONDS,
    StopPeer,
)
from rillnode.codecs import native
from rillnode.codecs.errors import ConfigError, HandshakeError
from rillnode.codecs.limits import (
    LINK_BUFFER_HIGH_BYTES,
    PEER_WAITING_BYTES_MAX,
    PEER_WAITING_MESSAGES_MAX,
)
from rillnode.codecs.routing.routes import encode_message, local


def pause(failures: int) -> float:
    """A little more than the pause after so many failures; the jitter of these tests is 1."""
    return 1.01 * BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS)) - 1]


async def test_the_first_message_dials_and_later_ones_follow_in_order(bench: Bench) -> None:
    assert (bench.attempts, bench.status.state) == ([], "idle")
    await bench.send(b"1", b"2")
    await bench.send(b"3")
    assert len(bench.attempts) == 1
    assert (bench.status.state, bench.status.waiting) == ("dialling", 3)
    link = await bench.open()
    await bench.send(b"4")
    assert [message.payload for message in link.sent] == [b"1", b"2", b"3", b"4"]
    assert {message.onward_route for message in link.sent} == {(local("worker"),)}
    assert {message.return_route for message in link.sent} == {(local("me"),)}
    assert (bench.status.state, bench.status.links, bench.status.waiting) == ("open", 1, 0)
    assert len(bench.attempts) == 1


async def test_what_waits_counts_for_its_origin_until_it_is_sent(bench: Bench) -> None:
    await bench.send(bytes(10_000))
    assert bench.part.unhandled == 0
    assert bench.origin.reserved_bytes > 10_000
    await bench.open()
    assert (bench.part.unhandled, bench.origin.reserved_bytes) == (0, 0)
    await bench.send(b"more")
    assert bench.part.unhandled == 0


async def test_answers_come_from_the_address_of_the_connection(bench: Bench) -> None:
    await bench.send(b"question")
    link = await bench.open()
    link.events.messages_received([encode_message((local("me"),), (local("worker"),), b"answer")])
    await bench.core.settle()
    (answer,) = bench.answers
    assert answer.payload == b"answer"
    connection, worker = answer.return_route
    assert connection.value.startswith(b"NX_C_")
    assert worker == local("worker")


async def test_a_failure_is_told_to_all_that_waited(bench: Bench) -> None:
    request = native.encode(native.StatusRequest(7))
    await bench.send(b"raw", request)
    await bench.fail()
    responses = [native.decode_response(answer.payload) for answer in bench.answers]
    text = "No link to core: nothing listens there"
    assert responses == [
        native.Failure(0, "peer.unreachable", text),
        native.Failure(7, "peer.unreachable", text),
    ]
    assert bench.core.router.undelivered == {"peer_unreachable": 2}
    assert bench.status.last_error == "nothing listens there [link.refused]"
    assert bench.origin.reserved_bytes == 0


async def test_a_dead_peer_is_not_dialled_for_each_message(bench: Bench) -> None:
    for failures in range(1, len(BACKOFF_SECONDS) + 3):
        if bench.status.state == "idle":
            assert bench.status.unreached == (failures > 1)  # idle is not all there is to tell
            await bench.send(b"x")
        assert len(bench.attempts) == failures
        await bench.fail()
        bench.answers.clear()
        await bench.send(b"a")
        await bench.send(b"b")
        assert len(bench.attempts) == failures
        short = pause(failures) < 1.1 * PATIENCE_SECONDS
        assert bench.failures() == ([] if short else ["peer.unreachable"] * 2)
        await bench.pass_time(pause(failures))
        assert bench.status.state == ("dialling" if short else "idle")


async def test_messages_in_a_short_pause_wait_for_the_next_attempt(bench: Bench) -> None:
    await bench.send(b"fails")
    await bench.fail()
    assert bench.failures() == ["peer.unreachable"]
    await bench.send(b"waits")
    await bench.pass_time(pause(1))
    assert bench.status.unreached
    assert [message.payload for message in (await bench.open()).sent] == [b"waits"]
    assert not bench.status.unreached


@run_with(kept=True)
async def test_a_link_that_is_closed_at_once_is_a_failure(bench: Bench) -> None:
    for failures in range(1, 10):
        (await bench.open()).close("not you")
        await bench.core.settle()
        assert bench.status.state == "failed"
        assert "not you" in bench.status.last_error
        assert len(bench.attempts) == failures
        await bench.pass_time(pause(failures))
        assert len(bench.attempts) == failures + 1


async def test_a_link_that_was_used_for_a_while_is_no_failure(bench: Bench) -> None:
    await bench.send(b"1")
    link = await bench.open()
    await bench.pass_time(STEADY_SECONDS)
    link.close("unused")
    await bench.core.settle()
    assert (bench.status.state, bench.status.links, bench.status.last_error) == ("idle", 0, "")
    await bench.send(b"2")
    assert len(bench.attempts) == 2
    assert [message.payload for message in (await bench.open()).sent] == [b"2"]


async def test_a_peer_may_answer_and_close(bench: Bench) -> None:
    for count in range(1, 10):
        await bench.send(b"x")
        assert len(bench.attempts) == count
        link = await bench.open()
        link.events.messages_received([encode_message((local("me"),), (), b"answer")])
        link.close("done")
        await bench.core.settle()
        assert (len(link.sent), len(bench.answers)) == (1, count)
        assert (bench.status.state, bench.status.last_error) == ("idle", "")


@run_with(kept=True)
async def test_a_kept_peer_is_dialled_at_once_and_again(bench: Bench) -> None:
    assert len(bench.attempts) == 1
    link = await bench.open()
    await bench.pass_time(STEADY_SECONDS)
    link.close("gone")
    await bench.core.settle()
    assert len(bench.attempts) == 2
    assert bench.status.last_error == "gone"
    for failures in range(1, 10):
        await bench.fail()
        assert len(bench.attempts) == failures + 1
        await bench.pass_time(pause(failures))
        assert len(bench.attempts) == failures + 2
    await bench.open()
    assert bench.status.state == "open"


@run_with(kept=True)
async def test_a_peer_that_refuses_us_is_asked_seldom(bench: Bench) -> None:
    await bench.fail(HandshakeError("noise.unknown_identity", "it does not know us"))
    await bench.pass_time(BACKOFF_SECONDS[-1] - 1.0)
    assert len(bench.attempts) == 1
    await bench.send(b"x")
    assert bench.failures() == ["peer.unreachable"]
    await bench.pass_time(1.1)
    assert len(bench.attempts) == 2


@pytest.mark.parametrize(
    ("payload", "count"),
    [(bytes(1_048_576), PEER_WAITING_BYTES_MAX // 1_048_576), (b"", PEER_WAITING_MESSAGES_MAX)],
)
async def test_what_waits_is_bounded(bench: Bench, payload: bytes, count: int) -> None:
    batch = max(1, count // 16)
    for _ in range(count // batch + 2):
        await bench.send(*[payload] * batch)
    assert bench.status.waiting <= count
    codes = bench.failures()
    assert set(codes) == {"peer.busy"}
    assert len(codes) + bench.status.waiting == (count // batch + 2) * batch
    link = await bench.open()
    assert len(link.sent) == (count // batch + 2) * batch - len(codes)


async def test_a_peer_that_does_not_read_holds_its_senders_back(bench: Bench) -> None:
    await bench.send(b"1")
    link = await bench.open()
    link.buffered_bytes = LINK_BUFFER_HIGH_BYTES + 1
    await bench.send(b"2")
    await bench.send(b"3")
    assert [message.payload for message in link.sent] == [b"1"]
    assert bench.origin.reserved_bytes > 0
    link.buffered_bytes = 0
    await bench.send(b"4")  # nothing overtakes what waits
    assert [message.payload for message in link.sent] == [b"1"]
    link.events.link_drained()
    await bench.core.settle()
    assert [message.payload for message in link.sent] == [b"1", b"2", b"3", b"4"]
    assert bench.origin.reserved_bytes == 0


async def test_a_peer_that_is_stopped_dials_no_more(bench: Bench) -> None:
    await bench.send(b"waits")
    bench.may_dial = False
    bench.core.system.post(bench.cell, StopPeer())
    await bench.core.settle()
    assert bench.attempts[0].cancelled
    assert bench.failures() == ["peer.unreachable"]
    bench.attempts[0].fail(DOWN)  # it had failed already
    await bench.send(b"late")
    await bench.pass_time(1_000.0)
    assert bench.failures() == ["peer.unreachable"]
    assert (len(bench.attempts), bench.status.state) == (1, "stopped")


@run_with(kept=True)
async def test_an_open_link_outlives_the_stop(bench: Bench) -> None:
    link = await bench.open()
    bench.may_dial = False
    bench.core.system.post(bench.cell, StopPeer())
    await bench.send(b"still")
    assert [message.payload for message in link.sent] == [b"still"]
    link.close("the node is stopping")
    await bench.core.settle()
    await bench.pass_time(1_000.0)
    assert (len(bench.attempts), bench.status.state) == (1, "stopped")


@run_with(passing=True)
async def test_an_address_without_a_name_is_forgotten(bench: Bench) -> None:
    await bench.send(b"x")
    link = await bench.open()
    await bench.pass_time(10 * FORGET_SECONDS)
    assert bench.ended == 0
    link.close("unused")
    await bench.core.settle()
    await bench.pass_time(FORGET_SECONDS / 2)
    await bench.send(b"y")
    await bench.pass_time(FORGET_SECONDS)
    assert bench.ended == 0
    (await bench.open()).close("at once")
    await bench.core.settle()
    population = bench.core.system.life.population
    await bench.pass_time(pause(1))
    await bench.pass_time(FORGET_SECONDS)
    assert bench.ended == 1
    assert bench.core.system.life.population == population - 1


@run_with(kept=True)
async def test_the_end_of_the_actor_ends_its_link(bench: Bench) -> None:
    link = await bench.open()
    bench.core.system.exit(bench.cell)
    await bench.core.settle()
    assert link.closed
    assert bench.status.links == 0


async def test_a_link_that_the_peer_has_made_can_be_used_and_ends_by_itself(bench: Bench) -> None:
    accepted, link = await bench.accept()
    await bench.send(b"1")
    await bench.share(accepted)
    await bench.send(b"2")
    assert [message.payload for message in link.sent] == [b"1", b"2"]
    assert (bench.status.state, bench.status.links) == ("open", 1)
    bench.core.system.exit(bench.cell)
    await bench.core.settle()
    assert not link.closed
    link.close("gone")
    await bench.core.settle()


async def test_the_peer_is_dialled_again_when_the_link_that_it_had_made_is_gone(
    bench: Bench,
) -> None:
    accepted, link = await bench.accept()
    await bench.send(b"1")
    await bench.share(accepted)
    link.close("gone")
    await bench.core.settle()
    assert (bench.status.state, bench.status.links) == ("idle", 0)
    await bench.send(b"2")
    dialled = await bench.open()
    assert [message.payload for message in dialled.sent] == [b"2"]


async def test_messages_wait_while_a_link_that_the_peer_has_made_is_full(bench: Bench) -> None:
    accepted, link = await bench.accept()
    await bench.send(b"1")
    await bench.share(accepted)
    link.buffered_bytes = LINK_BUFFER_HIGH_BYTES + 1
    await bench.send(b"2")
    assert bench.status.waiting == 1
    link.buffered_bytes = 0
    accepted.link_drained()
    await bench.core.settle()
    assert [message.payload for message in link.sent] == [b"1", b"2"]


async def test_a_link_that_nobody_waits_for_any_more_is_closed(bench: Bench) -> None:
    await bench.send(b"waits")
    first = bench.attempts[0]
    bench.may_dial = False
    bench.core.system.post(bench.cell, StopPeer())
    await bench.core.settle()
    link = first.open()  # it was on its way
    await bench.core.settle()
    assert link.closed
    assert (bench.status.state, bench.status.links) == ("stopped", 0)


async def test_an_address_that_cannot_be_dialled_is_out_of_reach(bench: Bench) -> None:
    bench.refusal = ConfigError("config.value", "that is no host")
    await bench.send(b"x")
    assert bench.failures() == ["peer.unreachable"]
    assert bench.status.state == "failed"
    bench.refusal = None
    await bench.pass_time(1.01 * BACKOFF_SECONDS[-1])
    await bench.send(b"y")
    assert [message.payload for message in (await bench.open()).sent] == [b"y"]
