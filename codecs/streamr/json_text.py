"""JSON texts from outside, read by a schema and written compactly.

A reader is a `msgspec` decoder: it takes the shape that a text must have, checks types and ranges
while it parses and skips what the shape does not name. Whatever a text holds, the outcome is a
value or a CodecError: wrong syntax, no UTF-8, nesting deeper than the interpreter's stack allows,
numbers out of range, halves of surrogate pairs.

Numbers are read as JavaScript has them: `1.0` is the integer 1, and integers end at 2**53 - 1.
"""

import re
from typing import Annotated, Final, TypeVar

import msgspec

from rillnode.codecs.errors import CodecError
from rillnode.codecs.limits import FRAME_BYTES_MAX
from rillnode.codecs.streamr.limits import STREAMR_INTEGER_MAX

T = TypeVar("T")

Scalar = str | int | float | bool | None

Text = str | bytes | msgspec.Raw
"""A JSON text, or one that was cut out of another as it stands."""

Name = Annotated[str, msgspec.Meta(min_length=1)]
Number = (
    Annotated[int, msgspec.Meta(ge=0, le=STREAMR_INTEGER_MAX)]
    | Annotated[float, msgspec.Meta(ge=0, le=STREAMR_INTEGER_MAX)]
)
"""Where an integer from 0 belongs; `whole` has the last word."""

_ANY: Final = msgspec.json.Decoder(msgspec.Raw)
_ELEMENTS_TOLD: Final = 16
"""How far into an array an offset is told; elements after that are told as the last of these."""

_ELEMENTS: Final = msgspec.json.Decoder(
    msgspec.defstruct(
        "_Elements",
        [(f"element_{nth}", msgspec.Raw, msgspec.Raw()) for nth in range(_ELEMENTS_TOLD)],
        array_like=True,
    )
)
_AT_BYTE: Final = re.compile(r"\(byte (\d+)\)$")
_AT_ELEMENT: Final = re.compile(r"`\$\[(\d+)\]")
_BETWEEN: Final = re.compile(r"[\s,]*")


def read_json(reader: msgspec.json.Decoder[T], text: Text) -> T:
    """Read a text of at most FRAME_BYTES_MAX characters.

    Raises:
        CodecError: `codec.json`, no JSON; `codec.utf8`; `codec.field`, not the reader's shape;
            `codec.limit`, too long or nested too deeply.
    """
    size = len(memoryview(text) if isinstance(text, msgspec.Raw) else text)
    if size > FRAME_BYTES_MAX:
        raise CodecError("codec.limit", f"JSON is longer than {FRAME_BYTES_MAX} bytes")
    try:
        return reader.decode(text)
    except msgspec.ValidationError as error:
        read_json(_ANY, text)  # a wrong shape is met before wrong syntax after it
        place = _AT_ELEMENT.search(str(error))
        offset = _element_offset(text, int(place[1])) if place else 0
        raise CodecError("codec.field", str(error), offset=offset) from None
    except msgspec.DecodeError as error:
        place = _AT_BYTE.search(str(error))
        offset = int(place[1]) if place else size
        raise CodecError("codec.json", "not JSON, or it ends too early", offset=offset) from None
    except UnicodeError:
        raise CodecError("codec.utf8", "JSON is not UTF-8") from None
    except RecursionError:
        raise CodecError("codec.limit", "JSON is nested too deeply") from None


def text_of(value: list[object] | Text) -> str | msgspec.Raw:
    """The JSON text of what a codec is given: a text, or the array that a reader has made of it.

    Bytes are checked here, because a reader passes over what it skips.

    Raises:
        CodecError: `codec.utf8`; `codec.limit`, an array nested too deeply.
    """
    if isinstance(value, list):
        return write_json(value)
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise CodecError("codec.utf8", "JSON is not UTF-8", offset=error.start) from None


def write_json(value: object) -> str:
    """Write a value as JavaScript does: without spaces, and only escaped what must be.

    Raises:
        CodecError: `codec.utf8`, a string holds half a surrogate pair; `codec.limit`, nested too
            deeply.
    """
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeError:
        raise CodecError("codec.utf8", "a string has no UTF-8 form") from None
    except RecursionError:
        raise CodecError("codec.limit", "value is nested too deeply") from None


def whole(number: int | float, name: str) -> int:
    """The integer that a number is.

    Raises:
        CodecError: `codec.field`, it has a fraction.
    """
    if type(number) is int:
        return number
    if not float(number).is_integer():
        raise CodecError("codec.field", f"{name} is not an integer: {number}")
    return int(number)


def _element_offset(text: Text, nth: int) -> int:
    """Where an element of an array begins, in bytes."""
    source = text.encode() if isinstance(text, str) else bytes(text)
    line = source.decode("latin-1")
    at = line.index("[") + 1
    elements = msgspec.structs.astuple(_ELEMENTS.decode(source))
    for element in elements[: min(nth, _ELEMENTS_TOLD - 1)]:
        at = _skip(line, at) + len(memoryview(element))
    return _skip(line, at)


def _skip(line: str, at: int) -> int:
    between = _BETWEEN.match(line, at)
    return between.end() if between else at
