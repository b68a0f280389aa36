"""How actors come and go: cells are made and end, instances come, are replaced and given up."""

from typing import TYPE_CHECKING

from thespian.actors import Actor, ActorExitRequest, ActorSystemMessage, ChildActorExited

from rillnode.actors.engine.cell import GONE, Cell, Factory
from rillnode.actors.engine.failures import FAILURES, record_failure
from rillnode.actors.engine.kinds import ActorKind, class_of
from rillnode.actors.engine.passivation import Passivation
from rillnode.actors.engine.timers import Timing, cancel_timers
from rillnode.actors.engine.worker import Worker
from rillnode.codecs.errors import ActorError

if TYPE_CHECKING:
    from rillnode.actors.engine.system import AsyncioSystemBase


class Start(ActorSystemMessage):
    """A spawned cell's first message: its instance is made. Actors never see it."""


class Finish(ActorSystemMessage):
    """Time for `Worker.finish`, once more after it has failed. Actors never see it."""


class Lifecycle:
    """All cells of one system.

    Attributes:
        kinds: by class; None stands for factories that have not shown theirs.
        names: cells that are known by a name in the whole system.
        roots: cells without a parent, in order of creation.
        population: number of cells that have not exited.
    """

    def __init__(self, base: "AsyncioSystemBase", timing: Timing) -> None:
        self._base = base
        self._passivation = Passivation(timing, self._drop_instance)
        self.kinds: dict[type[Actor] | None, ActorKind] = {}
        self.names: dict[str, Cell] = {}
        self.roots: dict[Cell, None] = {}
        self.population = 0

    # Cells -----------------------------------------------------------------------------------

    def add(self, factory: Factory, parent: Cell | None, name: str | None) -> Cell:
        """Make a cell without an instance.

        Raises:
            ActorError: `actor.gone`, the parent has exited.
        """
        if parent is not None and parent.mailbox is GONE:
            raise ActorError("actor.gone", f"{parent} has exited and can have no children")
        kind = self._kind(class_of(factory))
        cell = Cell(self._base, kind, factory, parent, name)
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

        Messages that still wait become dead letters. Children that are not asked to exit go on
        without a parent.
        """
        base = self._base
        self._give_up_instance(cell)
        unhandled, cell.mailbox = cell.mailbox, GONE
        if name := cell.globalName:
            del self.names[name]
        cell.kind.cells -= 1
        self.population -= 1
        children, cell.children = cell.children or {}, None
        for child in children:
            child.parent = None
            self.roots[child] = None
            if recursive:
                base.post(child, ActorExitRequest(), base.address)
        parent = cell.parent
        if parent is None:
            del self.roots[cell]
        else:
            self._leave(cell, parent)
        # Somebody may keep the address for long; it holds on to nothing else.
        cell.factory, cell.parent = Actor, None
        base.forget(cell)
        for message, sender in unhandled:
            base.bury(cell, message, sender, "unhandled")

    def _leave(self, cell: Cell, parent: Cell) -> None:
        if parent.children is not None:
            parent.children.pop(cell, None)
            if not parent.children:
                parent.children = None
        self._base.post(parent, ChildActorExited(cell), self._base.address)

    def _kind(self, actor_class: type[Actor] | None) -> ActorKind:
        kind = self.kinds.get(actor_class)
        if kind is None:
            kind = self.kinds[actor_class] = ActorKind(actor_class)
        return kind

    # Instances -------------------------------------------------------------------------------

    def instance_of(self, cell: Cell) -> Actor:
        """The instance of a cell, made now where there is none.

        Raises:
            Exception: whatever the factory or `started` raises; there is no instance then.
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
        if isinstance(instance, Worker):
            try:
                instance.started()
            except BaseException:
                cancel_timers(cell)
                self._drop_instance(cell)
                raise
        if kind.policy.lasting:
            cell.factory = Actor  # as at the exit: what made the instance is of no more use
        self._passivation.watch(cell)
        return instance

    def replace_instance(self, cell: Cell) -> None:
        """Give the instance of a failed actor up and make a new one.

        Raises:
            Exception: as `instance_of`.
        """
        self._give_up_instance(cell)
        self.instance_of(cell)

    def _give_up_instance(self, cell: Cell) -> None:
        if isinstance(cell.instance, Worker):
            try:
                cell.instance.stopped()
            except FAILURES as error:
                record_failure(cell, "stopped", error)
        cancel_timers(cell)
        if cell.instance is not None:
            self._drop_instance(cell)

    def _drop_instance(self, cell: Cell) -> None:
        cell.instance = None
        cell.kind.instances -= 1
