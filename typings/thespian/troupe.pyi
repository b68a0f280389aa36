from collections.abc import Callable
from typing import TypeVar

from thespian.actors import Actor

A = TypeVar("A", bound=type[Actor])

def troupe(max_count: int = ..., idle_count: int = ...) -> Callable[[A], A]: ...
