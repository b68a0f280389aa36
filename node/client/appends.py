"""The appends of one session: to a partition's stream, or of many partitions together.

The entries of each partition are numbered, so that what is asked again, over a new link or of
another node, is not stored again: by the name of a producer, or by an id that the session makes up.
A log remembers so many blocks of a producer as it may have under way to it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Final, Protocol
from weakref import ref

from rillnode.codecs import native
from rillnode.codecs.errors import RillnodeError, TransportError
from rillnode.codecs.limits import APPENDS_MAX, APPENDS_UNDER_WAY_MAX
from rillnode.node.client.messages import failure_of
from rillnode.node.client.repeating import OnResponse
from rillnode.node.client.unheard import Unheard

APPENDER: Final = b"appender"

TOGETHER_MIN: Final = 4
"""Partitions from which on what is pushed in one turn goes out as one request."""

TOGETHER_BYTES: Final = 1_048_576
"""Bytes from which on such a request takes no further block."""

_PARTITIONS: Final = 1_000

Settle = Callable[[int | RillnodeError], None]
"""Takes the index of an append's first entry, or why nothing of it is stored."""


class Asks(Protocol):
    """As much of a session as appends need."""

    def next_id(self) -> int:
        """A request id that is not used."""
        ...

    def ask(self, address: bytes, request: native.Request, on_response: OnResponse, /) -> None:
        """Send a request; see `Session.ask`."""
        ...

    def gather(self, ask: Callable[[], None], /) -> None:
        """Have `ask` send what one turn of the loop gathers."""
        ...

    def write(self) -> None:
        """Let what was asked so far go out, if there is a link."""
        ...


@dataclass(slots=True, eq=False, weakref_slot=True)
class Partition:
    """A partition that a client appends to, as one producer.

    Nothing keeps the order between the two ways, so that it changes only when nothing is under way.

    Attributes:
        address: of its stream's actor.
        sequence: the number of the next entry.
        name: of the producer; empty: it has none, and is known by the session's id.
        epoch: of the opening of that name.
        alone: requests to that without an answer.
        together: likewise, blocks for it that went with others'.
        elsewhere: blocks for it that its node does not serve, and what came since, each with the
            number by which it is in its order; they go alone, to who does, when none is under way
            with others'. None: its node serves it.
        waiting: who is called once when there is room for more blocks.
    """

    address: bytes
    sequence: int = 0
    name: bytes = b""
    epoch: int = 0
    alone: int = 0
    together: int = 0
    elsewhere: "list[tuple[int, Block]] | None" = None
    waiting: Sequence[Callable[[], object]] = ()

    @property
    def room(self) -> int:
        """How many blocks more may be under way."""
        return APPENDS_UNDER_WAY_MAX - self.alone - self.together - len(self.elsewhere or ())

    def when_free(self, call: Callable[[], object]) -> None:
        """Have something called once when there is room again."""
        self.waiting = [*self.waiting, call]

    def settled(self) -> None:
        """A block has its outcome: call who waits, where half of the room is free."""
        if self.waiting and 2 * self.room >= APPENDS_UNDER_WAY_MAX:
            waiting, self.waiting = self.waiting, ()
            for call in waiting:
                call()


class Block(native.AppendItem, kw_only=True, eq=False):
    """A block to be appended to a partition, as it is sent with others', and who is told.

    Attributes:
        partition: where it goes.
        settle: told its outcome.
        after: of a name, as an AppendRequest has it.
    """

    partition: Partition
    settle: Settle
    after: int = 0

    @classmethod
    def to(
        cls, to: Partition, count: int, body: bytes, settle: Settle, sequence: int, flags: int = 0
    ) -> "Block":
        """One for a partition; `sequence` is the number of its first entry."""
        return cls(to.address, count, body, flags, sequence, partition=to, settle=settle)


