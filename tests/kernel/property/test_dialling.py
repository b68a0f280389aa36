"""Whatever becomes of a peer's links, each message goes out once, fails once, or waits."""

from typing import Final

from hypothesis import given, strategies as st

from dialling_support import Bench, FakeLink, with_bench
from rillnode.actors.core.links.dialling import StopPeer
from rillnode.codecs import native
from rillnode.codecs.errors import HandshakeError
from rillnode.codecs.limits import LINK_BUFFER_HIGH_BYTES
from rillnode.codecs.routing.routes import encode_message

WEATHER: Final = st.sampled_from(
    ["open", "fail", "forbid", "close", "answer", "jam", "ebb", "drain", "moment", "hour"]
)
EVENTS: Final = st.lists(st.one_of(st.integers(1, 5), WEATHER), min_size=5, max_size=40)


class Story:
    """A peer's bench, what was sent to it, and what the peer's links saw."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.asked = 0
        self.links: list[FakeLink] = []
        self.settled: set[int] = set()  # attempts that were opened or failed

    @property
    def pending(self) -> list[int]:
        """Attempts of which nothing has been heard yet."""
        attempts = self.bench.attempts
        return [
            at for at, one in enumerate(attempts) if at not in self.settled and not one.cancelled
        ]

    @property
    def open_links(self) -> list[FakeLink]:
        return [link for link in self.links if not link.closed]

    async def happen(self, event: int | str) -> None:
        bench = self.bench
        match event:
            case int():
                numbers = range(self.asked + 1, self.asked + event + 1)
                self.asked += event
                await bench.send(*(native.encode(native.StatusRequest(n)) for n in numbers))
            case "open" | "fail" | "forbid" if self.pending:
                self.settled |= {*self.pending}
                if event == "open":
                    self.links.append(await bench.open())
                elif event == "fail":
                    await bench.fail()
                else:
                    await bench.fail(HandshakeError("noise.unknown_identity", "not you"))
            case "moment":
                await bench.pass_time(1.0)
            case "hour":
                await bench.pass_time(3_600.0)
            case _:
                for link in self.open_links:
                    self._weather(link, event)
        await bench.core.settle()

    def _weather(self, link: FakeLink, event: str) -> None:
        match event:
            case "close":
                link.close("closed by the peer")
            case "answer":
                link.events.messages_received([encode_message((), (), b"")])
            case "jam":
                link.buffered_bytes = LINK_BUFFER_HIGH_BYTES + 1
            case "ebb":  # below the high mark, and not yet at the low one
                link.buffered_bytes = LINK_BUFFER_HIGH_BYTES
            case "drain":
                link.buffered_bytes = 0
                link.events.link_drained()
            case _:
                pass

    def check(self) -> None:
        assert len(self.pending) <= 1
        assert len(self.open_links) <= 1
        assert not (self.pending and self.open_links)
        sent = [
            request.request_id
            for link in self.links
            for request in (native.decode_request(message.payload) for message in link.sent)
        ]
        failed = [
            native.decode_response(answer.payload).request_id for answer in self.bench.answers
        ]
        status, origin = self.bench.status, self.bench.origin
        assert sent == sorted(sent)
        assert len({*sent, *failed}) == len(sent) + len(failed)
        assert len(sent) + len(failed) + status.waiting == self.asked
        assert status.links == len(self.open_links)
        assert (origin.reserved_bytes > 0) == (status.waiting > 0)
        assert self.bench.part.unhandled == 0


@given(EVENTS, st.booleans(), st.booleans())
def test_no_message_is_lost_doubled_or_overtaken(
    events: list[int | str], kept: bool, stop: bool
) -> None:
    async def test(bench: Bench) -> None:
        story = Story(bench)
        for event in events:
            await story.happen(event)
            story.check()
        if stop:
            bench.core.system.post(bench.cell, StopPeer())
            await bench.core.settle()
            story.check()
            assert story.pending == []
            await story.happen("hour")
            story.check()
            assert story.pending == []

    with_bench(test, kept=kept)
