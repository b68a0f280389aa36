from collections.abc import Callable, Sequence
from typing import TypeVar

from thespian.actors import Actor

A = TypeVar("A", bound=type[Actor])

def initializing_messages(
    initset: Sequence[tuple[str, type] | tuple[str, type, bool]],
    initdone: str | None = ...,
    init_passthru: bool = ...,
) -> Callable[[A], A]: ...
