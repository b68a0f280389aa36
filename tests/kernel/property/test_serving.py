"""Whatever clients that serve, callers and the clock do, each call has one outcome."""

from collections import Counter
from functools import partial
from typing import Final

from hypothesis import given, strategies as st

from core_support import Core, with_core
from hub_support import HubPeer
from rillnode.actors.apps import serving
from rillnode.actors.core.access import Grant
from rillnode.actors.core.delivery import Delivery
from rillnode.actors.engine.faults import When
from rillnode.codecs import native
from rillnode.codecs.routing.routes import WireMessage, local
from rillnode.testing import fail

PRINCIPALS: Final = ("noise:aa", "noise:bb", "noise:aa", "noise:bb")
NAME: Final = b"printer"
LEASE_MS: Final = 10_000

WHO = st.integers(0, len(PRINCIPALS) - 1)
STEPS = st.one_of(
    st.tuples(st.just("serve"), WHO, st.booleans()),
    st.tuples(st.just("stop"), WHO, st.just(0)),
    st.tuples(st.just("close"), WHO, st.just(0)),
    st.tuples(st.just("answer"), WHO, st.integers(0, 3)),
    st.tuples(st.just("call"), st.just(0), st.integers(1, 5)),
    st.tuples(st.just("wait"), st.just(0), st.integers(1, 12)),
    st.tuples(st.just("revoke"), st.just(0), st.just(0)),
    st.tuples(st.just("fail"), st.just(0), st.sampled_from(("before", "after"))),
)


class Serving:
    """Four clients that may serve, and one that calls."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.grants = [
            Grant(who=who, addresses="*", may=frozenset({"serve"})) for who in set(PRINCIPALS)
        ]
        for grant in (*self.grants, Grant(who="caller", addresses="*", may=frozenset({"send"}))):
            core.access.add(grant)
        self.context = serving.ServingContext(
            core.system, core.router, core.access, core.context.entropy
        )
        service = core.system.spawn(partial(serving.ServingService, self.context))
        core.router.register(serving.ADDRESS, service)
        self.clients = [self._client(who) for who in PRINCIPALS]
        self.caller = self._client("caller")
        self.sent = 0
        self._tokens = 0
        self._last: dict[int, bytes] = {}

    def _client(self, principal: str) -> HubPeer:
        peer = HubPeer(self.core, principal, 4_194_304)
        peer.origin.native = True
        return peer

    async def serve(self, who: int, group: bool) -> None:
        self._tokens += 1
        token = self._tokens.to_bytes(16, "big")
        self._last[who] = token
        request = native.ServeRequest(who + 1, NAME, token, group, 2, LEASE_MS)
        self.clients[who].send("serve", native.encode(request))

    async def stop(self, who: int, _: int) -> None:
        request = native.StopServingRequest(99, self._last.get(who, bytes(16)))
        for control, _calls in self._given(who):
            self.clients[who].send(control, native.encode(request))

    async def close(self, who: int, _: int) -> None:
        await self.clients[who].close()
        self.clients[who] = self._client(PRINCIPALS[who])

    async def answer(self, who: int, how: int) -> None:
        """Answer the last that came, perhaps once more; or refuse it, or one that never came."""
        for control, calls in self._given(who)[-1:]:
            ids = [call.call_id for call in calls] or [12_345]
            code = "printer.paper" if how == 1 else ""
            answer = native.AnswerRequest(0, ids[-1], None if how == 2 else b"printed", code)
            self.clients[who].send(control, native.encode(answer))

    async def call(self, _: int, count: int) -> None:
        messages: list[WireMessage] = []
        for _ in range(count):
            back = (self.caller.link, local(b"%d" % self.sent))
            messages.append(WireMessage((local(NAME),), back, b"page"))
            self.sent += 1
        self.core.router.route(self.caller.origin, messages)

    async def wait(self, _: int, seconds: int) -> None:
        self.core.clock.advance(float(seconds))

    async def revoke(self, *_: int) -> None:
        self.core.access.replace(self.grants[:1], [])
        self.core.access.replace([], self.grants[:1])

    def _given(self, who: int) -> list[tuple[bytes, list[native.Call]]]:
        """The addresses that a client was told of, and the calls from there."""
        found: list[tuple[bytes, list[native.Call]]] = []
        for wire in self.clients[who].received:
            response = native.decode_response(wire.payload)
            calls = response.calls if isinstance(response, native.CallsResponse) else []
            if wire.return_route and wire.return_route[0].value != serving.ADDRESS:
                found.append((wire.return_route[0].value, calls))
        return found

    def check(self) -> None:
        """What is over is forgotten; callers were told once, or not at all if so answered."""
        told = Counter(wire.onward_route[0].value for wire in self.caller.received)
        assert all(count == 1 for count in told.values())
        assert len(told) + self.context.open_calls <= self.sent


@given(st.lists(STEPS, max_size=40))
def test_each_call_has_one_outcome_whatever_everybody_does(
    steps: list[tuple[str, int, int | str]],
) -> None:
    async def test(core: Core) -> None:
        all_of_it = Serving(core)
        unanswered = 0
        await core.settle()
        for what, who, how in steps:
            if what == "fail":
                when: When = "before" if how == "before" else "after"
                with fail(serving.ServedActor, Delivery, when=when):
                    await all_of_it.call(0, 2)
                    await core.settle()
            else:
                before = all_of_it.context.open_calls
                told = len(all_of_it.caller.received)
                await getattr(all_of_it, what)(who, how)
                await core.settle()
                if what == "answer" and how == 2:  # a call that is over, and nobody is told
                    now = all_of_it.context.open_calls
                    unanswered += before - now - (len(all_of_it.caller.received) - told)
            all_of_it.check()
        for client in all_of_it.clients:
            await client.close()
        core.clock.advance(LEASE_MS)
        await core.settle()
        context = all_of_it.context
        assert (context.open_calls, context.links.total(), context.principals.total()) == (0, 0, 0)
        assert not context.served
        assert core.router.lookup(NAME) is None
        told = len({wire.onward_route for wire in all_of_it.caller.received})
        assert told == len(all_of_it.caller.received) == all_of_it.sent - unanswered

    with_core(test)
