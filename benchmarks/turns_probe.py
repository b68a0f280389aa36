"""Times all that an event loop's thread does in one go: turns of actors, callbacks of the loop.

Each piece of work is timed twice. Its time on the clock holds what the machine took meanwhile:
other processes, other threads of this one, a virtual machine's host. The processor time of the
thread does not, and what the garbage collector used is taken off it and counted by itself. So
processor time tells what the code does, and the difference of the two what this machine did.

The probe changes the classes of the actor system and of asyncio while it is installed, so that a
node which nobody measures pays nothing.
"""

import asyncio
import gc
import time
from array import array
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from thespian.actors import Actor

from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.kinds import ActorKind
from rillnode.actors.engine.lifecycle import Lifecycle
from rillnode.actors.engine.turns import Turns
from rillnode.actors.engine.waiting import Continuation, Work as Waiting
from rillnode.actors.engine.worker import Worker

STOP: Final = "stop"
"""The phase in which all actors end: what they held is freed in their last turns, when nobody is
connected any more. These are told apart."""

_TICK_SECONDS: Final = 0.001
_NEXTGRAPH: Final = "rillnode.actors.nextgraph"

_cpu, _wall = time.thread_time, time.perf_counter


@dataclass(slots=True)
class Work:
    """All pieces of work of one kind.

    Attributes:
        what: an actor class, or a callback.
        seconds: processor time of each piece, as far as they are timed one by one.
        usual: how many more there were, each shorter than those that are timed.
        longest: processor time of the longest.
        longest_wall: the longest time on the clock, of any piece.
        message: what the longest by processor time was about.
        phase: when it was.
        is_last: it is about the node's stop.
    """

    what: str
    seconds: "array[float]" = field(default_factory=lambda: array("f"))
    usual: int = 0
    longest: float = 0.0
    longest_wall: float = 0.0
    message: str = ""
    phase: str = ""
    is_last: bool = False

    @property
    def count(self) -> int:
        """How many pieces there were."""
        return len(self.seconds) + self.usual

    def above(self, seconds: float) -> int:
        """How many pieces took longer."""
        return sum(one > seconds for one in self.seconds)

    def quantile(self, part: float) -> float:
        """What all but `1 - part` of the pieces did not exceed; 0 where that was not timed."""
        place = int(part * (self.count - 1)) - self.usual
        return sorted(self.seconds)[place] if place >= 0 and self.seconds else 0.0


