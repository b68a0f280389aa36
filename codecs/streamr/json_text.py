"""JSON texts from outside, read by a schema and written compactly.

A reader is a `msgspec` decoder: it takes the shape that a text must have, checks types and ranges
while it parses and skips what the shape does not name. Whatever a text holds, the outcome is a
value or a CodecError: wrong syntax, no UTF-8, nesting deeper than the interpreter's stack allows,
numbers out of range, halves of surrogate pairs.

Numbers are read as JavaScript has them: `1.0` is the integer 1, and integers end at 2**53 - 1.

The contents of messages are the publishers' own JSON, which only has to be what JavaScript reads:
`read_value`, `check_value`. One that is no text gets the text that JavaScript makes of it:
`javascript_text`.
"""

import json
import re
from decimal import Decimal
from math import inf, isfinite
from typing import Annotated, Any, Final, TypeVar

import msgspec

from rillnode.codecs.errors import CodecError
from rillnode.codecs.limits import FRAME_BYTES_MAX
from rillnode.codecs.streamr.limits import STREAMR_INTEGER_MAX, STREAMR_VALUE_CHARS_MAX

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
_VALUE: Final = msgspec.json.Decoder[Any](Any)
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

_HALF: Final = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_REPLACEMENT: Final = r"\\ufffd"
"""In place of halves of surrogate pairs, which are as long; also where a backslash that is itself
escaped comes before what looks like one, the text stays JSON, or none."""

_INDEX: Final = re.compile("0|[1-9][0-9]{0,9}")
_INDEX_MAX: Final = 2**32 - 2

_POINT_MIN: Final = -6
_POINT_MAX: Final = 21
"""Where a number's point may lie, in digits from the first on, to be written without exponent."""


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


def check_value(text: str) -> None:
    """Check that a text is JSON that JavaScript reads; faster than to read it.

    Raises:
        CodecError: as `read_json`.
    """
    try:
        read_json(_ANY, text)
    except CodecError as error:
        if error.code != "codec.json":
            raise
        read_json(_ANY, _HALF.sub(_REPLACEMENT, text))


def read_value(text: str) -> Any:
    """What a content says, as JavaScript reads it.

    That takes half of a surrogate pair where it is escaped, as it is in a text that was cut off
    within an emoji, and numbers that are too large for infinite.

    Raises:
        CodecError: as `read_json`.
    """
    try:
        return read_json(_VALUE, text)
    except CodecError as error:
        reason = error
    check_value(text)
    try:
        return json.loads(text, parse_int=_integer)
    except (ValueError, RecursionError):
        raise reason from None


def javascript_text(text: str) -> str:
    """What JavaScript writes of what it reads in a JSON text: `JSON.stringify(JSON.parse(text))`.

    Raises:
        CodecError: `codec.json`; `codec.utf8`; `codec.limit`, the text or what it becomes is longer
            than STREAMR_VALUE_CHARS_MAX, or it is nested too deeply.

    Source: ECMA-262, JSON.stringify, Number::toString and OrdinaryOwnPropertyKeys.
    """
    _check_length(text)
    try:
        written = _written(json.loads(text, parse_int=float, parse_constant=_refuse))
        _check_length(written)
        return written
    except RecursionError:
        raise CodecError("codec.limit", "JSON is nested too deeply") from None
    except ValueError:
        raise CodecError("codec.json", "not JSON, or it ends too early") from None


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


def _check_length(text: str) -> None:
    if len(text) > STREAMR_VALUE_CHARS_MAX:
        reason = f"a JSON value and its text have at most {STREAMR_VALUE_CHARS_MAX:,} characters"
        raise CodecError("codec.limit", reason)


def _integer(digits: str) -> int | float:
    """An integer; infinite where it has more digits than Python reads, long beyond JavaScript."""
    try:
        return int(digits)
    except ValueError:
        return -inf if digits.startswith("-") else inf


def _refuse(constant: str) -> float:
    """Refuse the names of numbers that JSON does not have, and `json` does."""
    raise ValueError(constant)


def _written(value: object) -> str:
    # A level takes one frame of the stack: what is within it is written by `map` alone.
    match value:
        case dict():
            names = [name for name in value if not _is_index(name)]
            if len(names) < len(value):  # those come first, in their order
                names = [*sorted(value.keys() - {*names}, key=int), *names]
            texts = [*map(_written, map(value.get, names))]
            members = zip(map(write_json, names), texts, strict=True)
            return f"{{{','.join(map(':'.join, members))}}}"
        case list():
            texts = [*map(_written, value)]
            return f"[{','.join(texts)}]"
        case float():
            return _number(value)
        case _:
            return write_json(value)


def _is_index(name: str) -> bool:
    """Whether JavaScript holds a member's name for the index of an array."""
    return _INDEX.fullmatch(name) is not None and int(name) <= _INDEX_MAX


def _number(value: float) -> str:
    """A number as JavaScript writes it: with the fewest digits that tell it from its neighbours."""
    if not isfinite(value):
        return "null"
    if value.is_integer() and abs(value) <= STREAMR_INTEGER_MAX:
        return str(int(value))
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    written = "".join(map(str, digits))
    point = len(written) + exponent
    minus = "-" * sign
    if not _POINT_MIN < point <= _POINT_MAX:
        fraction = f".{written[1:]}" if written[1:] else ""
        return f"{minus}{written[0]}{fraction}e{point - 1:+d}"
    if exponent >= 0:
        return minus + written + "0" * exponent
    if point > 0:
        return f"{minus}{written[:point]}.{written[point:]}"
    return f"{minus}0.{'0' * -point}{written}"
