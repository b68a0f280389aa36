"""Every codec that reads bytes from outside, as a function of bytes, and what it is fed.

A target takes any bytes. It returns, or raises what says that they are wrong; it also checks what
must hold of what was read. `corpus/<name>.hex` has right inputs, one a line, made of the vectors in
the vectors and by the codecs themselves, and behind them what was handled wrong once.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

from fuzz import native_targets
from fuzz.mutation import COMMON_TOKENS, JSON_TOKENS, Mutator
from rillnode.codecs.errors import CodecError, ConfigError, HandshakeError
from rooms import modules

_ROOMS: Final = modules("fuzz")

CORPUS: Final = {
    path.stem: path
    for directory in (Path(__file__), *(Path(str(module.__file__)) for module in _ROOMS))
    for path in directory.parent.glob("corpus/*.hex")
}
"""The stored inputs by target."""

TARGETS: Final[dict[str, Callable[[bytes], object]]] = {
    **native_targets.TARGETS,
    **{name: target for module in _ROOMS for name, target in module.TARGETS.items()},
}

SLOW: Final = frozenset(
    {
        *("noise_listener", "noise_dialler", "noise_records"),
        *(name for module in _ROOMS for name in module.SLOW),
    }
)
"""Those that shake hands or check signatures for each input: they get fewer of them."""

_REFUSALS: Final = (CodecError, HandshakeError, ConfigError)


@cache
def corpus(name: str) -> tuple[bytes, ...]:
    """The stored inputs of a target."""
    lines = CORPUS[name].read_text("ascii").splitlines()
    return tuple(map(bytes.fromhex, lines))


@cache
def tokens(name: str) -> tuple[bytes, ...]:
    """Pieces that mean something to a target."""
    return COMMON_TOKENS + (JSON_TOKENS if name.startswith(("streamr", "row")) else ())


def mutator(name: str, seed: int) -> Mutator:
    """What makes a target's inputs."""
    return Mutator(corpus(name), tokens(name), f"{name} {seed}")


def is_taken(name: str, data: bytes) -> bool:
    """Whether a target takes an input; that it refuses it as it may is no failure.

    Raises:
        Exception: the target broke its promise.
    """
    try:
        TARGETS[name](data)
    except _REFUSALS:
        return False
    return True


def fuzz(name: str, seed: int, count: int) -> int:
    """Feed a target; return how many inputs it took.

    Raises:
        AssertionError: it broke its promise; the text has the input and the line for the corpus.
    """
    made = mutator(name, seed)
    taken = 0
    for nth in range(count):
        data = made.input()
        try:
            taken += is_taken(name, data)
        except Exception as error:
            text = f"input {nth} of seed {seed} breaks {name}; for corpus/{name}.hex: {data.hex()}"
            raise AssertionError(text) from error
    return taken
