"""The logs of a shared log in NATS JetStream: a stream for each shard.

<prefix>-log-<shard>                the stream of a shard (in hex digits), of one subject:
<prefix>.log.<identity>.<shard>     whoever has other logs in mind reaches none
<prefix>.news.<identity>            core NATS: ends of logs, of two and eight bytes each
"""

import asyncio
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from rillnode.actors.jetstream.checks import check_room, check_servers
from rillnode.actors.jetstream.connection import Connection, MissingError, NobodyError
from rillnode.actors.jetstream.failures import incomplete_error, too_large_error
from rillnode.actors.jetstream.fetching import fetch
from rillnode.actors.jetstream.making import (
    SHARDS_MAX,
    Maker,
    name_of,
    stream_info,
    subject_of,
)
from rillnode.actors.jetstream.messages import Message
from rillnode.actors.jetstream.options import JetStreamOptions
from rillnode.actors.log.shared.port import Frame, Heard, LogLost, Opened, Span
from rillnode.codecs.errors import StoreError
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.jetstream")

FRAME_BYTES_MAX: Final = 8_388_608
"""Whatever the servers take."""

_NEWS: Final = struct.Struct(">HQ")

NEWS_SECONDS: Final = 0.002
"""What others are to be told waits this long for a frame that it can go with."""

_STALE_SECONDS: Final = 10.0
"""A log that was seen to be missing this long ago was there in between."""


class _Done(msgspec.Struct):
    success: bool = False


