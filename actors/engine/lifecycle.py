"""Makes and ends cells, and starts, replaces and gives up instances.

An instance goes in one of three ways: with its actor, or before another takes its place, and then
all that it has under way is dropped first; or because nothing came for it for long (`Passivation`),
and then it has nothing under way.
"""

from asyncio import CancelledError
from collections.abc import Callable, Coroutine
from functools import partial
from inspect import iscoroutine
from typing import Any, Final

from thespian.actors import Actor, ActorExitRequest, ActorSystemMessage, ChildActorExited

from rillnode.actors.engine.cell import EMPTY, FAILURES, GONE, Cell, Factory
from rillnode.actors.engine.dead_letters import STOPPED
from rillnode.actors.engine.kinds import ActorKind, class_of
from rillnode.actors.engine.mailboxes import Held, Mailboxes
from rillnode.actors.engine.waiting import LINGER_SECONDS, Work
from rillnode.actors.ports import Timing
from rillnode.codecs.errors import ActorError
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.engine.system")


class Start(ActorSystemMessage):
    """A spawned cell's first message: its instance is made, whose `started` it stands for.

    Actors never see it.
    """


class Finish(ActorSystemMessage):
    """Stands for `Worker.finish` where that has failed. Actors never see it."""


START: Final = Start()
FINISH: Final = Finish()

LOOK_CELLS_MAX: Final = 500
"""Cells looked at for idle instances before the loop gets its turn."""


class Lifecycle:
    """All cells of one system.

    Attributes:
        kinds: by class; None stands for factories that have not shown theirs.
        names: cells that are known by a name in the whole system.
        roots: cells without a parent, in order of creation.
        population: number of cells that have not exited.
        starting: what begins an instance's `started` that waits; set by who gives turns.
        forgotten: called with each cell that has exited.
    """

    def __init__(self, system: Any, mailboxes: Mailboxes, timing: Timing) -> None:
        self._system = system
        self._mailboxes = mailboxes
        self._timing = timing
        self.passivation = Passivation(timing, self._passivate)
        self.kinds: dict[type[Actor] | None, ActorKind] = {}
        self.names: dict[str, Cell] = {}
        self.roots: dict[Cell, None] = {}
        self.population = 0
        self.starting: Callable[[Cell, Coroutine[Any, Any, Any]], None]
        self.forgotten: Callable[[Cell], None]

    # Cells -----------------------------------------------------------------------------------

    def add(self, factory: Factory, parent: Cell | None, name: str | None) -> Cell:
        """Make a cell without an instance.

        Raises:
            ActorError: `actor.stopped`, the parent has exited.
        """
        if parent is not None and parent.mailbox is GONE:
            raise ActorError(STOPPED, f"{parent} has exited and can have no children")
        kind = self._kind(class_of(factory))
        cell = Cell(self._system, kind, factory, parent, name)
        if parent is None:
            self.roots[cell] = None
        elif parent.children is None:
            parent.children = {cell: None}
        else:
            parent.children[cell] = None
        kind.cells += 1
        self.population += 1
        return cell

    def terminate(self, cell: Cell, *, recursive: bool = True) -> None:
        """End an actor: its children are asked to exit, its parent is told.

        Who waits for what it had under way, or for messages that still wait, is told. Children that
        are not asked to exit go on without a parent. Work that is cancelled and tidies up is waited
        for first.
        """
        if cell.mailbox is not GONE:
            error = ActorError(STOPPED, f"{cell} has exited")
            self.give_up_instance(cell, error, lambda: self._end(cell, recursive))

    def _end(self, cell: Cell, recursive: bool) -> None:
        if cell.mailbox is GONE:
            return
        system = self._system
        mailbox, cell.mailbox = cell.mailbox, GONE
        if name := cell.globalName:
            del self.names[name]
        cell.kind.cells -= 1
        self.population -= 1
        children, cell.children = cell.children or {}, None
        for child in children:
            child.parent = None
            self.roots[child] = None
            if recursive:
                system.post(child, ActorExitRequest(), None)
        parent = cell.parent
        if parent is None or parent.children is None:
            del self.roots[cell]
        else:
            del parent.children[cell]
            parent.children = parent.children or None
            system.post(parent, ChildActorExited(cell), None)
        # Somebody may keep the address for long; it holds on to nothing else.
        cell.factory, cell.parent = Actor, None
        self.forgotten(cell)
        self._mailboxes.put_back(cell, [*mailbox])

    def _kind(self, actor_class: type[Actor] | None) -> ActorKind:
        kind = self.kinds.get(actor_class)
        if kind is None:
            kind = self.kinds[actor_class] = ActorKind(actor_class)
        return kind

    # Instances -------------------------------------------------------------------------------

    def instance_of(self, cell: Cell) -> Actor:
        """The instance of a cell, made now where there is none.

        Where its `started` waits the cell takes no message until that is done.

        Raises:
            BaseException: whatever the factory or `started` raises; there is no instance then.
        """
        if cell.instance is not None:
            return cell.instance
        instance = cell.factory()
        kind = self._kind(type(instance))
        if kind is not cell.kind:
            cell.kind.cells -= 1
            kind.cells += 1
            cell.kind = kind
        instance._myRef = cell
        cell.instance = instance
        kind.instances += 1
        if cell.parent is not None:
            kind.parent = cell.parent.kind
        if kind.is_worker:
            try:
                worker: Any = instance
                started = worker.started()
                if iscoroutine(started):
                    self.starting(cell, started)
            except BaseException:
                cell.drop_instance()
                cell.drop_owned(ActorError(STOPPED, f"{cell} did not start"))
                raise
        if not isinstance(cell.mailbox, Held):
            self.has_started(cell)
        self.passivation.watch(cell)
        return instance

    def has_started(self, cell: Cell) -> None:
        """An instance is there: let go of what has made it, where there will be no other."""
        if cell.kind.on_failure != "restart" and cell.kind.idle_seconds is None:
            cell.factory = Actor  # as at the exit

    def give_up_instance(self, cell: Cell, error: ActorError, after: Callable[[], None]) -> None:
        """Let an actor's instance go, if it has one, then do something.

        Who waits for what it had under way is told. Work that tidies up when it is cancelled is
        waited for first, `LINGER_SECONDS` at most; until then the actor takes no message.
        """
        instance: Any = cell.instance
        if instance is not None and cell.kind.is_worker:
            try:
                instance.stopped()
            except FAILURES as failure:
                cell.failed("stopped", failure)
        if cell.instance is not None:
            cell.drop_instance()
        cell.drop_owned(error)
        if cell.owned is None:
            self._mailboxes.release(cell)
            after()
            return
        # Cancelled work that tidies up: nothing else is done before it has ended.
        held = self._mailboxes.hold(cell)
        held.after = after
        self._timing.call_later(LINGER_SECONDS, lambda: self._abandon(cell))

    def lingered(self, work: Work, error: BaseException | None) -> bool:
        """Whether work that has ended was one of an instance that was given up: perhaps the last.

        Then nothing follows from its end but what has waited for it.
        """
        if not work.dropped:
            return False
        cell = work.cell
        if error is not None and not isinstance(error, CancelledError):
            cell.failed(work.get_name(), error)
        held = cell.mailbox
        if cell.owned is None and isinstance(held, Held) and held.after is not None:
            after, held.after = held.after, None
            self._mailboxes.release(cell)
            after()
        return True

    def _abandon(self, cell: Cell) -> None:
        for one in tuple(cell.owned or ()):
            if isinstance(one, Work) and one.dropped:
                logger.error("work_abandoned", extra=cell.logged(work=one.get_name()))
                try:
                    one.abandon()
                except FAILURES as failure:
                    cell.failed("abandon", failure)

    def _passivate(self, cell: Cell) -> None:
        """Let the instance of an idle actor go, and the actor with it where its class says so."""
        if cell.kind.stops_when_idle:
            idle = ActorError(STOPPED, f"{cell} was idle")
            self.give_up_instance(cell, idle, lambda: self._rested(cell))
        else:
            cell.drop_instance()

    def _rested(self, cell: Cell) -> None:
        if cell.kind.ends_when_idle and cell.mailbox is EMPTY:
            self.terminate(cell)


