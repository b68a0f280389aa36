"""How fast the interpreter is for its machine: a small loop, timed beside the same work in C.

    python -m benchmarks.interpreter

A Python that was built without optimisation by profile, as by pyenv unless it is asked for, takes
1.2 to 1.6 times as long for the same; nothing that it says of itself tells. So the time of a loop
is held to that of zlib, which is the same code for all interpreters of a machine. Both are
processor time at its best, so that a busy machine does not matter much. Only the standard library
is needed: `make setup` calls this before there is more.
"""

import platform
import random
import sys
import zlib
from collections.abc import Callable
from time import thread_time
from typing import Final

_OPTIMISED: Final = 0.83
"""Time of the loop, held to zlib's, with Debian's Python 3.11, which is optimised."""

SLOW: Final = 1.15
"""From here on an interpreter is named; optimised ones of other versions stay below."""

_TRIES: Final = 20
_ROUNDS: Final = 5_000
_TEXT: Final = bytes(random.Random(1).choices(b"abcdefgh", [64, 32, 16, 8, 4, 2, 1, 1], k=40_000))


class _Thing:
    """What the loop makes and calls."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def add(self, text: str) -> int:
        """Read a number back from a text."""
        return self.number + int(text.split(":")[1])


def slowness() -> float:
    """How many times as long as an optimised one this interpreter takes for the same loop."""
    loop = compressed = float("inf")
    for _ in range(_TRIES):
        loop = min(loop, _seconds(_loop))
        compressed = min(compressed, _seconds(_compress))
    return loop / compressed / _OPTIMISED


def told(slow: float) -> str:
    """The interpreter as figures name it."""
    name = f"Python {platform.python_version()} ({platform.python_compiler()})"
    return f"{name}, {slow:.2f} times as long as an optimised build for a small loop"


def _seconds(work: Callable[[], object]) -> float:
    begun = thread_time()
    work()
    return thread_time() - begun


def _loop() -> float:
    known = dict.fromkeys(range(_ROUNDS // 2), 1)
    missing, sum_ = 0, 0.0
    for number in range(_ROUNDS):
        sum_ = sum_ * 1.0001 + _Thing(number).add(f"{number}:{number * 2}")
        try:
            missing -= known[number]
        except KeyError:
            missing += 1
    return sum_ + missing


def _compress() -> None:
    zlib.compress(_TEXT, 6)


def main() -> None:
    """Name the interpreter, and what to do where it is slow."""
    slow = slowness()
    print(told(slow))
    if slow >= SLOW:
        print(
            "That is slow: it was built without optimisation, it seems. All works, and takes more "
            "processor time; Debian's and python.org's are optimised, pyenv's with "
            "PYTHON_CONFIGURE_OPTS='--enable-optimizations --with-lto'.",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
