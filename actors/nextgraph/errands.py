"""Work in several steps that wait for the store or for another actor, without awaiting.

Such work is a generator that yields what must be done next: operations of the store, or others
that are completed in the same way, by being posted back to `reply_to` with their results set. It
goes on when all that it has yielded is complete:

    def _register(self, asked: Asked) -> Steps:
        get = GetRecord(key=...)
        yield (get,)
        if get.value is None: ...

An operation's error is raised where the generator waits. What has begun as `in_order` is done one
after the other, so that no step of one comes between two steps of another.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, TypeVar, cast

from rillnode.actors.engine.kinds import OnFailure
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.nextgraph.session import Asked, Refusal
from rillnode.actors.storage import (
    LogStore,
    Operation,
    ReadOperation,
    WriteOperation,
)
from rillnode.codecs.errors import RillnodeError, StoreError
from rillnode.codecs.nextgraph.results import ResultCode

logger = logging.getLogger("rillnode.actors.nextgraph")

FENCED: Final = "store.fenced"

FENCED_MAX: Final = 100
"""Work is done anew so often where other nodes change what it follows from."""

Result = TypeVar("Result")

Found = Generator[Sequence[Operation], None, Result]
"""Part of some work, with a result for the rest of it."""

Steps = Found[None]


def anew(work: Callable[[], Found[Result]]) -> Found[Result]:
    """Do work that reads, and then writes once: again, where another node was first."""
    for _ in range(FENCED_MAX):
        try:
            return (yield from work())
        except StoreError as error:
            if error.code != FENCED:
                raise
    return (yield from work())


@dataclass(slots=True, eq=False)
class Errand(Operation):
    """An operation that an actor carries out, and posts back with `done` or `fail`.

    Attributes:
        actor: who carries it out.
        refusal: result: why it could not be done.
    """

    actor: Cell | None = None
    refusal: Refusal | None = None

    def fail(self, result: ResultCode) -> None:
        """Post it back, refused."""
        self.refusal = Refusal(result)
        self.done()

    def done(self) -> None:
        """Post it back, its results set."""
        self.reply_to.base.post(self.reply_to, self)


@dataclass(slots=True, eq=False)
class _Work:
    """A generator under way, and how many of its operations are not complete."""

    steps: Steps
    failed: Callable[[ResultCode], None]
    ordered: bool
    waiting: int = 0
    error: RillnodeError | None = None


class ErrandActor(Worker):
    """An actor whose work is generators; subclasses pass completed operations to `complete`."""

    on_failure: ClassVar[OnFailure] = "resume"

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._queue: deque[_Work] = deque()
        self._under_way = 0

    @property
    def busy(self) -> bool:
        """Whether any work is not done."""
        return bool(self._under_way or self._queue)

    def may_passivate(self) -> bool:
        """Stay while there is work."""
        return not self.busy

    def at_once(self, steps: Steps, failed: Callable[[ResultCode], None]) -> None:
        """Begin work now; `failed` is called with what to answer if it cannot be done."""
        self._under_way += 1
        if self._run(_Work(steps, failed, ordered=False)):
            self._under_way -= 1

    def in_order(self, steps: Steps, failed: Callable[[ResultCode], None]) -> None:
        """Begin work when all that was to be done in order before is done."""
        self._queue.append(_Work(steps, failed, ordered=True))
        if len(self._queue) == 1:
            self._work_off()

    def answer_at_once(self, asked: Asked, steps: Steps) -> None:
        """`at_once` for work that answers a request."""
        self.at_once(steps, asked.refuse)

    def answer_in_order(self, asked: Asked, steps: Steps) -> None:
        """`in_order` for work that answers a request."""
        self.in_order(steps, asked.refuse)

    def complete(self, operation: Operation) -> None:
        """Take an operation back; the work goes on when it was the last one awaited."""
        work: _Work = operation.token
        work.waiting -= 1
        work.error = work.error or operation.error
        if isinstance(operation, Errand):
            work.error = work.error or operation.refusal
        if work.waiting or not self._run(work):
            return
        if work.ordered:
            self._queue.popleft()
            self._work_off()
        else:
            self._under_way -= 1

    def _work_off(self) -> None:
        while self._queue and self._run(self._queue[0]):
            self._queue.popleft()

    def _run(self, work: _Work) -> bool:
        """Go on with work until it waits; whether it is done instead."""
        while not work.waiting:
            operations = self._next(work)
            if operations is None:
                return True
            work.waiting = len(operations)
            for operation in operations:
                self._start(operation, work)
        return False

    def _next(self, work: _Work) -> Sequence[Operation] | None:
        """What the work waits for next; None when it is done."""
        error, work.error = work.error, None
        try:
            return next(work.steps) if error is None else work.steps.throw(error)
        except StopIteration:
            return None
        except Refusal as refusal:
            work.failed(refusal.result)
        except RillnodeError as failure:
            logger.warning("errand_failed", extra={"code": failure.code, "reason": failure.text})
            work.failed(ResultCode.STORAGE_ERROR)
        except Exception:
            # A bug, whose client is not left waiting.
            logger.exception("errand_broke")
            work.failed(ResultCode.BROKER_ERROR)
        return None

    def _start(self, operation: Operation, work: _Work) -> None:
        operation.reply_to, operation.token = self.address, work
        if isinstance(operation, Errand):
            assert operation.actor is not None
            self.system.post(operation.actor, operation)
        elif isinstance(operation, WriteOperation):
            self._store.submit(operation)
        elif self._store.read(cast(ReadOperation, operation)):
            work.waiting -= 1
            work.error = work.error or operation.error
