from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from thespian.actors import Actor

A = TypeVar("A", bound=type[Actor])

def transient(exit_delay: timedelta = ...) -> Callable[[A], A]: ...
def transient_idle(exit_delay: timedelta = ...) -> Callable[[A], A]: ...
