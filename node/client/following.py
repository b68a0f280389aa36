"""Following all streams of a pattern, those that are made later as well."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, cast

from rillnode.codecs import arguments, native
from rillnode.codecs.entries import Entry
from rillnode.codecs.errors import RequestError, RillnodeError
from rillnode.codecs.events import event_logger
from rillnode.codecs.routing.routes import Route
from rillnode.node.client.session import Session
from rillnode.node.client.subscription import (
    AGAIN_SECONDS,
    CREDIT_BYTES,
    PASSING,
    Follower,
    Wanted,
)
from rillnode.node.iteration import Iteration

logger = event_logger("rillnode.node.client")

WINDOWS_BYTES: Final = 67_108_864
"""What a node may send ahead of all streams together, as far as their number is known by then."""

WINDOW_BYTES_MIN: Final = 16_384

AWAY_MAX: Final = 10_000
"""Streams that are not followed at the moment, and whose positions are kept."""

ENDED: Final = frozenset(
    ("stream.removed", "stream.unknown", "address.unknown", "subscription.revoked")
)
"""What ends the part of one stream and no other: it is no more, or not this client's to follow."""

Positions = Mapping[str, Mapping[str, int]]
"""By stream and partition, which is a text as in JSON, the index of the next entry.

Beside its partitions a stream has `created_at`, when it was created, in milliseconds since 1970: in
a later stream of its name the indexes mean nothing. Without it they are of whichever has the name.
"""

CREATED_AT: Final = "created_at"

_NOWHERE: Final[Mapping[str, int]] = {}
"""No position in a stream."""

FollowStart = Positions | Literal["start", "end"]


class Followed(NamedTuple):
    """An entry, and the name of its stream.

    Attributes:
        stream: the stream's name.
        entry: the entry.
    """

    stream: str
    entry: Entry


class Following(Iteration[Followed]):
    """An iteration over the entries of all streams of a pattern; made by `Client.follow`.

    Entries of one partition come in order; those of several as they come.
    """

    def __init__(self, session: Session, pattern: str, start: FollowStart) -> None:
        self._streams = _Streams(session, pattern, start)
        super().__init__(_Source(self._streams))
        self._streams.fetched = self._items

    async def __anext__(self) -> Followed:
        """Wait for the next entry."""
        found = self._items.popleft() if self._items else await super().__anext__()
        self._streams.handed(found)
        return found

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that it follows at the moment, by name."""
        return tuple(sorted(self._streams.positions))

    @property
    def position(self) -> dict[str, dict[str, int]]:
        """Where it is in each stream: behind the last entry that was handed out.

        Beside a stream's partitions, `created_at` tells when it was created, in milliseconds since
        1970. It can be written as JSON. As `start` of another `follow` it goes on there, and from
        their first entry on with streams that are not in it, or were removed and created anew.
        Streams that this client may not follow at the moment stay in it: the last 10,000, or as
        many as `start` has named. Those before them are left out, with a warning in the log, and
        begin with their first entry if they come again.
        """
        return self._streams.position()


class _Watch:
    """What a node tells of streams; satisfies `Subscriber`, and goes on over lost links."""

    def __init__(
        self,
        session: Session,
        pattern: str,
        told: Callable[[native.WatchStreamsResponse], object],
        failed: Callable[[RillnodeError], object],
    ) -> None:
        self._session = session
        self._pattern = pattern
        self._told = told
        self._failed = failed
        self._id: int | None = None
        self._route: Route | None = None
        self._again: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Ask which streams there are; harmless when repeated."""
        if self._id is None and self._again is None:
            self._ask()

    def _ask(self) -> None:
        self._again = None
        self._id = self._session.next_id()
        self._session.subscribe(self._id, self)

    def end(self) -> None:
        """Hear of no more."""
        if self._again is not None:
            self._again.cancel()
        if self._id is not None:
            if self._route is not None:
                self._session.unsubscribe(self._id, self._route)
            else:
                self._session.drop(self._id)

    def resume(self) -> tuple[bytes, native.Request]:
        """Ask anew."""
        assert self._id is not None, "it has asked"
        self._route = None
        return b"stream", native.WatchStreamsRequest(self._id, self._pattern)

    def received(self, response: native.Response, route: Route) -> None:
        """Take streams."""
        self._route = route
        if isinstance(response, native.WatchStreamsResponse):
            self._told(response)

    def link_lost(self) -> None:
        """It is asked anew over the next link."""

    def failed(self, error: RillnodeError) -> None:
        """Ask anew where the node has failed; else it is over."""
        self._id = self._route = None
        if error.code in PASSING:
            self._session.unanswered += 2
            self._again = asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._ask)
        else:
            self._failed(error)


class _Part(NamedTuple):
    """A partition that is followed, and of which stream; one of the same name may be another."""

    stream: str
    number: int
    created_at: int


