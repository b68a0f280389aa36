"""Tests the contract of application actors: one set of tests over all their forms."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app_actors import FORMS, Boom, Deeds, Form
from nodes import connect_to, node_config, store_with
from rillnode import ActorError, ActorRef, Client, Node, RequestError, RillnodeError

EACH = pytest.mark.parametrize("form", FORMS, ids=lambda one: one.name)
WAITING = pytest.mark.parametrize(
    "form", [one for one in FORMS if one.waits], ids=lambda one: one.name
)
OURS = pytest.mark.parametrize("form", [one for one in FORMS if one.ours], ids=lambda one: one.name)
STATEFUL = pytest.mark.parametrize(
    "form", [one for one in FORMS if one.stateful], ids=lambda one: one.name
)

SECONDS = 30.0


@dataclass
class Site:
    """A node, a client of it over an encrypted link, and an actor behind `app`."""

    node: Node
    client: Client
    form: Form
    deeds: Deeds

    async def spawn(self, address: str = "app", **settings: Any) -> ActorRef:
        given = self.form.given(self.deeds)
        return await self.node.spawn(*given, address=address, allow=["noise:*"], **settings)

    async def ask(self, payload: bytes, address: str = "app") -> bytes:
        answer = await self.client.ask(address, payload, timeout_seconds=SECONDS)
        return answer.payload

    async def outcome(self, payload: bytes, address: str = "app") -> bytes | str:
        """What comes of a question: the answer, or the code of an error."""
        try:
            return await self.ask(payload, address)
        except RillnodeError as error:
            return error.code


def on_site(directory: Path, form: Form, test: Callable[[Site], Awaitable[None]]) -> None:
    @asynccontextmanager
    async def site() -> AsyncGenerator[Site]:
        node = Node(node_config(directory), make_store=store_with())
        async with node, await connect_to(node) as client:
            deeds = Deeds()
            try:
                yield Site(node, client, form, deeds)
            finally:
                deeds.release.set()

    async def main() -> None:
        async with asyncio.timeout(60.0), site() as made:
            await test(made)

    asyncio.run(main())


@EACH
def test_one_at_a_time_and_in_order(tmp_path: Path, form: Form) -> None:
    async def test(site: Site) -> None:
        await site.spawn()
        answers = await asyncio.gather(*(site.ask(b"count %d" % n) for n in range(200)))
        assert answers == [b"%d" % n for n in range(1, 201)]
        assert site.deeds.notes == [f"count {n}" for n in range(200)]
        assert site.deeds.most == 1

    on_site(tmp_path, form, test)


@OURS
def test_a_handler_that_raises_costs_its_message_only(tmp_path: Path, form: Form) -> None:
    async def test(site: Site) -> None:
        ref = await site.spawn()
        asked = [b"count", b"fail", b"count", b"text", b"count", b"refuse", b"count"]
        outcomes = await asyncio.gather(*(site.outcome(one) for one in asked))
        assert outcomes[1::2] == ["actor.failed", "actor.failed", "tests.refused"]
        # A refusal is no failure; each of the others has cost an instance its state.
        counts = [b"1", b"1", b"1", b"2"] if form.stateful else [b"1", b"2", b"3", b"4"]
        assert outcomes[0::2] == counts
        with pytest.raises(ActorError, match="as told") as failed:
            await ref.ask(b"fail")
        assert failed.value.code == "actor.failed"
        with pytest.raises(RequestError, match="as told") as refused:
            await ref.ask(b"refuse")
        assert refused.value.code == "tests.refused"

    on_site(tmp_path, form, test)


@EACH
def test_a_restart_keeps_what_waits(tmp_path: Path, form: Form) -> None:
    async def test(site: Site) -> None:
        ref = await site.spawn()
        for payload in (b"slow", b"fail", b"one", b"two", b"three"):
            await ref.send(payload)
        assert await ref.ask(b"four") == await ref.ask(b"four")
        assert site.deeds.notes[:6] == ["slow", "fail", "one", "two", "three", "four"]

    on_site(tmp_path, form, test)


@EACH
def test_who_fails_too_often_ends_and_is_unknown(tmp_path: Path, form: Form) -> None:
    async def test(site: Site) -> None:
        ref = await site.spawn(restarts_max=2, on_failure="restart")
        outcomes = await asyncio.gather(*(site.outcome(b"fail") for _ in range(6)))
        assert outcomes[:3] == ["actor.failed"] * 3
        assert set(outcomes[3:]) <= {"actor.stopped", "address.unknown"}
        ended = await ref.wait()
        assert ended.reason == "failed"
        assert isinstance(ended.error, Boom) or not form.ours
        assert await site.outcome(b"count") == "address.unknown"
        with pytest.raises(ActorError) as stopped:
            await ref.send(b"count")
        assert stopped.value.code == "actor.stopped"
        again = await site.spawn()
        assert (await again.ask(b"count")).payload == b"1"

    on_site(tmp_path, form, test)


@EACH
def test_stop_works_off_what_waits(tmp_path: Path, form: Form) -> None:
    async def test(site: Site) -> None:
        ref = await site.spawn()
        asking = [asyncio.ensure_future(ref.ask(b"slow")) for _ in range(5)]
        await asyncio.sleep(0)
        await ref.stop()
        assert [(await one).payload for one in asking] == [b"slow"] * 5
        assert (await ref.wait()).reason == "stopped"
        assert site.deeds.stopped == (1 if form.stateful else 0)
        assert await site.outcome(b"count") == "address.unknown"

    on_site(tmp_path, form, test)


@WAITING
def test_who_never_returns_is_cut_off_and_stops_nothing_else(tmp_path: Path, form: Form) -> None:
    async def test(site: Site) -> None:
        ref = await site.spawn()
        await site.spawn("other")
        stream = await site.client.stream("s")
        asking = [asyncio.ensure_future(site.outcome(b"hang")) for _ in range(3)]
        await site.deeds.hangs.wait()
        # The very link that waits for it goes on.
        for number in range(100):
            await stream.push(b"%d" % number)
        assert await site.ask(b"count", "other") == b"1"
        assert not any(one.done() for one in asking)
        # A thread cannot be cut off: what it does at its end waits until it returns.
        asyncio.get_running_loop().call_later(0.1, site.deeds.release.set)
        await ref.stop(0.05)
        assert await asyncio.gather(*asking) == ["actor.stopped"] * 3
        assert await site.outcome(b"count") == "address.unknown"

    on_site(tmp_path, form, test)


@WAITING
def test_the_end_of_a_node_gives_each_question_its_outcome(tmp_path: Path, form: Form) -> None:
    async def test(site: Site) -> None:
        ref = await site.spawn()
        asking = [
            asyncio.ensure_future(ref.ask(payload)) for payload in (b"slow", b"fail", b"slow")
        ]
        await asyncio.sleep(0)
        await site.node.stop()
        outcomes = await asyncio.gather(*asking, return_exceptions=True)
        codes = [getattr(one, "code", "answered") for one in outcomes]
        assert codes == ["answered", "actor.failed", "answered"]
        assert (await ref.wait()).reason == "node"

    on_site(tmp_path, form, test)


@WAITING
def test_a_full_mailbox_refuses_or_holds(tmp_path: Path, form: Form) -> None:
    async def test(site: Site) -> None:
        refusing = await site.spawn("refusing", mailbox_messages_max=2)
        holding = await site.spawn("holding", mailbox_messages_max=2, overflow="hold")
        for ref in (refusing, holding):
            await ref.send(b"hang")
            await site.deeds.hangs.wait()
            site.deeds.hangs.clear()
            await ref.send(b"count")
            await ref.send(b"count")
        with pytest.raises(ActorError, match="too much waiting"):
            await refusing.send(b"count")
        assert await site.outcome(b"count", "refusing") == "actor.busy"
        # A link is not held: it carries what is for others, too.
        assert await site.outcome(b"count", "holding") == "actor.busy"
        waiting = asyncio.ensure_future(holding.send(b"count"))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        dropped = site.node.status()["undelivered"].get("busy", 0)
        await site.client.send("refusing", b"count")
        for _ in range(200):
            if site.node.status()["undelivered"].get("busy", 0) > dropped:
                break
            await asyncio.sleep(0.01)
        assert site.node.status()["undelivered"]["busy"] == dropped + 1
        waiting.cancel()
        site.deeds.release.set()
        await asyncio.gather(refusing.stop(0.02), holding.stop(0.02))

    on_site(tmp_path, form, test)


@STATEFUL
def test_an_idle_instance_goes_and_comes_again(tmp_path: Path, form: Form) -> None:
    async def test(site: Site) -> None:
        ref = await site.spawn(idle_seconds=0.03)
        assert (await ref.ask(b"count")).payload == b"1"
        assert (await ref.ask(b"count")).payload == b"2"
        for _ in range(200):
            if site.deeds.stopped:
                break
            await asyncio.sleep(0.01)
        assert site.deeds.stopped == 1
        assert (await ref.ask(b"count")).payload == b"1"
        assert site.deeds.instances == 2

    on_site(tmp_path, form, test)


@EACH
def test_no_answer_is_none_and_of_two_who_asks_takes_the_first(tmp_path: Path, form: Form) -> None:
    async def test(site: Site) -> None:
        ref = await site.spawn()
        for asked in (
            ref.ask(b"none", timeout_seconds=0.05),
            site.client.ask("app", b"none", timeout_seconds=0.05),
        ):
            with pytest.raises(ActorError) as late:
                await asked
            assert late.value.code == "message.timeout"
        assert (await ref.ask(b"twice")).payload == b"first"
        assert await site.ask(b"twice") == b"first"

    on_site(tmp_path, form, test)


@EACH
def test_an_unanswered_question_ends_with_its_actor(tmp_path: Path, form: Form) -> None:
    async def test(site: Site) -> None:
        ref = await site.spawn()
        asking = asyncio.ensure_future(ref.ask(b"none"))
        await asyncio.sleep(0.02)
        assert not asking.done()
        await ref.stop()
        with pytest.raises(ActorError) as stopped:
            await asking
        assert stopped.value.code == "actor.stopped"

    on_site(tmp_path, form, test)


@WAITING
def test_a_circle_of_questions_is_an_error_at_once(tmp_path: Path, form: Form) -> None:
    async def test(site: Site) -> None:
        refs = [await site.spawn(address) for address in ("a", "b", "c")]
        for payload in (b"ask b ask a x", b"ask a x", b"ask b ask c ask a x"):
            asked = refs[0].ask(payload, timeout_seconds=5.0)
            assert (await asked).payload == b"actor.cycle"
        assert (await refs[0].ask(b"ask b ask c count")).payload == b"1"

    on_site(tmp_path, form, test)
