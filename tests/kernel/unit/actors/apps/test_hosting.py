"""Applications' actors where time stands still: addresses, children, routes, errors."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from core_support import Core, with_core
from coroutines import handed_by
from rillnode import Actor, ActorError, ActorRef, ActorReply, Context, Ended, Message, RequestError
from rillnode.actors.apps.addresses import check_address
from rillnode.actors.apps.hosting import Hosting
from rillnode.actors.core.access import Grant, GrantVerb
from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.threads import SYSTEM_THREADS
from rillnode.codecs import native
from rillnode.codecs.errors import ArgumentError, CodecError, ConfigError
from rillnode.codecs.limits import FRAME_BYTES_MAX
from rillnode.codecs.routing.routes import WireMessage, local

SENDS: frozenset[GrantVerb] = frozenset(("send",))


class Site:
    """A core with actors of an application."""

    def __init__(self, core: Core) -> None:
        self.core = core
        entropy = core.context.entropy
        self.hosting = Hosting(
            core.system,
            core.router,
            core.access,
            entropy,
            SYSTEM_THREADS,
            "the node",
            core.context.clock,
        )

    async def spawn(
        self, actor: Any, *args: Any, address: str | None = None, **more: Any
    ) -> ActorRef:
        allow, essential = more.pop("allow", ()), more.pop("essential", False)
        return await self.hosting.spawn(
            actor, args, address=address, allow=allow, essential=essential, settings=more
        )


def on_site(test: Callable[[Site], Awaitable[None]]) -> None:
    async def main(core: Core) -> None:
        await test(Site(core))

    with_core(main)


site = handed_by(on_site)


async def code_of(asked: Awaitable[object]) -> str:
    with pytest.raises((ActorError, RequestError)) as raised:
        await asked
    return raised.value.code


def echo(message: Message, ctx: Context) -> bytes:
    return message.payload


class Notes(Actor):
    """Notes all that it gets."""

    def __init__(self, notes: list[Message]) -> None:
        self.notes = notes

    def receive(self, message: Message, ctx: Context) -> None:
        self.notes.append(message)


# Addresses -----------------------------------------------------------------------------------


async def test_an_address_is_taken_until_its_actor_has_ended(site: Site) -> None:
    ref = await site.spawn(echo, address="a")
    assert await code_of(site.spawn(echo, address="a")) == "address.taken"
    stopping = asyncio.ensure_future(ref.stop())
    await asyncio.sleep(0)
    again = await site.spawn(echo, address="a")  # waits for the end of the one before
    await stopping
    assert (await again.ask(b"x")).payload == b"x"
    assert await code_of(ref.ask(b"x")) == "actor.stopped"


@pytest.mark.parametrize(
    "address",
    ["stream", "stream_index", "node", "peer/core", "SUB_12", "ST_S_0_a", "0123456789abcdef",
     "echo", "forwarding_service", "forward_to_a", "api", "tracker", "overlay/a", "serve"],
)  # fmt: skip
async def test_the_nodes_own_addresses_are_reserved(site: Site, address: str) -> None:
    assert await code_of(site.spawn(echo, address=address)) == "address.reserved"


@pytest.mark.parametrize("address", ["", "a b", "a;b", "1#a", "a*", "a=>b", "ä" * 257])
def test_what_no_route_or_grant_can_say_is_no_address(address: str) -> None:
    with pytest.raises(RequestError) as raised:
        check_address(address)
    assert raised.value.code == "address.invalid"


async def test_who_is_not_allowed_is_answered_as_by_nobody(site: Site) -> None:
    core = site.core
    await site.spawn(echo, address="open", allow=["stran*"])
    granted = await site.spawn(echo, address="granted")
    peer = core.peer("stranger")
    for address, answer in (("open", b"x"), ("granted", None), ("nobody", None)):
        peer.answers.clear()
        peer.send(address, b"x")
        await core.settle()
        (wire,) = peer.answers
        if answer is None:
            failure = native.decode_response(wire.payload)
            assert isinstance(failure, native.Failure)
            assert failure.code == "address.unknown"
        else:
            assert wire.payload == answer
    core.access.add(Grant(who="stranger", addresses="gr*", may=SENDS))
    peer.answers.clear()
    peer.send("granted", b"x")
    await core.settle()
    assert [wire.payload for wire in peer.answers] == [b"x"]
    await granted.stop()


async def test_what_was_allowed_with_an_actor_ends_with_it(site: Site) -> None:
    access = site.core.access
    fixed = Grant(who="noise:*", addresses="a", may=SENDS)
    ref = await site.spawn(echo, address="a", allow=["noise:*", "anonymous"])
    assert access.known("anonymous")
    access.add(fixed)
    await ref.stop()
    assert not access.known("anonymous")
    assert access.address_verbs("noise:1", b"a") == SENDS


# Beginning -----------------------------------------------------------------------------------


class Fails(Actor):
    def __init__(self, where: str) -> None:
        self.where = where
        if where == "made":
            raise OSError(where)

    async def started(self, ctx: Context) -> None:
        if self.where == "waited":
            await asyncio.sleep(0)
        raise OSError(self.where)


@pytest.mark.parametrize("where", ["made", "started", "waited"])
async def test_spawn_raises_what_the_start_raises(site: Site, where: str) -> None:
    for _ in range(2):  # its address is free again
        with pytest.raises(OSError, match=where):
            await site.spawn(Fails, where, address="a")
        await site.core.settle()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"concurency": 2}, "'concurency' is no setting"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"on_failure": "ignore"}, "one of resume, restart, stop"),
        ({"overflow": "drop"}, "one of refuse, hold"),
        ({"idle_seconds": 0}, "a number over 0"),
        ({"mailbox_messages_max": True}, "a whole number from 1 on"),
        ({"restarts_max": -1}, "a whole number"),
    ],
)
async def test_settings_that_cannot_be_are_refused(
    site: Site, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        await site.spawn(echo, **settings)
    assert raised.value.code == "actor.settings"


async def test_a_coroutine_does_not_block(site: Site) -> None:
    async def waits(message: Message, ctx: Context) -> None: ...

    with pytest.raises(ConfigError, match="does not block"):
        await site.spawn(waits, blocking=True)


async def test_settings_of_a_class_hold_unless_spawn_says_others(site: Site) -> None:
    class Wide(Actor):
        concurrency = 3

        def __init__(self, most: list[int]) -> None:
            self.under_way, self.most = 0, most

        async def receive(self, message: Message, ctx: Context) -> bytes:
            self.under_way += 1
            self.most.append(self.under_way)
            for _ in range(5):
                await asyncio.sleep(0)
            self.under_way -= 1
            return message.payload

    several: list[tuple[dict[str, Any], int]] = [
        ({}, 3),
        ({"concurrency": 2}, 2),
        ({"concurrency": 1}, 1),
    ]
    for settings, expected in several:
        most: list[int] = []
        ref = await site.spawn(Wide, most, **settings)
        asked = [ref.ask(b"%d" % number) for number in range(20)]
        answers = await asyncio.gather(*asked)
        assert [one.payload for one in answers] == [b"%d" % number for number in range(20)]
        assert max(most) == expected
        await ref.stop()


# Children and ends ---------------------------------------------------------------------------


class Parent(Actor):
    """Has a child from its start, and notes what it is told of it."""

    def __init__(self, notes: list[Any]) -> None:
        self.notes = notes

    async def started(self, ctx: Context) -> None:
        self.child = await ctx.spawn(Child, self.notes, name="child", on_failure="stop")

    async def receive(self, message: Message, ctx: Context) -> bytes | None:
        if isinstance(message.value, Ended):
            self.notes.append(message.value)
            return None
        if message.payload == b"raise":
            raise OSError("the parent")
        return (await ctx.ask(self.child, message.payload)).payload

    async def stopped(self, ctx: Context) -> None:
        self.notes.append("parent stopped")


class Child(Actor):
    def __init__(self, notes: list[Any]) -> None:
        self.notes = notes

    def receive(self, message: Message, ctx: Context) -> bytes:
        if message.payload == b"fail":
            raise OSError("the child")
        return b"child of " + ctx.address.encode()

    def stopped(self, ctx: Context) -> None:
        self.notes.append("child stopped")


async def test_a_child_has_an_address_below_and_its_parent_is_told_of_its_end(site: Site) -> None:
    notes: list[Any] = []
    ref = await site.spawn(Parent, notes, address="p")
    assert (await ref.ask(b"x")).payload == b"child of p/child"
    # What the child failed with is the parent's failure here, as it does not catch it.
    assert await code_of(ref.ask(b"fail")) == "actor.failed"
    await site.core.settle()
    ended = next(one for one in notes if isinstance(one, Ended))
    assert (ended.ref.address, ended.reason) == ("p/child", "failed")
    assert isinstance(ended.error, OSError)


async def test_children_end_before_their_parent_and_with_its_instance(site: Site) -> None:
    notes: list[Any] = []
    ref = await site.spawn(Parent, notes, address="p")
    assert await code_of(ref.ask(b"raise")) == "actor.failed"
    # The instance that follows has a child under the same name.
    assert (await ref.ask(b"x")).payload == b"child of p/child"
    notes.clear()
    await ref.stop()
    told = [one for one in notes if isinstance(one, str)]
    assert told == ["child stopped", "parent stopped"]
    assert site.core.router.lookup(b"p/child") is None


async def test_a_stop_that_is_cancelled_ends_the_actor_all_the_same(site: Site) -> None:
    notes: list[Any] = []
    goes_on = asyncio.Event()

    class Slow(Parent):
        async def started(self, ctx: Context) -> None:
            self.child = await ctx.spawn(busy, name="child")

    async def busy(message: Message, ctx: Context) -> bytes:
        await goes_on.wait()
        return b"done"

    ref = await site.spawn(Slow, notes, address="p")
    asking = asyncio.ensure_future(
        site.hosting.ask(None, "p/child", b"", None, 10.0, waiting=False)
    )
    await site.core.settle()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(ref.stop(), 0.01)
    goes_on.set()
    assert (await asking).payload == b"done"
    async with asyncio.timeout(5.0):
        assert (await ref.wait()).reason == "stopped"
    assert (await (await site.spawn(echo, address="p")).ask(b"x")).payload == b"x"


async def test_a_stop_that_is_cancelled_keeps_its_limit(site: Site) -> None:
    async def stuck(message: Message, ctx: Context) -> bytes:
        await asyncio.Event().wait()
        return b""

    ref = await site.spawn(stuck, address="p")
    asking = asyncio.ensure_future(code_of(ref.ask(b"x")))
    await site.core.settle()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(ref.stop(timeout_seconds=0.1), 0.01)
    async with asyncio.timeout(5.0):
        assert (await ref.wait()).reason == "stopped"
    assert await asking == "actor.stopped"


async def test_who_watches_is_told_once_and_also_late(site: Site) -> None:
    class Watcher(Actor):
        def __init__(self, watched: ActorRef, notes: list[Any]) -> None:
            self.watched, self.notes = watched, notes

        def started(self, ctx: Context) -> None:
            ctx.watch(self.watched)

        def receive(self, message: Message, ctx: Context) -> None:
            self.notes.append(message.value)

    ref = await site.spawn(echo)
    notes: list[Any] = []
    await site.spawn(Watcher, ref, notes)
    await ref.stop()
    await site.core.settle()
    assert notes == [Ended(ref, "stopped")]
    await site.spawn(Watcher, ref, notes)
    await site.core.settle()
    assert notes == [Ended(ref, "stopped")] * 2


async def test_an_actor_may_stop_itself(site: Site) -> None:
    class Once(Actor):
        async def receive(self, message: Message, ctx: Context) -> bytes:
            if message.payload == b"later":
                await ctx.ref.stop()
            else:
                ctx.stop()
            return b"last"

    for payload in (b"now", b"later"):
        ref = await site.spawn(Once)
        assert (await ref.ask(payload)).payload == b"last"
        assert (await ref.wait()).reason == "stopped"


async def test_an_essential_actor_that_is_given_up_is_fatal(site: Site) -> None:
    told: list[BaseException] = []
    site.core.system.on_fatal = lambda _, error: told.append(error)

    def fails(message: Message, ctx: Context) -> None:
        raise OSError("for good")

    ref = await site.spawn(fails, essential=True, restarts_max=0)
    await code_of(ref.ask())
    assert isinstance((await ref.wait()).error, OSError)
    assert [str(one) for one in told] == ["for good"]


# Questions -----------------------------------------------------------------------------------


class Asks(Actor):
    """Asks whom its message names first, with what is left of it."""

    async def receive(self, message: Message, ctx: Context) -> bytes:
        to, _, rest = message.payload.decode().partition(" ")
        if not to:
            return b"end"
        try:
            return (await ctx.ask(to, rest.encode(), timeout_seconds=5.0)).payload
        except ActorError as error:
            return error.code.encode()


@pytest.mark.parametrize("way", ["b a", "a", "b c a", "b c b"])
async def test_a_circle_of_questions_is_an_error_at_once(site: Site, way: str) -> None:
    refs = {name: await site.spawn(Asks, address=name) for name in "abc"}
    assert (await refs["a"].ask(way.encode())).payload == b"actor.cycle"
    assert (await refs["a"].ask(b"b c")).payload == b"end"


async def test_two_that_ask_each_other_by_chance_are_a_circle_too(site: Site) -> None:
    a, b = [await site.spawn(Asks, address=name) for name in "ab"]
    answers = await asyncio.gather(a.ask(b"b"), b.ask(b"a"))
    # Whoever asks second is told, and answers; so the first has its answer as well.
    assert sorted(one.payload for one in answers) == [b"actor.cycle", b"end"]


def test_an_answer_may_come_later_by_the_route() -> None:
    class Later(Actor):
        def __init__(self) -> None:
            self.waiting: list[Message] = []

        def receive(self, message: Message, ctx: Context) -> None:
            if message.payload == b"now":
                for one in self.waiting:
                    ctx.send(one.return_route, one.payload)
            else:
                self.waiting.append(message)

    async def test(site: Site) -> None:
        ref = await site.spawn(Later, address="later")
        peer = site.core.peer("stranger")
        site.core.access.add(Grant(who="stranger", addresses="later", may=SENDS))
        peer.send("later", b"wire")
        asking = asyncio.ensure_future(ref.ask(b"local"))
        await site.core.settle()
        await ref.send(b"now")
        assert (await asking).payload == b"local"
        await site.core.settle()
        assert [one.payload for one in peer.answers] == [b"wire"]

    on_site(test)


async def test_questions_to_nobody_have_an_outcome(site: Site) -> None:
    codes: list[str] = []

    async def asks(message: Message, ctx: Context) -> bytes:
        for to in ("nobody", "nobody;2#far", ctx.ref):
            codes.append(await code_of(ctx.ask(to, b"x", timeout_seconds=1.0)))
        return b"done"

    ref = await site.spawn(asks, address="asks")
    assert (await ref.ask()).payload == b"done"
    assert codes == ["address.unknown", "address.unknown", "actor.cycle"]


# Routes --------------------------------------------------------------------------------------


async def test_answers_come_to_who_wants_them_and_so_do_refusals(site: Site) -> None:
    notes: list[Message] = []
    await site.spawn(echo, address="echoes")

    class Sends(Notes):
        def started(self, ctx: Context) -> None:
            ctx.send("echoes", b"unanswered")
            ctx.send("echoes", b"answered", answers=True)
            ctx.send("nobody", b"lost", answers=True)

    await site.spawn(Sends, notes, address="sends")
    await site.core.settle()
    answered, lost = sorted(notes, key=lambda one: one.value is not None)
    assert (answered.payload, answered.principal) == (b"answered", "node")
    assert isinstance(lost.value, RequestError)
    assert lost.value.code == "address.unknown"


async def test_a_message_is_passed_on_with_its_senders_rights(site: Site) -> None:
    notes: list[Message] = []

    def passes(message: Message, ctx: Context) -> None:
        ctx.forward("secret" if message.payload == b"secret" else "open")

    await site.spawn(Notes, notes, address="secret")
    await site.spawn(Notes, notes, address="open", allow=["stranger"])
    await site.spawn(passes, address="passes", allow=["stranger"])
    peer = site.core.peer("stranger")
    peer.send("passes", b"secret", b"public")
    await site.core.settle()
    assert [(one.payload, one.principal, one.address) for one in notes] == [
        (b"public", "stranger", "open")
    ]
    (refused,) = peer.answers
    failure = native.decode_response(refused.payload)
    assert isinstance(failure, native.Failure)
    assert failure.code == "address.unknown"


async def test_answers_to_what_was_passed_on_may_come_back_through(site: Site) -> None:
    def between(message: Message, ctx: Context) -> None:
        if message.payload.startswith(b"answer"):
            ctx.forward(payload=b"more than " + message.payload)
        else:
            ctx.forward("far", stay=True)

    def far(message: Message, ctx: Context) -> bytes:
        return b"answer " + message.payload

    between_ref = await site.spawn(between, address="between", allow=["stranger"])
    await site.spawn(far, address="far", allow=["stranger"])
    assert (await between_ref.ask(b"x")).payload == b"more than answer x"
    peer = site.core.peer("stranger")
    peer.send("between", b"y")
    await site.core.settle()
    assert [one.payload for one in peer.answers] == [b"more than answer y"]


async def test_routes_and_payloads_have_their_limits(site: Site) -> None:
    far = (local("far"),) * 100
    raised: list[str] = []

    async def tries(message: Message, ctx: Context) -> bytes:
        several: tuple[Callable[[], None], ...] = (
            lambda: ctx.send(far, b"x"),
            lambda: ctx.forward(*far),
            lambda: ctx.send("far", bytes(FRAME_BYTES_MAX)),
        )
        for do in several:
            with pytest.raises((CodecError, RequestError)) as error:
                do()
            raised.append(error.value.code)
        with pytest.raises(CodecError):
            await ctx.ask(far, b"x")
        with pytest.raises(TypeError, match="does not leave"):
            ctx.send("far", value=1)
        with pytest.raises(TypeError, match="a payload is bytes"):
            await ref.send("text")  # type: ignore[arg-type]
        return bytes(FRAME_BYTES_MAX)

    ref = await site.spawn(tries, address="tries", allow=["stranger"])
    assert len((await ref.ask(b"x")).payload) == FRAME_BYTES_MAX
    assert raised == ["codec.limit", "codec.limit", "message.size"]
    peer = site.core.peer("stranger")
    peer.send("tries", b"x")
    await site.core.settle()
    (wire,) = peer.answers
    failure = native.decode_response(wire.payload)
    assert isinstance(failure, native.Failure)
    assert failure.code == "message.size"


async def test_an_answer_to_who_has_gone_is_counted(site: Site) -> None:
    await site.spawn(echo, address="a", allow=["*"])
    origin = Origin("stranger", FRAME_BYTES_MAX, native=True)
    site.core.router.route(origin, [WireMessage((local("a"),), (local("gone"),), b"x")])
    origin.end()
    await site.core.settle()
    assert site.core.router.undelivered == {"link_lost": 1}


async def test_a_refusal_may_be_long(site: Site) -> None:
    def refuses(message: Message, ctx: Context) -> None:
        raise ActorReply("tests.long", "x" * 100_000)

    await site.spawn(refuses, address="a", allow=["*"])
    peer = site.core.peer("stranger")
    peer.send("a", b"x")
    await site.core.settle()
    failure = native.decode_response(peer.answers[0].payload)
    assert isinstance(failure, native.Failure)
    assert (failure.code, len(failure.text)) == ("tests.long", 100_000)


# Timers and threads --------------------------------------------------------------------------


async def test_timers_tell_the_instance_that_has_set_them(site: Site) -> None:
    class Timed(Notes):
        def started(self, ctx: Context) -> None:
            ctx.after(1.0, "once")
            self.every = ctx.after(1.0, "again", every=True)

        def receive(self, message: Message, ctx: Context) -> None:
            super().receive(message, ctx)
            if message.payload == b"enough":
                self.every.cancel()
            if message.payload == b"fail":
                raise OSError("as told")

    notes: list[Message] = []
    ref = await site.spawn(Timed, notes)

    async def values(seconds: float) -> list[Any]:
        notes.clear()
        for _ in range(int(seconds)):
            site.core.clock.advance(1.0)
            await site.core.settle()
        return [one.value for one in notes]

    assert await values(3) == ["once", "again", "again", "again"]
    await ref.send(b"fail")
    await site.core.settle()
    assert await values(2) == ["once", "again", "again"]
    await ref.send(b"enough")
    await site.core.settle()
    assert await values(3) == []


async def test_a_blocking_actor_uses_its_context_on_its_thread(site: Site) -> None:
    class Blocks(Actor):
        blocking = True

        def receive(self, message: Message, ctx: Context) -> bytes:
            assert threading.current_thread() is not threading.main_thread()
            child = ctx.wait(ctx.spawn(echo, name="child"))
            ctx.watch(child)
            ctx.send(child, b"unanswered")
            ctx.after(60.0, "later").cancel()
            ctx.reply(ctx.wait(ctx.ask(child, b"asked")).payload)
            with pytest.raises(CodecError):
                ctx.send("#", b"x")
            return b"second"

    ref = await site.spawn(Blocks)
    assert (await ref.ask()).payload == b"asked"

    def waits(message: Message, ctx: Context) -> None:
        asked = ctx.ask("nobody")
        try:
            ctx.wait(asked)
        finally:
            asked.close()

    with pytest.raises(ActorError, match="cannot wait"):
        await (await site.spawn(waits, on_failure="resume")).ask()


async def test_objects_stay_on_the_node(site: Site) -> None:
    given = object()

    def answers(message: Message, ctx: Context) -> None:
        ctx.reply(value=(message.value, ctx.node))

    ref = await site.spawn(answers, address="a", allow=["*"], on_failure="resume")
    assert (await ref.ask(value=given)).value == (given, "the node")
    peer = site.core.peer("stranger")
    peer.send("a", b"x")
    await site.core.settle()
    failure = native.decode_response(peer.answers[0].payload)
    assert isinstance(failure, native.Failure)
    assert failure.code == "actor.failed"


async def test_nothing_is_left_of_actors_that_have_ended(site: Site) -> None:
    core = site.core
    before = dict(core.router.table), core.system.life.population
    for number in range(50):
        ref = await site.spawn(Parent, [], address=f"p{number}", allow=["noise:*"])
        await ref.ask(b"x")
        await ref.stop()
    await core.settle()
    assert (dict(core.router.table), core.system.life.population) == before
    assert not core.access.known("noise:1")


# On demand -----------------------------------------------------------------------------------


class Twin(Actor):
    """Counts the messages of one device."""

    idle_seconds = 10.0

    def __init__(self, name: str, made: list[str]) -> None:
        if name == "none":
            raise OSError("as told")
        made.append(name)
        self.name, self.count = name, 0

    def started(self, ctx: Context) -> None:
        if self.name == "never":
            raise OSError("as told")

    def receive(self, message: Message, ctx: Context) -> bytes:
        self.count += 1
        return f"{self.name} {self.count}".encode()


async def test_actors_are_made_by_their_first_message_and_end_when_idle(site: Site) -> None:
    core, made = site.core, list[str]()
    site.hosting.on_demand("device/", lambda name: Twin(name, made), allow=["stranger"])
    peer = core.peer("stranger")
    before = core.system.life.population
    for name in ("a", "b", "a", "b/c"):
        peer.send(f"device/{name}", b"x")
    await core.settle()
    answers = sorted(one.payload for one in peer.answers)
    assert answers == [b"a 1", b"a 2", b"b 1", b"b/c 1"]
    assert made == ["a", "b", "b/c"]

    async def asks(message: Message, ctx: Context) -> bytes:
        return (await ctx.ask("device/a")).payload

    local_asker = await site.spawn(asks)
    assert (await local_asker.ask()).payload == b"a 3"
    await local_asker.stop()
    for _ in range(3):
        core.clock.advance(10.0)
        await core.settle()
    assert core.system.life.population == before
    assert not [key for key in core.router.table if key.startswith(b"device/")]
    peer.answers.clear()
    peer.send("device/a", b"x")
    await core.settle()
    assert [one.payload for one in peer.answers] == [b"a 1"]


async def test_who_may_not_send_below_a_prefix_makes_no_actor(site: Site) -> None:
    made: list[str] = []
    site.hosting.on_demand("device/", lambda name: Twin(name, made))
    peer = site.core.peer("stranger")
    told: list[bytes] = []
    for address in ("device/a", "nobody/a"):
        peer.answers.clear()
        peer.send(address, b"x")
        await site.core.settle()
        told += [one.payload for one in peer.answers]
    assert not made
    assert told[0] == told[1]


async def test_those_that_cannot_be_made_are_errors_and_followed_by_a_pause(site: Site) -> None:
    made: list[str] = []
    site.hosting.on_demand("device/", lambda name: Twin(name, made), allow=["stranger"])
    peer = site.core.peer("stranger")

    async def told(address: bytes) -> str:
        peer.answers.clear()
        peer.send(address, b"x")
        await site.core.settle()
        failure = native.decode_response(peer.answers[0].payload)
        assert isinstance(failure, native.Failure)
        return failure.code

    assert await told(b"device/none") == "actor.failed"
    for _ in range(3):
        assert await told(b"device/never") == "actor.busy"
    assert await told(b"device/") == "address.unknown"
    assert await told(b"device/\xff") == "address.unknown"
    assert await told(b"device/a b") == "address.unknown"
    assert made == ["never"] * 6


@pytest.mark.parametrize(
    ("prefix", "code"),
    [("device", "address.invalid"), ("a/b/", "address.invalid"), ("", "address.invalid"),
     ("peer/", "address.reserved"), ("stream/", "address.reserved"), ("twin/", "address.taken")],
)  # fmt: skip
async def test_prefixes_that_cannot_be_are_refused(site: Site, prefix: str, code: str) -> None:
    site.hosting.on_demand("twin/", lambda name: Twin(name, []))
    with pytest.raises(RequestError) as refused:
        site.hosting.on_demand(prefix, lambda name: Twin(name, []))
    assert refused.value.code == code


def test_the_number_of_actors_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rillnode.actors.apps.hosting.ENDPOINTS_MAX", 3)

    async def test(site: Site) -> None:
        made: list[str] = []
        site.hosting.on_demand("twin/", lambda name: Twin(name, made), allow=["stranger"])
        await site.spawn(echo)
        peer = site.core.peer("stranger")
        for number in range(5):
            peer.send(f"twin/{number}", b"x")
        await site.core.settle()
        assert made == ["0", "1"]
        assert site.core.router.undelivered == {"busy": 3}
        assert await code_of(site.spawn(echo)) == "actor.busy"

    on_site(test)


async def test_one_whose_mailbox_is_full_hears_of_ends_and_ends(site: Site) -> None:
    goes_on, notes = asyncio.Event(), list[str]()
    other = await site.spawn(echo)

    class Full(Actor):
        mailbox_messages_max = 2

        async def started(self, ctx: Context) -> None:
            ctx.watch(other)

        async def receive(self, message: Message, ctx: Context) -> None:
            await goes_on.wait()
            notes.append(message.payload.decode() or type(message.value).__name__)

    full = await site.spawn(Full)
    asking = [asyncio.ensure_future(full.ask(b"%d" % nth)) for nth in range(3)]
    await site.core.settle()
    assert await code_of(asking.pop()) == "actor.busy"
    await other.stop()
    stopping = asyncio.ensure_future(full.stop())
    await site.core.settle()
    goes_on.set()
    await stopping
    assert notes == ["0", "1", "Ended"]
    for asked in asking:
        asked.cancel()


@pytest.mark.parametrize("wrong", [float("nan"), "5", True, []])
async def test_a_time_that_is_none_is_refused_and_harms_no_timer(site: Site, wrong: Any) -> None:
    async def tries(message: Message, ctx: Context) -> bytes:
        with pytest.raises(ArgumentError, match=r"^seconds "):
            ctx.after(wrong, "never")
        with pytest.raises(ArgumentError, match=r"^timeout_seconds "):
            await ctx.ask("tries", timeout_seconds=wrong)
        return b"done"

    ref = await site.spawn(tries, address="tries")
    with pytest.raises(ArgumentError, match=r"^timeout_seconds "):
        await ref.ask(timeout_seconds=wrong)
    with pytest.raises(ArgumentError, match=r"^timeout_seconds "):
        await ref.stop(wrong)
    assert (await ref.ask()).payload == b"done"


@pytest.mark.parametrize("wrong", [0, 0.0, -1, 1e-9, float("-inf")])
async def test_a_timer_does_not_tick_without_a_pause(site: Site, wrong: float) -> None:
    """Once, it is due at once."""
    told = list[object]()

    async def ticks(message: Message, ctx: Context) -> bytes | None:
        if message.value is None:
            with pytest.raises(ArgumentError, match=r"^seconds is at least 0\.001 with every=True"):
                ctx.after(wrong, "never", every=True)
            ctx.after(wrong, "once")
            return b"done"
        told.append(message.value)
        return None

    ref = await site.spawn(ticks, address="ticks")
    assert (await ref.ask()).payload == b"done"
    site.core.clock.advance(0.001)
    await site.core.settle()
    assert told == ["once"]


@pytest.mark.parametrize("wrong", [5, None, "greeter", dict])
async def test_what_is_no_actor_is_refused_at_once(site: Site, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"neither a rillnode\.Actor nor a function") as caught:
        await site.spawn(wrong)
    assert caught.value.code == "actor.class"
    if not callable(wrong):
        with pytest.raises(ConfigError, match="no function that makes"):
            site.hosting.on_demand("made/", wrong)


@pytest.mark.parametrize("wrong", [5, b"x", "\ud800"])
async def test_an_address_that_is_no_text_is_refused(site: Site, wrong: Any) -> None:
    with pytest.raises(RequestError) as caught:
        await site.spawn(Notes, address=wrong)
    assert caught.value.code == "address.invalid"
    with pytest.raises(RequestError) as caught:
        site.hosting.on_demand(wrong, lambda _: Notes([]))
    assert caught.value.code == "address.invalid"


@pytest.mark.parametrize("wrong", ["noise:*", b"noise:*", ["bob"], 5, None])
async def test_a_child_is_opened_to_nobody_whom_no_list_names(site: Site, wrong: Any) -> None:
    async def tries(message: Message, ctx: Context) -> bytes:
        with pytest.raises(ConfigError) as caught:
            await ctx.spawn(tries, name="child", allow=wrong)
        return caught.value.code.encode()

    ref = await site.spawn(tries)
    assert (await ref.ask()).payload == b"actor.allow"
