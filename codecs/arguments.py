"""Checks arguments of calls where Python would say nothing, or name no argument.

What cannot be is refused with `client.argument`, and the text begins with the argument's name. What
is of the right type and beyond a limit is refused by whoever knows the limit, with a code of its
own. A time that is no number, as a calculation may have as its result, would put a loop's timers
out of order: those of others would come late, or never.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeGuard, TypeVar, get_type_hints

from rillnode.codecs import native
from rillnode.codecs.bare import UInt
from rillnode.codecs.errors import RequestError
from rillnode.codecs.routing.routes import Address
from rillnode.codecs.varint import U64_MAX

T = TypeVar("T")

_WHOLE: Final = f"is a whole number from 0 to {U64_MAX}"


def refused(name: str, what: str, value: object) -> RequestError:
    """The error that says of an argument what it has to be.

    Its class is ArgumentError, which is a TypeError and a ValueError, too.
    """
    shown = repr(value)
    if len(shown) > 80:
        shown = f"{shown[:80]}..."
    return RequestError("client.argument", f"{name} {what}, not {shown}")


def whole(name: str, value: int) -> int:
    """A whole number, which may be negative; True and False are none.

    Raises:
        ArgumentError: it is none.
    """
    if not _is_whole(value):
        raise refused(name, "is a whole number", value)
    return value


def unsigned(name: str, value: int) -> int:
    """A whole number that can be sent, as an index is.

    Raises:
        ArgumentError: it is none.
    """
    if not is_index(value):
        raise refused(name, _WHOLE, value)
    return value


def seconds(name: str, value: float) -> float:
    """A number of seconds; an infinite one is a number, too.

    Raises:
        ArgumentError: it is none.
    """
    if not _is_time(value):
        raise refused(name, "is a number of seconds", value)
    return value


def timeout(name: str, value: float | None) -> float | None:
    """How many seconds to wait at most; None: for ever.

    Raises:
        ArgumentError: it is no number. An infinite one is.
    """
    if value is not None and not _is_time(value):
        raise refused(name, "is a number of seconds or None", value)
    return value


def text(name: str, value: object, *, as_utf8: bool = True) -> str:
    """A text, which has a form in UTF-8 unless it need not.

    Raises:
        ArgumentError: it is none.
    """
    if not isinstance(value, str) or (as_utf8 and not _is_text(value)):
        raise refused(name, "is a text", value)
    return value


def several(name: str, value: Iterable[T]) -> Iterable[T]:
    """Something to be iterated over that is neither text nor bytes, whose items would be others.

    Raises:
        ArgumentError: it is no such thing.
    """
    if isinstance(value, str | bytes | bytearray | memoryview) or not hasattr(value, "__iter__"):
        raise refused(name, "is a list, or iterable otherwise", value)
    return value


def called(name: str, value: object) -> None:
    """Something that can be called.

    Raises:
        ArgumentError: it cannot.
    """
    if not callable(value):
        raise refused(name, "is a function, or can be called otherwise", value)


def octets(name: str, value: object) -> None:
    """Bytes.

    Raises:
        ArgumentError: it is something else, such as a text that is to be encoded.
    """
    if not isinstance(value, bytes | bytearray | memoryview):
        text = f"{name} is bytes, not {type(value).__name__}"
        hint = ": encode it" if isinstance(value, str) else ""
        raise RequestError("client.argument", f"{text}{hint}")


def addresses(name: str, value: Any) -> None:
    """A route: a tuple, or list, of addresses.

    Raises:
        ArgumentError: it is none.
    """
    given: Sequence[object] | None = value if value.__class__ in (tuple, list) else None
    if given is None or not all(isinstance(one, Address) for one in given):
        raise refused(name, "is a route or the text of one", value)


def unsendable(request: native.Request, error: Exception) -> Exception:
    """Why a request cannot be encoded: the first of its fields that is not what it has to be.

    Fields are named as arguments are. Where none is found, it is the error that encoding has met.
    """
    hints: dict[str, Any] = get_type_hints(type(request), include_extras=True)
    for name in request.__struct_fields__:
        value = getattr(request, name)
        if hints[name] == UInt and not is_index(value):
            return refused(name, _WHOLE, value)
        if hints[name] is str and not _is_text(value):
            return refused(name, "is a text", value)
        if hints[name] == list[str]:
            for item in value:
                if not _is_text(item):
                    return refused(name, "are texts", item)
    return error


def is_index(value: object) -> bool:
    """Whether it is a whole number that can be sent, as an index is."""
    return _is_whole(value) and 0 <= value <= U64_MAX


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _is_text(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