class Probe:
    """Times the work of the thread on which it is installed, by kind.

    Attributes:
        phase: what is being done to the node now.
        turns: turns of actors, by class, and whether in the node's stop.
        callbacks: what the loop has called, by name; the turns of actors are part of some.
        pauses: of the garbage collector, by generation.
        gap: of the loop: how late it came back to a timer.
    """

    def __init__(self) -> None:
        self.phase = ""
        self.turns: dict[tuple[str, bool], Work] = {}
        self.callbacks: dict[str, Work] = {}
        self.pauses: dict[str, Work] = {}
        self.gap = Work("loop")
        self._collected = 0.0
        self._pause = (0.0, 0.0)
        # Of the turn that goes on: processor time at its begin, and its longest message.
        self._begun = 0.0
        self._message = (0.0, "")

    @contextmanager
    def installed(self) -> Generator[None]:
        """Time what this thread does in the meantime; one loop and one actor system are told."""
        undo: list[Callable[[], None]] = []

        def patch(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
            original = getattr(owner, name)
            setattr(owner, name, make(original))
            undo.append(lambda: setattr(owner, name, original))

        patch(asyncio.events.Handle, "_run", self._timed_callback)
        patch(Turns, "_run", self._timed_pump)
        patch(Turns, "_finish", self._timed_pump)
        patch(Turns, "_complete", self._timed_completion)
        # The turns before a long one in its pump are counted with it: half a millisecond at most.
        patch(ActorKind, "took_long", self._timed_turn)
        patch(Worker, "receiveMessage", self._timed_message)
        patch(Turns, "_waits", self._timed_first_step)
        patch(Lifecycle, "instance_of", self._timed_birth)
        patch(Lifecycle, "terminate", self._timed_end)
        gc.callbacks.append(self._collecting)
        try:
            yield
        finally:
            gc.callbacks.remove(self._collecting)
            for one in reversed(undo):
                one()

    async def watch(self) -> None:
        """Measure the gaps of the running loop, until cancelled."""
        while True:
            cpu, wall, collected = _cpu(), _wall(), self._collected
            await asyncio.sleep(_TICK_SECONDS)
            late = _wall() - wall - _TICK_SECONDS
            used = _cpu() - cpu - (self._collected - collected)
            self._note(self.gap, used, late, "")

    def _note(self, work: Work, cpu: float, wall: float, message: str) -> None:
        work.seconds.append(cpu)
        work.longest_wall = max(work.longest_wall, wall)
        if cpu > work.longest:
            work.longest, work.message, work.phase = cpu, message, self.phase

    # The garbage collector -------------------------------------------------------------------

    def _collecting(self, step: str, info: dict[str, int]) -> None:
        if step == "start":
            self._pause = (_cpu(), _wall())
            return
        cpu, wall = _cpu() - self._pause[0], _wall() - self._pause[1]
        self._collected += cpu
        what = f"generation {info['generation']}"
        work = self.pauses.setdefault(what, Work(what))
        self._note(work, cpu, wall, "")

    # Callbacks of the loop -------------------------------------------------------------------

    def _timed_callback(self, original: Callable[[Any], None]) -> Callable[[Any], None]:
        def run(handle: Any) -> None:
            what = _name_of(handle._callback)
            cpu, wall, collected = _cpu(), _wall(), self._collected
            original(handle)
            cpu = _cpu() - cpu - (self._collected - collected)
            wall = _wall() - wall
            work = self.callbacks.get(what)
            if work is None:
                work = self.callbacks[what] = Work(what)
            self._note(work, cpu, wall, "")

        return run

    # Turns of actors -------------------------------------------------------------------------

    def _timed_pump(self, original: Callable[[Any], None]) -> Callable[[Any], None]:
        def pump(turns: Any) -> None:
            self._mark()
            original(turns)

        return pump

    def _mark(self) -> None:
        self._begun = _cpu() - self._collected
        self._message = (0.0, "")

    def _timed_turn(
        self, original: Callable[[Any, float], None]
    ) -> Callable[[ActorKind, float], None]:
        def took_long(kind: ActorKind, seconds: float) -> None:
            work = self._work(kind.name)
            cpu = _cpu() - self._collected - self._begun
            self._note(work, min(cpu, seconds), seconds, self._message[1])
            original(kind, seconds)
            self._mark()

        return took_long

    def _work(self, name: str) -> Work:
        """What is known of a class; its name alone where no other has the same."""
        module, _, what = name.rpartition(".")
        if module.startswith(_NEXTGRAPH):
            what = f"nextgraph.{what}"
        is_last = self.phase == STOP
        return self.turns.setdefault((what, is_last), Work(what, is_last=is_last))

    def _timed_message(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def receive(worker: Any, message: Any, sender: Any) -> Any:
            begun = _cpu() - self._collected
            try:
                return original(worker, message, sender)
            finally:
                self._handled(begun, type(message).__name__)

        return receive

    def _timed_first_step(self, original: Callable[..., None]) -> Callable[..., None]:
        def waits(turns: Any, cell: Cell, result: Any, message: Any, sender: Any) -> None:
            begun = _cpu() - self._collected
            try:
                original(turns, cell, result, message, sender)
            finally:
                self._handled(begun, type(message).__name__)

        return waits

    def _timed_completion(self, original: Callable[..., None]) -> Callable[..., None]:
        def complete(turns: Any, cell: Cell, operation: Any, then: Continuation) -> None:
            begun = _cpu() - self._collected
            about = operation
            if about is None and isinstance(owner := getattr(then.run, "__self__", None), Waiting):
                about = owner.message
            try:
                original(turns, cell, operation, then)
            finally:
                self._handled(begun, f"{type(about).__name__}, then")

        return complete

    def _timed_birth(self, original: Callable[[Any, Cell], Actor]) -> Callable[[Any, Cell], Actor]:
        def instance_of(life: Any, cell: Cell) -> Actor:
            if cell.instance is not None:
                return cell.instance
            begun = _cpu() - self._collected
            try:
                return original(life, cell)
            finally:
                self._handled(begun, "(started)")

        return instance_of

    def _timed_end(self, original: Callable[..., None]) -> Callable[..., None]:
        def terminate(life: Any, cell: Cell, *, recursive: bool = True) -> None:
            begun = _cpu() - self._collected
            try:
                original(life, cell, recursive=recursive)
            finally:
                self._handled(begun, "(ended)")

        return terminate

    def _handled(self, begun: float, message: str) -> None:
        cpu = _cpu() - self._collected - begun
        if cpu > self._message[0]:
            self._message = (cpu, message)

    def count_usual(self, kinds: Iterable[ActorKind]) -> None:
        """Take over how many turns there were until now that were too short to be timed."""
        for kind in kinds:
            if kind.turns:
                work = self._work(kind.name)
                work.usual = kind.turns - sum((kind.long_turns or {}).values())


def _name_of(callback: Any) -> str:
    """What people call a callback: a task by its coroutine, a transport's by its protocol."""
    owner: Any = getattr(callback, "__self__", None)
    if issubclass(type(owner), asyncio.Task):
        coroutine = owner.get_coro()
        frame = coroutine.cr_frame
        request = None if frame is None else frame.f_locals.get("request")
        path = "" if request is None else f" {getattr(request, 'path', '')}"
        return f"task {coroutine.__qualname__}{path}"
    protocol = getattr(owner, "_protocol", None)
    name = getattr(callback, "__qualname__", type(callback).__name__)
    if protocol is not None:
        return f"{type(protocol).__name__}: {name.rpartition('.')[2].strip('_')}"
    return name
