"""Conditions on entries, as `mag > 5 and not (place.country = 'CL' or $key = 'test')`.

    condition  = term {"or" term}          term = factor {"and" factor}
    factor     = "not" factor | "(" condition ")" | path [operator literal]
    operator   = "=" | "==" | "!=" | "<" | "<=" | ">" | ">="
    literal    = a number, text in single or double quotes, true, false or null
    path       = name {"." name | "[" number "]" | "[" text "]"}

A path leads into the entry's data, which is JSON, and may begin with `$`, as in `$.mag` or `$[0]`;
`$key` is the entry's key and `$headers.name` a header, as texts. A path alone holds where there is
something that is neither null nor false. A comparison holds only where there is something of the
literal's kind, but `!=` also where it is of another; so `not mag > 5` holds where there is no `mag`
and `mag <= 5` does not. Data that is no JSON has no fields.

Conditions come from outside: their length and depth are bounded, and with them the work that one
is for an entry.
"""

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn, cast

import msgspec

from rillnode.codecs.entries import Entry
from rillnode.codecs.errors import CodecError, RequestError
from rillnode.codecs.limits import WHERE_CHARS_MAX, WHERE_DEPTH_MAX

_Test = Callable[[Any, Entry], bool]
"""Whether an entry meets a condition; takes what its data holds, too."""

_Get = Callable[[Any, Entry], Any]
"""What a path leads to, or `_MISSING`."""

_MISSING: Final = object()

_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NAMED: Final = {"true": True, "false": False, "null": None}
_KEYWORDS: Final = frozenset(("and", "or", "not", *_NAMED))
_NUMBERS: Final[frozenset[type]] = frozenset((int, float))

_TEXT: Final = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_TOKEN: Final = re.compile(
    rf"""(?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?![\w.])
    |(?P<text>{_TEXT})
    |(?P<operator>[=!]=|<=?|>=?|=)
    |(?P<bracket>[()])
    |(?P<path>(?:[^\W\d]|\$)[\w$-]*(?:\.[\w$-]+|\[[0-9]{{1,9}}\]|\[(?:{_TEXT})\])*)""",
    re.VERBOSE,
)
_STEP: Final = re.compile(rf"\.?([\w$-]+)|\[([0-9]+)\]|\[({_TEXT})\]")
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


