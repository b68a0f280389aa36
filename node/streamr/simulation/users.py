"""Clients that are applications of Streamr's: they publish, follow and read what is stored.

Each uses the WebSocket and the REST interface of its node by the project's own client, and reads
the node's log by index beside it, to know what stands there.
"""

import asyncio
from collections.abc import Iterator
from itertools import count
from typing import Final

from rillnode.codecs.errors import RequestError, RillnodeError, TransportError
from rillnode.codecs.streamr.ethereum import SECRET_BYTES, EthereumKey
from rillnode.codecs.streamr.json_text import write_json
from rillnode.codecs.streamr.signing import sign_message
from rillnode.codecs.streamr.stream_message import MessageId, MessageRef, StreamMessage
from rillnode.node.client.client import Client
from rillnode.node.client.stream import Stream
from rillnode.node.simulated.history import Log, Push
from rillnode.node.simulated.programs import (
    AGAIN_SECONDS,
    MARKER,
    Program,
    Share,
    check_pulled,
)
from rillnode.node.simulated.world import Machine
from rillnode.node.streamr.client import Client as Streamr, From, Last, Range, Resend, connect
from rillnode.node.streamr.simulation.deeds import StreamrDeeds
from rillnode.node.streamr.simulation.following import Following, check_resent
from rillnode.node.streamr.simulation.messages import STREAMR_PORT, StreamrMessages, text_of

EARLY_SECONDS: Final = (0.3, 1.0)
LATE_SECONDS: Final = (1.0, 3.0)
AT_LAST_SECONDS: Final = (15.0, 25.0)
"""Between two turns: while there are faults, then until something is stored, and from then on."""

TOGETHER_MAX: Final = 3
"""Messages to one partition in one turn, while there are faults."""

READ_ENTRIES: Final = 1_000
LAST_MAX: Final = 20

SPAN_MS: Final = 5_000
"""Of what is resent by time, at most."""

Sent = list[tuple[Log, bytes, Push]]
"""The messages of one turn: their log, their text, and what the history knows of them."""