class JetStreamLog:
    """A `SharedLog` on NATS JetStream.

    Args:
        options: where the servers are.

    Attributes:
        options: the same.
        connection: for what else is kept on the same servers.
    """

    def __init__(self, options: JetStreamOptions) -> None:
        self.connection = Connection(options)
        self.options = options
        self._opened: Opened | None = None
        self._heard: Heard = _ignore
        self._subjects: list[bytes] = []
        self._news_subject = b""
        self._unsynced: str | None = None
        # Why nothing is stored though servers answer; None: they are as they must be.
        self._refusal: StoreError | None = None
        # By shard: the end as the servers have told us, the same as somebody else has, and when
        # the servers did.
        self._ends: list[int] = []
        self._rumours: list[int] = []
        self._seen: list[float] = []
        # What others are to be told soon, and since when the last of it is known.
        self._news: dict[int, int] = {}
        self._news_at = 0.0
        self._telling: asyncio.TimerHandle | None = None
        # By shard, since when it is missing, and when that was last seen.
        self._missing: dict[int, tuple[float, float]] = {}
        self._checking: set[int] = set()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def frame_bytes_max(self) -> int:
        """The largest frame that is taken: as much as the server takes at once."""
        return min(self.connection.message_bytes_max, FRAME_BYTES_MAX)

    @property
    def opened(self) -> Opened:
        """What the logs are.

        Raises:
            LogLost: they were never opened.
        """
        if self._opened is None:
            raise LogLost("the log is not open")
        return self._opened

    async def open(self, shards: int, heard: Heard) -> Opened:
        """Connect, and make the logs where there are none at all: see `SharedLog.open`."""
        assert 0 < shards <= SHARDS_MAX
        await self.close()
        try:
            await self.connection.open()
            self._unsynced = await check_servers(self.options, self.connection.version)
            self._refusal = None
            check_room(self.connection.message_bytes_max)
            made, spans = await Maker(self.connection, self.options).find_or_make(shards)
            self._begin(made, spans, heard)
        except BaseException:
            await self.close()
            raise
        self._tasks = [
            asyncio.create_task(work) for work in (self._beat(), self._look(), self._prove())
        ]
        return made

    async def close(self) -> None:
        """Let go; harmless when repeated. What is under way raises LogLost."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await self.connection.close()
        if tasks:
            await asyncio.wait(tasks)

    async def append(self, shard: int, data: bytes) -> int:
        """Store a frame, and return its sequence: see `SharedLog.append`.

        Raises:
            LogLost: it is not known whether it is or will be stored.
            StoreError: it is not stored: `store.full`, `store.denied`, `store.too_large`,
                `store.incomplete` (the log is gone), `store.unsynced` and `store.old` (a server was
                started anew, and is not as it must be).
        """
        if self._refusal is not None:
            raise StoreError(self._refusal.code, self._refusal.text)
        if len(data) > self.frame_bytes_max:
            raise too_large_error(f"{len(data)} of {self.frame_bytes_max} bytes")
        subject = self._subjects[shard] if self._subjects else b""
        if self._news:
            self._tell()  # goes with this frame, and costs no write of its own
        try:
            sequence = await self.connection.append(subject, data)
        except NobodyError:
            # A stream without a leader, for now; or none.
            await self._check(shard)
            raise
        self._reached(shard, sequence)
        self._news[shard] = self._ends[shard]
        self._news_at = self._seen[shard]
        if self._telling is None:
            self._tell_later()
        return sequence

    async def read(self, shard: int, after: int, bytes_max: int) -> Sequence[Frame]:
        """The frames after a sequence, in order, of some replica: see `SharedLog.read`."""
        subject = self._subjects[shard].decode() if self._subjects else ""
        try:
            frames = await fetch(self.connection, self._name(shard), subject, after, bytes_max)
        except NobodyError:
            await self._check(shard)
            raise
        if frames:
            self._reached(shard, frames[-1].sequence)
        return frames

    async def span(self, shard: int) -> Span:
        """What is kept, as the stream's leader has it: see `SharedLog.span`."""
        info = await stream_info(self.connection, self._name(shard))
        if info is None or not info.is_of(self.opened):
            raise self._missed(shard, info is None)
        self._missing.pop(shard, None)
        span = info.span
        self._reached(shard, span.last)
        return span

    async def trim(self, shard: int, before: int) -> None:
        """Drop the frames before a sequence: see `SharedLog.trim`."""
        span = await self.span(shard)
        # JetStream would drop all for less, and go on at this sequence for more.
        before = min(before, span.last + 1)
        if before <= span.first:
            return
        try:
            await self.connection.call(f"STREAM.PURGE.{self._name(shard)}", {"seq": before}, _Done)
        except MissingError:
            raise self._missed(shard, gone=True) from None

    def describe(self) -> Mapping[str, Any]:
        """The engine's state for people."""
        opened = self._opened
        return {
            "engine": "jetstream",
            "prefix": self.options.prefix,
            "identity": opened.identity.hex() if opened else "",
            "replicas": self.options.replicas,
            "ends": list(self._ends),
            "syncs": self._unsynced == "",
            "unsynced": self._unsynced,
            **self.connection.describe(),
        }

    def _begin(self, made: Opened, spans: Sequence[Span], heard: Heard) -> None:
        count, prefix = made.shards, self.options.prefix
        self._opened, self._heard = made, heard
        self._subjects = [subject_of(prefix, made, shard).encode() for shard in range(count)]
        self._news_subject = f"{prefix}.news.{made.identity.hex()}".encode()
        self._ends = [span.last for span in spans]
        self._rumours, self._seen = [0] * count, [0.0] * count
        self._news, self._missing = {}, {}
        self.connection.subscribe(self._news_subject, self._take_news)

    # Looking

    async def _check(self, shard: int) -> None:
        """Find out why nobody takes what is asked of a log.

        Raises:
            StoreError: the log is gone.
            LogLost: it is not known.
        """
        if shard not in self._checking:
            self._checking.add(shard)
            try:
                await self.span(shard)
            finally:
                self._checking.discard(shard)

    def _missed(self, shard: int, gone: bool) -> LogLost | StoreError:
        """What to raise where a log is missing: gone only if it stays so."""
        now = asyncio.get_running_loop().time()
        since, last = self._missing.get(shard, (now, now))
        if now - last > _STALE_SECONDS:
            since = now
        self._missing[shard] = (since, now)
        what = f"{self._name(shard)} is " + ("missing" if gone else "that of other logs")
        if now - since < self.options.doubt_seconds:
            return LogLost(what)
        return incomplete_error(what)

    def _name(self, shard: int) -> str:
        return name_of(self.options.prefix, shard)

    # News

    def _reached(self, shard: int, sequence: int) -> None:
        """Note that servers have a frame."""
        if sequence > self._ends[shard]:
            self._ends[shard] = sequence
        self._seen[shard] = asyncio.get_running_loop().time()

    def _tell_later(self) -> None:
        """Tell what no frame takes along: one timer for all, however many frames there are."""
        at = self._news_at + NEWS_SECONDS
        self._telling = asyncio.get_running_loop().call_at(at, self._tell_left)

    def _tell_left(self) -> None:
        self._telling = None
        if not self._news:
            return
        if self._news_at + NEWS_SECONDS > asyncio.get_running_loop().time():
            self._tell_later()
        else:
            self._tell()

    def _tell(self) -> None:
        """Tell the others what they are to be told."""
        news, self._news = self._news, {}
        if news:
            told = b"".join(_NEWS.pack(shard, end) for shard, end in news.items())
            self.connection.publish(self._news_subject, told)

    def _take_news(self, message: Message) -> None:
        """Take what another node has told; whoever may publish there may have done so."""
        if len(message.data) % _NEWS.size or len(message.data) > SHARDS_MAX * _NEWS.size:
            return
        for shard, end in _NEWS.iter_unpack(message.data):
            if shard < len(self._rumours):
                if end > self._rumours[shard]:
                    self._rumours[shard] = end
                self._heard(shard, end)

    async def _beat(self) -> None:
        """Tell others, and ourselves, where the logs end: some news may have been lost.

        What others have told is not passed on, so that an error does not go round for ever.
        """
        while True:
            for shard, (end, rumour) in enumerate(zip(self._ends, self._rumours, strict=True)):
                if end:
                    self._news[shard] = end
                if self.connection.is_up and max(end, rumour):
                    self._heard(shard, max(end, rumour))
            self._tell()
            await asyncio.sleep(self.options.beat_seconds)

    async def _look(self) -> None:
        """Ask for the end of the log that the servers have said nothing of for longest."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.options.beat_seconds)
            seen, shard = min(zip(self._seen, range(len(self._seen)), strict=True))
            if not self.connection.is_up or loop.time() - seen < self.options.look_seconds:
                continue
            # It comes last, whatever is answered.
            self._seen[shard] = loop.time()
            try:
                span = await self.span(shard)
            except (LogLost, StoreError) as error:
                logger.debug("store_not_looked", extra={"shard": shard, "reason": str(error)})
            else:
                # Who has told of more tells it again.
                self._rumours[shard] = 0
                self._heard(shard, span.last)

    async def _prove(self) -> None:
        """Ask again and again whether the servers sync: one may have been started otherwise."""
        options = self.options
        while True:
            # What was refused is taken soon after it was mended.
            pause = options.proof_seconds if self._refusal is None else options.look_seconds
            await asyncio.sleep(pause)
            if not self.connection.is_up:
                continue
            try:
                version, known = self.connection.version, self._unsynced
                self._unsynced = await check_servers(options, version, known)
            except StoreError as error:
                # Where too few answer none has said that it does not.
                if not error.retryable:
                    if self._refusal is None:
                        logger.error("store_refused", extra={"code": error.code})
                    self._refusal, self._unsynced = error, error.text
            else:
                self._refusal = None


def _ignore(shard: int, sequence: int) -> None:
    """Before anybody wants to hear."""