class Where:
    """A condition on entries, read from a text.

    Attributes:
        text: as it was given.
        steps: what it looks at in an entry, at most: names of paths, each counted.

    Raises:
        RequestError: the text is no condition; `offset` in its context is the character at which
            that shows. `where.length`, it has more than 1,024 characters; `where.depth`, it is
            nested more than 16 deep; else `where.syntax`.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        parser = _Parser(text)
        self._test = parser.condition()
        self._needs_document = parser.needs_document
        self.steps = parser.steps

    def __repr__(self) -> str:
        return f"Where({self.text!r})"

    def matches(self, entry: Entry) -> bool:
        """Whether an entry meets the condition."""
        return self._test(_document(entry.data) if self._needs_document else _MISSING, entry)


class _Parser:
    """Reads one condition, from left to right, and makes what tests it."""

    def __init__(self, text: str) -> None:
        if len(text) > WHERE_CHARS_MAX:
            said = f"a condition has at most {WHERE_CHARS_MAX:,} characters, not {len(text):,}"
            raise RequestError("where.length", said, offset=WHERE_CHARS_MAX)
        self._text = text
        self._depth = self._end = self.steps = 0
        self.needs_document = False
        self._next()

    def condition(self) -> _Test:
        """The whole condition."""
        test = self._either()
        if self._kind:
            self._fail("and, or, or the end")
        return test

    def _next(self) -> None:
        """Go on to the next token; kind "" is the end."""
        rest = self._text[self._end :]
        self._at = len(self._text) - len(rest.lstrip())
        found = _TOKEN.match(self._text, self._at)
        if found is not None:
            self._kind, self._token, self._end = str(found.lastgroup), found[0], found.end()
            return
        self._kind = self._token = ""
        if self._at < len(self._text):
            self._fail("a path, a value, an operator or a bracket")

    def _either(self) -> _Test:
        tests = [self._all()]
        while self._takes("or"):
            tests.append(self._all())
        if len(tests) == 1:
            return tests[0]
        return lambda document, entry: any(test(document, entry) for test in tests)

    def _all(self) -> _Test:
        tests = [self._factor()]
        while self._takes("and"):
            tests.append(self._factor())
        if len(tests) == 1:
            return tests[0]
        return lambda document, entry: all(test(document, entry) for test in tests)

    def _factor(self) -> _Test:
        self._depth += 1
        if self._depth > WHERE_DEPTH_MAX:
            self._fail_with("where.depth", f"a condition is at most {WHERE_DEPTH_MAX} levels deep")
        test = self._one()
        self._depth -= 1
        return test

    def _one(self) -> _Test:
        if self._takes("not"):
            test = self._factor()
            return lambda document, entry: not test(document, entry)
        if self._sees("("):
            self._next()
            test = self._either()
            if not self._sees(")"):
                self._fail("and, or, or )")
            self._next()
            return test
        if not self._is_an("path") or self._token.lower() in _KEYWORDS:
            self._fail("a path")
        get = self._path()
        if not self._is_an("operator"):
            return lambda document, entry: _is_something(get(document, entry))
        name = self._token
        self._next()
        return _comparison(get, name, self._literal())

    def _path(self) -> _Get:
        steps = [
            int(number) if number else _unquoted(text) if text else name
            for name, number, text in _STEP.findall(self._token)
        ]
        self._next()
        self.steps += len(steps)
        match steps:
            case ["$key"]:
                return _key
            case ["$headers", str() as header]:
                return lambda _, entry: _header(entry, header)
            case ["$", *steps]:
                pass
            case _:
                pass
        self.needs_document = True
        if len(steps) == 1:
            (step,) = steps
            return lambda document, _: _inner(document, step)
        return lambda document, _: _at(document, steps)

    def _literal(self) -> Any:
        kind, token = self._kind, self._token
        value: Any
        if kind == "number":
            value = float(token) if set(token) & set(".eE") else int(token)
        elif kind == "text":
            value = _unquoted(token)
        elif kind == "path" and token.lower() in _NAMED:
            value = _NAMED[token.lower()]
        else:
            self._fail("a number, a text in quotes, true, false or null")
        self._next()
        return value

    def _sees(self, token: str) -> bool:
        return self._token == token

    def _is_an(self, kind: str) -> bool:
        return self._kind == kind

    def _takes(self, word: str) -> bool:
        """Whether this word comes next; it is taken then."""
        if self._kind != "path" or self._token.lower() != word:
            return False
        self._next()
        return True

    def _fail(self, expected: str) -> NoReturn:
        rest = self._text[self._at : self._at + 16]
        self._fail_with(
            "where.syntax",
            f"expected {expected}, not {rest!r}"
            if rest
            else (f"expected {expected}, where it ends"),
        )

    def _fail_with(self, code: str, text: str) -> NoReturn:
        at = self._at
        raise RequestError(code, f"condition, character {at + 1}: {text}", offset=at)


def _document(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _MISSING


def _comparison(get: _Get, name: str, literal: Any) -> _Test:
    holds = _OPERATORS[name]
    kind: type[object] = literal.__class__
    kinds = _NUMBERS if kind in _NUMBERS else frozenset[type]((kind,))
    if name == "!=":

        def differs(document: Any, entry: Entry) -> bool:
            value = get(document, entry)
            return value is not _MISSING and (type(value) not in kinds or value != literal)

        return differs
    if name not in ("=", "==") and kinds not in (_NUMBERS, {str}):
        return lambda _, __: False  # true, false and null have no order

    def compares(document: Any, entry: Entry) -> bool:
        value = get(document, entry)
        return type(value) in kinds and holds(value, literal)

    return compares


def _is_something(value: Any) -> bool:
    return value is not _MISSING and value is not None and value is not False


def _at(value: Any, steps: Sequence[str | int]) -> Any:
    for step in steps:
        value = _inner(value, step)
    return value


def _inner(value: Any, step: str | int) -> Any:
    if isinstance(step, str):
        fields = cast(dict[str, Any], value) if isinstance(value, dict) else {}
        return fields.get(step, _MISSING)
    items = cast(list[object], value) if isinstance(value, list) else []
    return items[step] if step < len(items) else _MISSING


def _key(_: Any, entry: Entry) -> Any:
    key = entry.key
    return _MISSING if key is None else key.decode(errors="replace")


def _header(entry: Entry, name: str) -> Any:
    try:
        value = entry.headers.get(name)
    except CodecError:
        return _MISSING
    return _MISSING if value is None else value.decode(errors="replace")


def _unquoted(text: str) -> str:
    return _ESCAPE.sub(r"\1", text[1:-1])
