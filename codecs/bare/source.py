"""Writes the source of encoders and decoders: lines, blocks, names.

A codec's source is straight-line Python with every type inlined: half the time of calling a
function per type. `codecs/bare/encoder.py` and `codecs/bare/decoder.py` write it.
"""

import struct
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final

from rillnode.codecs.errors import CodecError
from rillnode.codecs.varint import SMALL_UINTS, encode_uint, read_tag, read_uint

LOOPS_MAX: Final = 8
"""Loops within loops of one function; Python compiles at most 20 nested blocks."""


class Writer:
    """Lines of one function, fresh variable names, and what the source names."""

    def __init__(self) -> None:
        self.namespace: dict[str, object] = {
            "CodecError": CodecError,
            "StructError": struct.error,
            "UINTS": SMALL_UINTS,
            "encode_uint": encode_uint,
            "read_tag": read_tag,
            "read_uint": read_uint,
            "join": b"".join,
        }
        self.functions: list[str] = []
        self.lines: list[str] = []
        self.level = 0
        self.loops = 0
        self._names = 0

    def line(self, *texts: str) -> None:
        """Write lines at the present level."""
        self.lines.extend("    " * self.level + text for text in texts)

    @contextmanager
    def block(self, head: str, *, loop: bool = False) -> Generator[None]:
        """Indent what is written meanwhile under `head`."""
        self.line(head)
        self.level += 1
        self.loops += loop
        yield
        self.loops -= loop
        self.level -= 1

    @contextmanager
    def function(self, head: str) -> Generator[None]:
        """Put what is written meanwhile into a function of its own."""
        before = self.lines, self.level, self.loops
        self.lines, self.level, self.loops = [head], 1, 0
        yield
        self.functions.append("\n".join(self.lines))
        self.lines, self.level, self.loops = before

    def name(self) -> str:
        """A variable name not used before."""
        self._names += 1
        return f"x{self._names}"

    def bind(self, value: object) -> str:
        """Give the source a name for an object."""
        name = self.name().upper()
        self.namespace[name] = value
        return name

    def fail(self, condition: str, code: str, text: str, offset: str = "0") -> None:
        """Raise CodecError where `condition` holds."""
        self.line(f"if {condition}:", f"    raise CodecError({code!r}, {text!r}, offset={offset})")


def tuple_of(items: Sequence[str]) -> str:
    """The source of a tuple."""
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