class StreamrUser(Program):
    """Publishes and reads back, and follows all partitions of its node's stream from the beginning.

    Beside that it makes a stream of its own, and tries what it may not do. It goes on to publish,
    more slowly, when all faults are over: who follows must get that soon.

    Attributes:
        messages: what all such clients have published and were sent.
    """

    def __init__(
        self, share: Share, machine: Machine, node: str, messages: StreamrMessages
    ) -> None:
        super().__init__(share, machine, node)
        secret = share.world.network.secret(f"Ethereum key of {machine.name}", SECRET_BYTES)
        self._key = EthereumKey(secret)
        self.messages = messages
        self._following: dict[int, Following] = {}
        self._previous: dict[tuple[int, str], MessageRef] = {}
        self._numbers = count()
        self._resting = False
        self._bold_in = ""
        self._stored_at = self._resent_at = 0.0
        messages.users.setdefault(self.log_name, []).append(self._key.address.lower())

    def rest(self) -> None:
        """Follow on, and do nothing more."""
        self._resting = True

    async def live(self, client: Client, stream: Stream) -> None:
        """Be such a client for ever."""
        loop = asyncio.get_running_loop()
        # What a process that was killed leaves behind is taken apart: nothing here waits then.
        follower = await self._connect_streamr()
        following = [
            loop.create_task(self._follow(follower, partition))
            for partition in range(self.share.partitions)
        ]
        try:
            while True:
                publisher = await self._connect_streamr()
                self._previous.clear()
                await self._act(publisher, stream)
                await publisher.close()
        except RillnodeError:
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)
            await follower.close()
            raise

    async def _connect_streamr(self) -> Streamr:
        url = f"ws://{self.node}:{STREAMR_PORT}"
        return await connect(url, private_key=self._key, on_refused=self._refused)

    async def _act(self, streamr: Streamr, stream: Stream) -> None:
        """Publish and read for as long as everything is stored.

        What is lost of a chain of messages is waited for by all who follow, for long: after a loss
        another client is made, which has a chain of its own.
        """
        deeds = StreamrDeeds(streamr, self._key, self.node, self.life, self.share.history)
        while True:
            early = self.share.history.now() < self.share.seconds
            pause = EARLY_SECONDS if early else LATE_SECONDS
            if self._stored_at > self.share.seconds:
                pause = AT_LAST_SECONDS
            await asyncio.sleep(self.random.uniform(*pause))
            if self._resting:
                continue
            if not await self._publish(streamr):
                return
            await self._read(streamr, stream)
            if early and self._bold_in != self.life and not await deeds.do_next():
                self._bold_in = self.life

    def missing(self, healed_at: float) -> Iterator[str]:
        """That what it publishes is stored, that it can read, and gets what everybody publishes."""
        yield from super().missing(healed_at)
        if self._stored_at < healed_at:
            yield "nothing that it has published is known to be stored"
        if self._resent_at < healed_at:
            yield "nothing is resent"
        now, wrong = self.share.history.now(), self.share.history.clocks_wrong
        since_ms = self.machine.clock.now_ms() - (now - healed_at) * 1_000
        for partition in range(self.share.partitions):
            following = self._following.get(partition)
            if following is None:
                yield f"it does not follow partition {partition}"
                continue
            for address in self.messages.publishers(self.log_name):
                if not self._resting and following.newest.get(address, 0) < since_ms:
                    yield f"nothing new of {address} in partition {partition}"
            # Clients read on by time, so that they miss what they do for wrong clocks.
            if not wrong and self.name not in self.messages.harmed:
                yield from following.lacking()

    # Publishing ------------------------------------------------------------------------------

    async def _publish(self, streamr: Streamr) -> bool:
        """Publish some messages to each partition; whether they are all known to be stored."""
        history, sent = self.share.history, Sent()
        together = TOGETHER_MAX if self.share.history.now() < self.share.seconds else 1
        for partition in range(self.share.partitions):
            for _ in range(self.random.randrange(1, together + 1)):
                sent.append(await self._send(streamr, partition))
        await asyncio.sleep(self.random.choice((0.0, 0.0, self.random.uniform(0.0, 2.0))))
        began = history.now()
        try:
            await streamr.flush()
        except RillnodeError as error:
            history.note(self.name, "unsettled", error.code)
            for _, _, push in sent:
                # Whatever was under way may have been sent again.
                push.attempts += self.share.world.network.dials[self.name]
            return False
        history.note(self.name, "stored", f"{len(sent)}")
        self._stored_at = began
        if self.name not in self.messages.harmed:  # else the word of a refusal may be lost
            for log, text, _ in sent:
                self.messages.must_stay(log, text, "confirm-lost")
        return True

    async def _send(self, streamr: Streamr, partition: int) -> tuple[Log, bytes, Push]:
        log, number = (self.log_name, partition), next(self._numbers)
        content = {"by": MARKER.decode() + self.life, "number": number}
        name = await streamr.publish(self.stream_name, content, partition=partition)
        message = self._signed(name, write_json(content))
        push = self.messages.published(self.life, number, log, message)
        return log, text_of(message), push

    def _signed(self, name: MessageId, content: str) -> StreamMessage:
        """The message of that number: signatures leave nothing to chance."""
        chain = (name.partition, name.chain_id)
        previous = self._previous.get(chain)
        self._previous[chain] = MessageRef(name.timestamp, name.sequence)
        return sign_message(StreamMessage(id=name, previous=previous, content=content), self._key)

    def _refused(self, name: MessageId, error: RequestError) -> None:
        self.share.history.note(self.name, "refused", error.code)

    # Reading ---------------------------------------------------------------------------------

    async def _follow(self, streamr: Streamr, partition: int) -> None:
        """Follow a partition for as long as the client lives."""
        log, history = (self.log_name, partition), self.share.history
        while True:
            following = Following(self.messages, self.life, self.name, log)
            try:
                subscription = await streamr.subscribe(
                    self.stream_name, partition=partition, resend=From(0)
                )
                self._following[partition] = following
                async for message in subscription:
                    following.take(message)
            except RillnodeError as error:
                history.note(self.name, "follows no more", error.code)
            self._following.pop(partition, None)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _read(self, streamr: Streamr, stream: Stream) -> None:
        """Have something resent, and compare it with what stands in the log."""
        partition = self.random.randrange(self.share.partitions)
        log, history = (self.log_name, partition), self.share.history
        before = await self._log(stream, partition)
        what = self._drawn()
        began = history.now()
        try:
            found = streamr.resend(self.stream_name, what, partition=partition)
            got = [message.source async for message in found]
        except (RequestError, TransportError) as error:
            history.note(self.name, "not resent", error.code)
            return
        history.note(self.name, "resent", f"{what} {len(got)}")
        self._resent_at = began
        if self.name not in self.messages.harmed:
            check_resent(self.messages, self.life, log, what, before, got)

    def _drawn(self) -> Resend:
        """What to ask for."""
        now, random = self.machine.clock.now_ms(), self.random
        start = now - random.randrange(SPAN_MS)
        return random.choice(
            (
                Last(random.randrange(1, LAST_MAX + 1)),
                From(start),
                Range(start, start + random.randrange(SPAN_MS)),
            )
        )

    async def _log(self, stream: Stream, partition: int) -> list[tuple[int, bytes]]:
        """The whole log of a partition, by index."""
        history, log = self.share.history, (self.log_name, partition)
        found: list[tuple[int, bytes]] = []
        while True:
            end = history.end_for(self.name, log)
            entries = await stream.pull(len(found), READ_ENTRIES, partition=partition)
            pulled = [(entry.index, entry.data) for entry in entries]
            check_pulled(history, self.name, log, len(found), READ_ENTRIES, end, pulled)
            if not pulled:
                return found
            found += pulled