class _Streams(Follower):
    """A follower of the partitions of many streams.

    Attributes:
        positions: by stream that is followed, and partition, the index after what was handed out.
        fetched: what was taken, and is not handed out yet.
    """

    def __init__(self, session: Session, pattern: str, start: FollowStart) -> None:
        super().__init__()
        self.positions: dict[str, dict[int, int]] = {}
        self._session = session
        # Positions in streams that are not followed now, or not yet.
        self._saved = _checked(start)
        # Those of them that are not followed, the one that has been away for the longest first.
        self._away = dict.fromkeys(self._saved)
        self._away_max = max(AWAY_MAX, len(self._away))
        self._has_warned = False
        # Those that are there already begin at the end; those that are made later do not. Nothing
        # is given before they are known: a position without one would begin with its first entry.
        self._at_end = self._held = start == "end"
        self._created: dict[str, int] = {}
        self._parts: dict[object, _Part] = {}
        self.fetched: deque[Followed] = deque()
        self._watch = _Watch(session, pattern, self._told, self.fail)
        self._begun = asyncio.Event()

    async def open(self) -> None:
        """Ask which streams there are, and follow those."""
        self._watch.begin()
        await self._begun.wait()
        if self._error is not None:
            raise self._error

    def fail(self, error: RillnodeError) -> None:
        """End with an error, after what has already come."""
        super().fail(error)
        self._begun.set()

    async def entries(self) -> list[Followed]:
        """Wait for the next entries of a partition."""
        self._watch.begin()
        while True:
            followed, entries = await self.take()
            part = self._parts.get(followed)
            if part is not None:
                return [Followed(part.stream, entry) for entry in entries]

    def close(self) -> None:
        """End the watch, and all subscriptions."""
        self._watch.end()
        super().close()
        self._begun.set()

    def position(self) -> dict[str, dict[str, int]]:
        """What was handed out, as a later one takes it."""
        names = sorted(self._saved.keys() | self.positions.keys())
        return {name: self._position_in(name) for name in names}

    def _position_in(self, stream: str) -> dict[str, int]:
        followed = self.positions.get(stream)
        found = dict(self._saved.get(stream, _NOWHERE))
        if followed is not None:
            found |= {str(number): index for number, index in sorted(followed.items())}
            found[CREATED_AT] = self._created[stream]
        return found

    def handed(self, found: Followed) -> None:
        """An entry was handed out."""
        of_stream, entry = self.positions.get(found.stream), found.entry
        if of_stream is not None and of_stream.get(entry.partition, 0) <= entry.index:
            of_stream[entry.partition] = entry.index + 1

    def lost(self, partition: object, error: RillnodeError) -> None:
        """A subscription is over: with it the part of its stream, or all."""
        if error.code not in ENDED:
            self.fail(error)
            return
        part = self._parts.get(partition)
        if part is not None and self._created.get(part.stream) == part.created_at:
            if error.code == "stream.removed":
                self._remove(part.stream)
            else:  # it goes on there if it may be followed again
                self._saved[part.stream] = self._position_in(part.stream)
                self._forget(part.stream)
                self._away[part.stream] = None
                self._bound_away()

    def _bound_away(self) -> None:
        """Keep no position of what has been away for the longest, where it is too much."""
        while len(self._away) > self._away_max:
            longest = next(iter(self._away))
            del self._away[longest], self._saved[longest]
            if not self._has_warned:
                self._has_warned = True
                extra = {"stream": longest, "kept": self._away_max}
                logger.warning("position_forgotten", extra=extra)

    def _told(self, response: native.WatchStreamsResponse) -> None:
        """Follow streams that there are, and partitions that are more now."""
        count = len(self._parts) + sum(len(one.partitions) for one in response.streams)
        window = min(CREDIT_BYTES, max(WINDOW_BYTES_MIN, WINDOWS_BYTES // max(1, count)))
        for info in response.streams:
            if self._created.get(info.name, info.created_at) != info.created_at:
                self._remove(info.name)  # and it was made anew
            self._created[info.name] = info.created_at
            self._away.pop(info.name, None)
            followed = self.positions.setdefault(info.name, {})
            saved = self._saved.get(info.name, {})
            if saved.setdefault(CREATED_AT, info.created_at) != info.created_at:
                saved = self._saved[info.name] = {}  # that was in one that was removed
            for one in info.partitions:
                if one.partition not in followed:
                    first = one.next_index if self._at_end else 0
                    index = followed[one.partition] = saved.get(str(one.partition), first)
                    part = _Part(info.name, one.partition, info.created_at)
                    self._follow(one.address, index, part, window)
        if response.listed:
            self._at_end = False
            self.go_on()
            self._begun.set()

    def _follow(self, address: bytes, index: int, part: _Part, window: int) -> None:
        wanted = Wanted(address, part.number, index, part.created_at, window_bytes=window)
        followed = self.follow(self._session, wanted)
        self._parts[followed] = part

    def _remove(self, stream: str) -> None:
        """Follow a stream no more, of which a position says nothing about a later one."""
        self._saved.pop(stream, None)
        self._away.pop(stream, None)
        self._forget(stream)

    def _forget(self, stream: str) -> None:
        """Follow a stream no more; what of it waits is not handed out."""
        self._created.pop(stream, None)
        self.positions.pop(stream, None)
        left = [one for one in self.fetched if one.stream != stream]
        self.fetched.clear()
        self.fetched += left
        for followed, part in list(self._parts.items()):
            if part.stream == stream:
                del self._parts[followed]
                self.drop(followed)


class _Source:
    """What streams give; satisfies `Source`."""

    def __init__(self, streams: _Streams) -> None:
        self._streams = streams
        self.open = streams.open
        self.fetch = streams.entries

    async def close(self) -> None:
        """End all subscriptions."""
        self._streams.close()


def _checked(start: FollowStart) -> dict[str, dict[str, int]]:
    """A position that can be one.

    Raises:
        RequestError: `follow.invalid`.
    """
    found: dict[str, dict[str, int]] = {}
    if start in ("start", "end"):
        return found
    for name, partitions in _mapping(start).items():  # out of anybody's file
        of = found[name] = dict[str, int]()
        for number, index in _mapping(partitions).items():
            named = number == CREATED_AT or str(number).isdecimal()
            if not named or not arguments.is_index(index):
                text = f"{number!r}: {index!r} of {name!r} is no position: see Following.position"
                raise RequestError("follow.invalid", text)
            of[str(number)] = index
    return found


def _mapping(given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        text = f'Follow from "start", "end" or a position (Following.position), not {given!r}'
        raise RequestError("follow.invalid", text)
    return cast("Mapping[str, Any]", given)