class Passivation:
    """Looks through the instances of each class with an idle time, once in that time.

    What had no turn between two looks is idle; so an instance goes after one to two idle times.
    Nothing is scheduled while there is nothing to look at.
    """

    def __init__(self, timing: Timing, passivate: Callable[[Cell], None]) -> None:
        self._timing = timing
        self._passivate = passivate
        # Of each class the cells to look at, while a look is scheduled.
        self.awake: dict[ActorKind, list[Cell]] = {}

    def watch(self, cell: Cell) -> None:
        """Look at a cell from now on; called with each instance it gets."""
        kind = cell.kind
        if kind.idle_seconds is None or cell.active is not None:
            return
        cell.active = True
        if kind not in self.awake:
            self.awake[kind] = []
            self._timing.call_later(kind.idle_seconds, partial(self._look, kind))
        self.awake[kind].append(cell)

    def _look(self, kind: ActorKind, left: int = 0) -> None:
        awake = self.awake[kind]
        left = left or len(awake)  # of this look
        looked_at = awake[: min(left, LOOK_CELLS_MAX)]
        del awake[: len(looked_at)]
        for cell in looked_at:
            if cell.instance is None:
                cell.active = None
            elif cell.active or not self._is_idle(cell, cell.instance):
                cell.active = False
                awake.append(cell)
            else:
                cell.active = None
                self._passivate(cell)
        left -= LOOK_CELLS_MAX
        if left > 0:
            self._timing.call_later(0.0, partial(self._look, kind, left))
        elif awake and kind.idle_seconds is not None:
            self._timing.call_later(kind.idle_seconds, partial(self._look, kind))
        else:
            del self.awake[kind]

    def _is_idle(self, cell: Cell, instance: Any) -> bool:
        if cell.mailbox or cell.owned:
            return False
        try:
            return not cell.kind.is_worker or (
                not instance.operations_due and instance.may_passivate()
            )
        except FAILURES as error:
            cell.failed("may_passivate", error)
            return False
