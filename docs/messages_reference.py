"""The reference of the messages of rillnode's own link, made of `codecs/native.py`."""

import re
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

from msgspec import Struct

from python_reference import prose_of
from rillnode.codecs import native
from rillnode.codecs.bare import UInt

_ROW: Final = re.compile(r"^\| (rillnode_\w+(?:, rillnode_\w+)*) \| ([^|]+) \| ([^|]+) \|$", re.M)
_PROTOCOL: Final = re.compile(r"(?<![`\w])(rillnode_\w+)")
_CODE: Final = r"`\1`"
_BARE: Final[dict[Any, str]] = {UInt: "uint", str: "string", bytes: "data", bool: "bool"}

_TAGS: Final = {kind: tag for tag, kind in (native.REQUESTS | native.RESPONSES).items()}
_NAMED: Final = re.compile(rf"\b({'|'.join(kind.__name__ for kind in _TAGS)})\b(?!`)")


def page() -> str:
    """Every request and answer: what it is for, its fields as they are encoded, what these mean."""
    doc = native.__doc__ or ""
    rows = {
        tag: f"To {to}; answer: {_PROTOCOL.sub(_CODE, answer)}."
        for tags, to, answer in _ROW.findall(doc)
        for tag in tags.split(", ")
    }
    assert rows.keys() == native.REQUESTS.keys(), "the table of codecs/native.py is not complete"
    parts = [_INTRO, doc[doc.index("A stream is at") :], "\n## Requests\n"]
    for tag, kind in native.REQUESTS.items():
        parts += _message(f"`{tag}`", kind, rows[tag])
    parts.append("\n## Answers\n")
    for tag, answer in native.RESPONSES.items():
        parts += _message(f"`{tag}`", answer)
    parts.append("\n## What they are made of\n")
    for kind in _structs():
        parts += _message(kind.__name__, kind)
    return "".join(parts)


_INTRO: Final = """# Messages of rillnode's own link

The payload protocols of a [noise link](../protocols/noise-link.md#messages). Fields are encoded in
[BARE](https://baremessages.org), in the order in which they stand. Every request begins with a
`request_id` of the asker's choice, which its answer repeats.

"""


def _message(title: str, kind: type, more: str = "") -> Iterator[str]:
    hints = get_type_hints(kind, include_extras=True)
    fields = [f"{name}: {_bare(hint)}" for name, hint in hints.items()]
    yield f"\n### {title}\n\n"
    yield f"{more}\n\n" if more else ""
    yield "`{ " + ", ".join(fields) + " }`\n"
    yield _NAMED.sub(_tag, prose_of(kind))


def _tag(found: re.Match[str]) -> str:
    """A message by the name that it has on the wire."""
    return f"`{_TAGS[getattr(native, found[1])]}`"


def _bare(hint: Any) -> str:
    """A type as BARE's schemas write it."""
    if hint in _BARE:
        return _BARE[hint]
    if get_origin(hint) is list:
        return f"list<{_bare(get_args(hint)[0])}>"
    if isinstance(hint, UnionType) or NoneType in get_args(hint):
        (inner,) = (one for one in get_args(hint) if one is not NoneType)
        return f"optional<{_bare(inner)}>"
    return _TAGS.get(hint, str(hint.__name__))


def _structs() -> list[type]:
    """What messages have in their fields, in the order in which it is met."""
    found: dict[type, None] = {}

    def look(hint: Any) -> None:
        for inner in get_args(hint) or (hint,):
            if isinstance(inner, type) and issubclass(inner, Struct) and inner not in found:
                if inner not in _TAGS:
                    found[inner] = None
                for one in get_type_hints(inner, include_extras=True).values():
                    look(one)
            elif inner is not hint:
                look(inner)

    for kind in _TAGS:
        for hint in get_type_hints(kind, include_extras=True).values():
            look(hint)
    return list(found)
