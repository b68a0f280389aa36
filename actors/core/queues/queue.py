"""A work queue: gives each entry of a stream to one worker, and takes its word on it.

Everything goes in rounds. A round takes what workers have said since the last one, takes back what
was not answered in time, chooses what is given to whom, and writes the state of the queue: one
record, whatever the number of jobs. Only then are workers told that what they said is durable, and
sent what they were given. So a job that a worker has is in the record with its attempt and its
time, and a node that is killed, or another node of the same log, knows of it.

Most rounds need not wait for it (`_goes_ahead`): entries that were never given before are sent at
once, and while the record is on its way to the disk the next round is done.

Where another node has written the record since it was read, the write is refused; the round is then
done again on what that node has left. What is given up goes into `<stream>.dead`, and in the same
commit out of the state.

This file has the messages and the rounds. What a round is made of has files of its own: what was
said (`said`) and by whom (`members`), what is read of the stream (`partitions`), who is given what
(`giving`), the record (`record`) and what is sent before that is durable (`ahead`), dead letters
(`letters`), and how it all stands (`status`).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, assert_never

from rillnode.actors.core.delivery import Delivery, LinkLost, Origin
from rillnode.actors.core.queues.ahead import AheadOfRecord
from rillnode.actors.core.queues.context import STOPPED, Due, QueueContext, Runs
from rillnode.actors.core.queues.giving import Giving, Jobs, job_messages
from rillnode.actors.core.queues.letters import DeadLetters, Found, take_back
from rillnode.actors.core.queues.members import Member, Members
from rillnode.actors.core.queues.partitions import Partitions
from rillnode.actors.core.queues.record import QueueRecord
from rillnode.actors.core.queues.said import (
    Doing,
    Gone,
    Left,
    Said,
    Word,
    answer_unsettled,
    compare_jobs,
    joins,
    settle,
    settles,
    work_refusal,
)
from rillnode.actors.core.queues.state import Outcome, QueueState
from rillnode.actors.core.queues.status import QueueStatus
from rillnode.actors.core.rights import RightsChanged
from rillnode.actors.core.streams.answers import failed, invalid_request, is_error
from rillnode.actors.core.streams.context import StreamContext
from rillnode.actors.core.streams.followers import Grown, Removed
from rillnode.actors.engine.described import Described
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.waiting import Signal
from rillnode.actors.engine.worker import Worker
from rillnode.codecs import native
from rillnode.codecs.errors import CodecError, RequestError, RillnodeError, StoreError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import CONNECTIONS_MAX
from rillnode.codecs.requests import decode_request
from rillnode.codecs.routing.routes import WireMessage

logger = event_logger("rillnode.actors.core.queues.queue")

RETRY_SECONDS: Final = 1.0
"""After the store could not do something."""

OTHERS_SECONDS: Final = 2.0
"""How often workers with nothing to do have it looked for what other nodes have left."""

WAKE_SECONDS_MIN: Final = 0.002
"""Before it is looked what has become due, whatever the clock says."""

TRIES_MAX: Final = 10
"""How often a round is done again whose write was refused or has failed."""

AGAIN_SECONDS_MAX: Final = 0.01
"""Before that, where another node has written."""

_REMOVED: Final = RequestError("stream.removed", "The stream was removed, and its queues with it")


@dataclass(slots=True, eq=False)
class _Owed:
    """What a round has done: told, and sent, once a record that has it is durable."""

    doing: Doing
    jobs: Jobs


Message = Delivery | Grown | Removed | LinkLost | RightsChanged | Due


class QueueActor(Worker):
    """A work queue, at `WQ_<queue>_<stream>`; made by the first message, ends when idle.

    It ends at its first failure, too: what it had in memory is in the record, and its workers are
    told, and ask anew.
    """

    mailbox_messages_max = 8_192
    spare: ClassVar = {Removed: 1_024, LinkLost: CONNECTIONS_MAX}
    on_failure = "stop"
    idle_seconds = 60.0
    stops_when_idle = True
    ends_when_idle = True
    batches: ClassVar = {"_send": "deliver"}

    def __init__(self, context: StreamContext, own_address: bytes, stream: str, queue: str) -> None:
        self._context = context
        self._queue = QueueContext(context, self, own_address, stream, queue)
        self._partitions = Partitions(self._queue)
        self._letters = DeadLetters(self._queue, self._partitions)
        self._members = Members(self._queue)
        self._ahead = AheadOfRecord()
        self._giving = Giving(self._queue, self._partitions, self._members, self._ahead)
        self._record = QueueRecord(self._queue, self._partitions, self._letters, self._ahead)
        self._status = QueueStatus(self._queue, self._partitions, self._members, self._letters)
        self._doing: Doing = ()
        self._owed: list[_Owed] = []
        self._writing: list[_Owed] = []
        self._is_writing = False
        self._written = Signal()
        self._is_running = False
        self._ended = False
        self._last_ms = 0

    def started(self) -> None:
        """Watch the right that workers go on by."""
        self._context.access.rights.watch(self._queue.stream, self.address)

    def handle(self, message: Message, sender: Cell | None) -> None:
        """Take what workers say, and news of the stream; a round follows."""
        if self._ended:
            if isinstance(message, Delivery):
                self._context.router.refuse("removed", message, _REMOVED)
            return
        match message:
            case Delivery():
                for wire in message.messages:
                    self._hear(message.origin, wire)
            case Grown():
                self._queue.more = True
            case Removed():
                self._remove()
                return
            case LinkLost(origin=origin):
                self._members.lost(origin)
            case RightsChanged():
                self._members.revise()
            case Due():
                self._queue.woken()
                self._members.look()
                self._queue.more = True
                past = self._queue.monotonic() - self._record.seen_at
                if not (self._record.lasts or self._is_running) and past >= OTHERS_SECONDS:
                    self._record.state = None  # others may have left something
            case _:
                assert_never(message)
        self._go_on()

    def stopped(self) -> None:
        """Tell workers and who waits for an answer; give up what is followed."""
        context = self._context
        self._answer_all(STOPPED)
        self._members.dismiss_all(STOPPED)
        self._partitions.follow(False)
        context.access.rights.unwatch(self._queue.stream, self.address)
        if context.router.table.get(self._queue.own_address) is self.address:
            context.router.unregister(self._queue.own_address)
        self._status.forget()

    def may_passivate(self) -> bool:
        """Whether nobody works on it."""
        return not (self._members.by_token or self._is_running or self.owes())

    def owes(self) -> bool:
        """Whether something that was said is not answered yet."""
        return bool(
            self._queue.said or self._doing or self._members.early or self._owed or self._is_writing
        )

    def described(self, address: bytes) -> Described | None:
        """Nothing here: queues are looked up in the store, whether anybody is awake for them."""
        return None

    def batch_of(self) -> tuple[str, int | None]:
        """The stream."""
        return self._queue.stream, None

    # What is said ----------------------------------------------------------------------------

    def _hear(self, origin: Origin, wire: WireMessage) -> None:
        try:
            request = decode_request(wire.payload, speaks_native=origin.native)
        except CodecError as error:
            logger.info("bad_request", extra={"code": error.code})
            if not is_error(error):
                self._queue.answer(origin, wire.return_route, invalid_request(error))
            return
        match request:
            case native.WorkRequest():
                refusal = (
                    work_refusal(self._queue.stream, self._queue.name, request)
                    if self._queue.may_pull(origin.principal)
                    else self._queue.unknown_to(origin)
                )
                if refusal is not None:
                    self._queue.answer(
                        origin, wire.return_route, failed(request.request_id, refusal)
                    )
                    return
            case native.SettleRequest() | native.DescribeQueueRequest() | native.TakeBackRequest():
                if not self._queue.may_pull(origin.principal):
                    refusal = self._queue.unknown_to(origin)
                    self._queue.answer(
                        origin, wire.return_route, failed(request.request_id, refusal)
                    )
                    return
            case native.UnsubscribeRequest(request_id=number):
                if self._is_joining(origin, number):
                    self._queue.said.append(Left(origin, number))
                else:
                    self._members.unsubscribe(origin, number)
                return
            case _:
                self._queue.answer(origin, wire.return_route, invalid_request(request))
                return
        self._queue.said.append(Said(origin, wire, request))

    def _is_joining(self, origin: Origin, number: int) -> bool:
        """Whether who asked by this number to be a worker is none yet: no round has done it."""
        return any(
            joins(said) and said.origin is origin and said.request.request_id == number
            for said in (*self._doing, *self._queue.said)
        )

    def _answer_all(self, error: RequestError) -> None:
        """Tell whoever waits for an answer that there is none."""
        owed = [said for one in (*self._writing, *self._owed) for said in one.doing]
        for said in (*owed, *self._doing, *self._queue.said, *self._members.early):
            if isinstance(said, Said) and not said.is_told:
                self._reply(said, error)
        self._doing, self._queue.said, self._members.early = (), [], []
        self._owed, self._writing = [], []

    def _remove(self) -> None:
        """The stream is no more."""
        self._ended = True
        self._answer_all(_REMOVED)
        self._members.dismiss_all(_REMOVED)
        self._record.remove()
        self.system.exit(self.address)

    # Rounds ----------------------------------------------------------------------------------

    def _go_on(self) -> None:
        if not self._is_running and self._has_work():
            self._is_running = True
            self.begin(self._run(), self._run_ended)

    def _has_work(self) -> bool:
        return bool(self._queue.said or (self._queue.more and self._members.by_token))

    def _run_ended(self, _: RillnodeError) -> None:
        self._is_running = False

    async def _run(self) -> None:
        try:
            while not self._ended and self._has_work():
                turns_end = Signal()
                if self.system.at_turns_end(turns_end.set):
                    await turns_end  # what others have said by then is done in the same round
                self._queue.more = False
                self._doing, self._queue.said = self._queue.said, []
                try:
                    await self._round(self._doing)
                except RillnodeError as error:
                    self._fail(self._doing, error)
                self._doing = ()
        finally:
            self._is_running = False

    def _fail(self, doing: Doing, error: RillnodeError) -> None:
        """Nothing comes of rounds; jobs of workers that are gone are found in the record again.

        Nor of those that wait to be written: the state that they stand upon is given up.
        """
        self._record.state, self._queue.more = None, False
        owed, self._owed = self._owed, []
        logger.warning(
            "queue_not_served",
            extra={"stream": self._queue.stream, "queue": self._queue.name, "code": error.code},
        )
        for said in (*(said for one in owed for said in one.doing), *doing):
            if isinstance(said, Said) and not said.is_told:
                self._reply(said, error)
                self._members.forget(said.request)
        if error.retryable:
            self._queue.wake_in(RETRY_SECONDS)
        else:
            self._members.dismiss_all(error)

    async def _round(self, doing: Doing) -> None:
        """Do what was said, give what can be given, and write it down; then tell."""
        if self._goes_ahead(doing):
            await self._round_ahead(doing)
            return
        error: RillnodeError | None = None
        for _ in range(TRIES_MAX):
            await self._written_out()
            state = self._record.state
            if state is None:
                state = await self._load(doing)
            self._partitions.follow(bool(self._members.by_token) or any(map(joins, doing)))
            self._doing = doing = self._members.in_time(state, doing)
            letters = {
                id(said): await self._letters.find(state, said.request)
                for said in doing
                if isinstance(said, Said) and isinstance(said.request, native.TakeBackRequest)
            }
            ends: Sequence[int] = ()
            if self._members.awaited and any(map(joins, doing)):
                ends = await self._partitions.find_ends()
            now = self._look_at_time(state)
            for said in doing:
                self._do(state, said, letters, ends, now)
            jobs, _ = await self._giving.choose(state)
            buries = self._letters.are_due(state)
            error = await self._record.write(state)
            if self._ended:
                return
            if error is None:
                await self._tell(state, doing, jobs)
                return
            self._record.state = None
            if error.code == "store.fenced":
                # Another node was first: not both at once again and again.
                await self.sleep(self._context.entropy(1)[0] / 255 * AGAIN_SECONDS_MAX)
            elif not buries:
                break  # else what is to be dead waits, and the rest is written
        assert error is not None
        raise error

    def _look_at_time(self, state: QueueState) -> int:
        now = self._queue.now_ms()
        if now < self._last_ms:
            state.look_at_clock(now)
        self._last_ms = now
        state.expire(now)
        return now

    # Ahead of the record -----------------------------------------------------------------------

    def _goes_ahead(self, doing: Doing) -> bool:
        """Whether a round need not wait until those before it are durable, nor until it is itself.

        Where only this node writes the record, whatever is settled is told once that is durable;
        but who has settled something may have more meanwhile. An entry that a worker has without
        the record is one that was never given before: should this node fail now, a worker that is
        still there says so (`AheadOfRecord`), and else it is given for the first time once more.
        """
        state = self._record.state
        return (
            state is not None
            and self._record.lasts
            and not state.settings.by_key
            and not self._members.awaited
            and not self._letters.are_due(state)
            and all(map(settles, doing))
        )

    async def _round_ahead(self, doing: Doing) -> None:
        state = self._record.state
        assert state is not None
        now = self._look_at_time(state)
        for said in doing:
            self._do(state, said, {}, (), now)
        later, ahead = await self._giving.choose(state, is_ahead=True)
        if self._record.state is not state:
            raise STOPPED  # a write has failed, of what this stands upon: it is asked again
        for member, runs in ahead.items():
            if not self._members.knows(member) or member.origin is None:
                continue  # what it has is given to others
            self._ahead.sent(member, runs)
            self._send(member, runs)
        self._queue.more |= self._letters.are_due(state)
        if doing or state.changed:
            self._owed.append(_Owed(doing, later))
            self._write_soon()
        else:
            self._wake(state)

    def _write_soon(self) -> None:
        # One at a time: what is done until it is durable goes into the next, all in one record.
        if self._owed and not self._is_writing and self._record.state is not None:
            self.begin(self._write_owed(self._record.state))

    async def _write_owed(self, state: QueueState) -> None:
        """Write what rounds have done, and tell then."""
        self._is_writing = True
        if state.given_count > len(self._members.by_token):
            # More is being worked on, and what is said of it in this turn of the loop goes into the
            # same record: with a few jobs at a time a record takes more time than a round.
            await asyncio.sleep(0)
        owed, self._owed = self._owed, []
        if not owed:  # a round has failed meanwhile, and they were told
            self._is_writing = False
            self._written.set()
            return
        self._writing = owed
        error = await self._record.write_ahead(state)
        self._is_writing, self._writing = False, []
        self._written.set()
        if self._ended:
            return
        doing = [said for one in owed for said in one.doing]
        if error is not None:
            self._fail(doing, error)
            return
        self._write_soon()
        jobs: Jobs = {}
        for one in owed:
            for member, runs in one.jobs.items():
                jobs.setdefault(member, []).extend(runs)
        try:
            await self._tell(state, doing, jobs)
        except StoreError as failure:
            self._fail((), failure)

    async def _written_out(self) -> None:
        """Wait until no record is on its way to the disk, and none waits for that."""
        while self._is_writing or self._owed:
            self._write_soon()
            if not self._is_writing:
                break  # there is no state that could be written: whoever waits was told
            if self._written.is_set:
                self._written = Signal()
            await self._written

    async def _load(self, doing: Doing) -> QueueState:
        """Read the record, and where workers stand in it."""
        state = await self._record.read(
            lambda: bool(self._members.by_token) or any(map(joins, doing))
        )
        now = self._queue.now_ms()
        self._members.join_again(state, now)
        self._ahead.read(state)
        if self._record.lasts:
            self._members.await_workers(state, may_have_more=not state.settings.by_key)
            if self._members.awaited:
                self._ahead.doubt()
            self._ahead.adopt_sent(state, self._members, now)
        self._ahead.forget_sent()
        self._record.hold(state)
        return state

    # What was said ---------------------------------------------------------------------------

    def _do(
        self,
        state: QueueState,
        said: Word,
        letters: dict[int, Found | RequestError],
        ends: Sequence[int],
        now: int,
    ) -> None:
        if isinstance(said, Left):
            self._members.unsubscribe(said.origin, said.number)
            return
        if isinstance(said, Gone):
            number = state.worker_of(said.token)
            if number is not None and said.token not in self._members.by_token:
                state.lose(number, now, said.reason)
            return
        match said.request:
            case native.WorkRequest() as request:
                said.answer = self._join(state, said, request, ends, now)
            case native.SettleRequest() as request:
                said.answer = answer_unsettled(state, request)
                if said.answer is None:
                    said.answer = settle(state, request, now)
                    if any(item.outcome == Outcome.RELEASE for item in request.items):
                        self._members.has_given_back(request.worker)
                    if request.begun is not None:
                        self._members.leave(request.worker)
                        self._queue.more = True
            case native.TakeBackRequest() as request:
                said.answer = take_back(state, request, letters[id(said)])
            case _:
                said.answer = None

    def _join(
        self,
        state: QueueState,
        said: Said,
        request: native.WorkRequest,
        ends: Sequence[int],
        now: int,
    ) -> native.Response | RequestError:
        record = self._partitions.record
        assert record is not None, "the state is read beside it"
        if request.created_at not in (0, record.created_at):
            return _REMOVED
        number = self._members.join(state, said, now)
        if isinstance(number, RequestError):
            return number
        if request.worker in self._members.awaited:
            self._members.await_no_more(request.worker)
            self._ahead.adopt(state, number, request, ends, now)
        self._queue.more = True
        return compare_jobs(state, number, request, now)

    # Telling ---------------------------------------------------------------------------------

    async def _tell(self, state: QueueState, doing: Doing, jobs: Jobs) -> None:
        """All is durable: answer who has said something, and send what was given."""
        for said in doing:
            if not isinstance(said, Said):
                continue
            if isinstance(said.request, native.DescribeQueueRequest):
                document = await self._status.document(state)
                said.answer = native.DocumentResponse(said.request.request_id, document)
            assert said.answer is not None
            self._reply(said, said.answer)
        for member, runs in jobs.items():
            if member.origin is not None and self._members.knows(member):
                self._send(member, runs)
        if self._status.is_old():
            await self._status.find_oldest(state)
        self._status.note(state)
        self._wake(state)

    def _send(self, member: Member, runs: Runs) -> None:
        """Send jobs: one batch, as a tracer is told."""
        assert member.origin is not None
        answers = job_messages(member, runs)
        self._context.router.reply(member.origin, self._queue.own_address, answers)

    def _reply(self, said: Said, answer: native.Response | RillnodeError) -> None:
        if isinstance(answer, RillnodeError):
            payload = failed(said.request.request_id, answer)
        else:
            payload = native.encode(answer)
        said.is_told = True
        self._queue.answer(said.origin, said.wire.return_route, payload)

    # Time ------------------------------------------------------------------------------------

    def _wake(self, state: QueueState) -> None:
        """See that there is a round when something becomes due."""
        if not self._members.by_token:
            return
        due = state.due_at()
        if due is not None:
            left = (due - self._queue.now_ms()) / 1_000
            self._queue.wake_in(max(left, WAKE_SECONDS_MIN))
        if not self._record.lasts:
            self._queue.wake_in(OTHERS_SECONDS)