class Appends:
    """Appends for one session.

    Args:
        session: asks the node.
        producer: the id that it has made up.

    Attributes:
        unheard: what was pushed, and has failed with the session.
    """

    def __init__(self, session: Asks, producer: bytes) -> None:
        self.unheard = Unheard()
        self._session = session
        self._producer = producer
        # By address; what is not in use any more is taken out when there are so many.
        self._partitions: dict[bytes, ref[Partition]] = {}
        self._partitions_max = _PARTITIONS
        self._appended = 0
        self._gathered: list[Callable[[], Sequence[Block]]] = []

    def partition(self, address: bytes) -> Partition:
        """The partition of an address, as all that append to it by the session's id share it."""
        known = self._partitions.get(address)
        partition = None if known is None else known()
        if partition is None:
            # Numbers may leave gaps, and must not come again: none is higher than this one.
            partition = Partition(address, self._appended)
            self._partitions[address] = ref(partition)
            if len(self._partitions) > self._partitions_max:
                used = {of: known for of, known in self._partitions.items() if known() is not None}
                self._partitions, self._partitions_max = used, max(_PARTITIONS, 2 * len(used))
        return partition

    def gather(self, blocks: Callable[[], Sequence[Block]]) -> None:
        """Have what `blocks` gives at the end of this turn of the loop appended with all else."""
        if not self._gathered:
            self._session.gather(self._flush)
        self._gathered.append(blocks)

    def send(self, blocks: Sequence[Block], *, partitions: int = 1) -> None:
        """Append blocks now; those of one partition in their order.

        Args:
            blocks: what to append.
            partitions: of how many partitions they are.
        """
        together: list[Block] = []
        for block in blocks:
            to = block.partition
            self._appended += block.count
            if to.elsewhere is not None:
                to.elsewhere.append((self._session.next_id(), block))
                self._send_elsewhere(to)
            elif to.together or (partitions >= TOGETHER_MIN and not to.alone and not to.name):
                to.together += 1
                together.append(block)
            else:
                to.alone += 1
                self._send_alone(block)
        left = iter(together)
        while run := _run(left):
            self._send_together(run)

    def _flush(self) -> None:
        gathered, self._gathered = self._gathered, []
        for at in range(0, len(gathered), APPENDS_MAX):
            some = gathered[at : at + APPENDS_MAX]
            blocks = [block for one in some for block in one()]
            self.send(blocks, partitions=len(gathered))
            self._session.write()  # the node is at work on these while the next are packed

    def _send_alone(self, block: Block) -> None:
        to = block.partition

        def on_response(response: native.Response | RillnodeError) -> None:
            to.alone -= 1
            if isinstance(response, native.PositionResponse):
                block.settle(response.index)
            else:
                block.settle(_failure(response))
            to.settled()

        request = native.AppendRequest(
            self._session.next_id(),
            block.count,
            block.body,
            block.flags,
            to.name or self._producer,
            to.epoch,
            block.sequence,
            block.after,
        )
        self._ask(to.address, request, on_response)

    def _send_together(self, blocks: Sequence[Block]) -> None:
        request_id = self._session.next_id()

        def on_response(response: native.Response | RillnodeError) -> None:
            for block in blocks:
                block.partition.together -= 1
            settle(response)
            for block in blocks:
                self._send_elsewhere(block.partition)
                block.partition.settled()

        def settle(response: native.Response | RillnodeError) -> None:
            if isinstance(response, native.PositionsResponse) and len(response.indexes) == len(
                blocks
            ):
                failures = {one.request_id: one for one in response.failures}
                for number, (block, index) in enumerate(zip(blocks, response.indexes, strict=True)):
                    failure = failures.get(number) if failures else None
                    if failure is None:
                        block.settle(index)
                    elif failure.nodes:
                        to = block.partition
                        to.elsewhere = to.elsewhere or []
                        to.elsewhere.append((request_id, block))
                    else:
                        block.settle(failure_of(failure))
                return
            error = _failure(response)
            for block in blocks:
                block.settle(error)

        request = native.AppendManyRequest(request_id, [*blocks], self._producer)
        self._ask(APPENDER, request, on_response)

    def _send_elsewhere(self, to: Partition) -> None:
        if to.elsewhere and not to.together:
            waiting, to.elsewhere = sorted(to.elsewhere, key=itemgetter(0)), []
            for _, block in waiting:
                to.alone += 1
                self._send_alone(block)

    def _ask(self, address: bytes, request: native.Request, on_response: OnResponse) -> None:
        try:
            self._session.ask(address, request, on_response)
        except RillnodeError as error:
            on_response(error)


def _run(blocks: Iterator[Block]) -> list[Block]:
    """As many of the blocks that are left as go into one request."""
    run: list[Block] = []
    size = 0
    for block in islice(blocks, APPENDS_MAX):
        run.append(block)
        size += len(block.body)
        if size >= TOGETHER_BYTES:
            break
    return run


def _failure(response: native.Response | RillnodeError) -> RillnodeError:
    if isinstance(response, RillnodeError):
        return response
    return TransportError("client.answer", "the node gave another kind of answer")
