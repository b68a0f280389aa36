"""Follows a log as one of Streamr's clients: live, and now and then by resend."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rillnode.codecs.streamr.stream_message import StreamMessage
from rillnode.node.simulated.history import Log, seconds_of
from rillnode.node.streamr.client import From, Last, Message, Range, Resend
from rillnode.node.streamr.simulation.messages import (
    Place,
    StreamrMessages,
    place_of,
    short,
    text_of,
)


@dataclass(slots=True)
class Following:
    """One subscription's messages, begun with everything that is stored.

    Attributes:
        who: subscribes.
        log: what the history calls the log.
        texts: the messages of Streamr's clients that have come.
        indexes: those of entries that others have pushed.
        newest: by publisher, when the last message that has come was published.
        begun_at: when it began, in virtual time.
    """

    messages: StreamrMessages
    who: str
    host: str
    log: Log
    texts: dict[bytes, None] = field(default_factory=dict[bytes, None])
    indexes: dict[int, None] = field(default_factory=dict[int, None])
    newest: dict[str, int] = field(default_factory=dict[str, int])
    begun_at: float = field(init=False)
    _last: dict[tuple[str, str], Place] = field(default_factory=dict[tuple[str, str], Place])

    def __post_init__(self) -> None:
        self.begun_at = self.messages.history.now()

    def take(self, message: Message) -> None:
        """Look at the next message: it is the next one of its chain, and is what was sent."""
        source, history = message.source, self.messages.history
        if self.host in self.messages.harmed or self.log[0] in history.lost:
            self._note(source, text_of(source))
            return
        chain, place = (source.id.publisher_id, source.id.chain_id), place_of(source.id)
        last = self._last.get(chain)
        if last is not None and place <= last:
            history.broken("subscription-duplicate", f"{self.who} got {source.id} after {last}")
        if check_known(self.messages, self.who, self.log, source):
            self._check_gap(source, last)
            self._last[chain] = place
            self._note(source, text_of(source))

    def _note(self, source: StreamMessage, text: bytes) -> None:
        index = self.messages.index_of(self.who, self.log, source)
        self.newest[source.id.publisher_id] = source.id.timestamp
        if index is None:
            self.texts[text] = None
            if text in self.messages.names(self.log):
                self.messages.must_stay(self.log, text, "broadcast-lost")
        else:
            self.indexes[index] = None

    def _check_gap(self, source: StreamMessage, last: Place | None) -> None:
        """What is stored of a chain between its last message and this one must have come."""
        if last is None or source.previous is None:
            return
        stored = set(self.messages.history.logs.get(self.log, {}).values())
        for text, name in self.messages.names(self.log).items():
            if (
                name.chain_id == source.id.chain_id
                and last < place_of(name) < place_of(source.id)
                and text in stored
            ):
                gap = f"{self.who} got {source.id} after {last}, without {short(text)}"
                self.messages.history.broken("subscription-gap", gap)

    def lacking(self) -> Iterator[str]:
        """What stands in the log and has not come, though it should have.

        After a connection was lost, a client reads on from the time of the newest message that it
        has: what was stored later though it was published earlier need not come.
        """
        history, names = self.messages.history, self.messages.names(self.log)
        newest = 0
        for index, payload in sorted(history.logs.get(self.log, {}).items()):
            name = names.get(payload)
            if name is None:
                if index not in self.indexes and not self._is_late(payload, newest):
                    yield f"{index} of {self.log[0]}/{self.log[1]}"
            elif payload not in self.texts:
                if name.timestamp >= newest:
                    yield f"{index} of {self.log[0]}/{self.log[1]}: {short(payload)}"
            else:
                newest = max(newest, name.timestamp)

    def _is_late(self, payload: bytes, newest: int) -> bool:
        """Whether a node may show what another was pushed after the client reads on from later."""
        history = self.messages.history
        push = history.pushes.get(payload) if history.nodes else None
        return push is not None and push.pushed_at < max(self.begun_at, seconds_of(newest))


def check_known(messages: StreamrMessages, who: str, log: Log, source: StreamMessage) -> bool:
    """Check that a message was published to a log, as it is."""
    history, text = messages.history, text_of(source)
    if messages.index_of(who, log, source) is not None:
        return True
    push = history.pushes.get(text)
    if push is None:
        history.broken("unknown-entry", f"{who} was sent {short(text)} on {log[0]}/{log[1]}")
    elif push.log != log and not history.shared:
        history.broken("wrong-log", f"{who} was sent {short(text)} on {log[0]}/{log[1]}")
    return push is not None


def check_resent(
    messages: StreamrMessages,
    who: str,
    log: Log,
    what: Resend,
    before: Sequence[tuple[int, bytes]],
    got: Sequence[StreamMessage],
) -> None:
    """Check what a resend has brought.

    Args:
        messages: of the run.
        who: has asked.
        log: of what.
        what: was asked for.
        before: the whole log as it was before.
        got: what came.
    """
    history, names = messages.history, messages.names(log)
    if log[0] in history.lost:
        return
    places = [place_of(one.id) for one in got]
    if places != sorted(places):
        history.broken("resend-gap", f"{who} was resent {log[0]}/{log[1]} out of order")
    if not all([check_known(messages, who, log, one) for one in got]):
        return
    texts = {text_of(one) for one in got}
    wanted = {text: names[text] for _, text in before if text in names}
    match what:
        case Last(count=count):
            if len(got) > count:
                history.broken("resend-gap", f"{who} was resent {len(got)} in place of {count}")
            if len(got) == count:
                wanted = {one: name for one, name in wanted.items() if place_of(name) > places[0]}
            elif len(got) < min(count, len(before)):
                history.broken("resend-gap", f"{who} was resent {len(got)} of {len(before)}")
        case From(timestamp=start):
            wanted = {one: name for one, name in wanted.items() if name.timestamp >= start}
        case Range(start=start, end=end):
            wanted = {one: name for one, name in wanted.items() if start <= name.timestamp <= end}
    for text in wanted:
        if text not in texts:
            history.broken("resend-gap", f"{who} was not resent {short(text)} by {what}")
