"""The reference of the Python interface, as Markdown: every field and method with an anchor.

Names come from `__all__`; types, defaults and docstrings are read from the source, so that they
stand here as they were written, whatever Python version makes of them.
"""

import inspect
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import cache
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import griffe

from rillnode.node.client.correspondent import Correspondent

_SIGNATURE_COLUMNS: Final = 96
_BOUNDS: Final = {"ge": "from", "gt": "over", "le": "to", "lt": "below"}
_FIELDS: Final = "\n| | type | default | |\n|---|---|---|---|\n"

Object = griffe.Class | griffe.Function | griffe.Attribute


def described(module: str, name: str, public: Mapping[type, str]) -> str:
    """What a module's name is: its docstring, then its fields, properties and methods.

    Args:
        module: the module.
        name: a name of its `__all__`.
        public: the classes that stand on the page, each with its heading; what another has from
            one of these is told there.
    """
    found: Any = getattr(import_module(module), name)
    title = f"\n### {module}.{name}\n"
    if not isinstance(found, type):
        if not inspect.isfunction(found):
            return f"{title}\n{_alias(found)}\n"
        source = _source(found.__module__)[found.__qualname__]
        return title + _function(source)
    shown = _Shown(found, public)
    return title + "".join(shown.parts(name))


class _Shown:
    """A class on the page."""

    def __init__(self, shown: type, public: Mapping[type, str]) -> None:
        line = [one for one in shown.__mro__ if one.__module__.startswith("rillnode")]
        self._shown = shown
        self._public = public
        self._bases = [one for one in line if one in public and one is not shown]
        self._own = [one for one in reversed(line) if not self._is_told(one)]
        self._members: dict[str, Object] = {}
        self._told: dict[str, str] = {}
        for one in self._own:
            for key, member in _source(one.__module__)[one.__qualname__].members.items():
                if not key.startswith("_") and not member.is_alias:
                    self._members[key] = member
            self._told |= _attributes(_source(one.__module__)[one.__qualname__])
        self._inherited: dict[str, str] = {}
        for one in (one for one in reversed(line) if self._is_told(one)):
            source = _source(one.__module__)[one.__qualname__]
            members = {key: member for key, member in source.members.items() if not member.is_alias}
            self._inherited |= {key: _first(member) for key, member in members.items()}
            self._inherited |= _attributes(source)

    def _is_told(self, one: type) -> bool:
        return any(issubclass(base, one) for base in self._bases)

    def parts(self, name: str) -> Iterator[str]:
        """Docstring, table of what it has, methods."""
        source = _source(self._shown.__module__)[self._shown.__qualname__]
        yield _prose(source, but=("attributes",))
        rows = "".join(self._rows(name))
        if rows:
            yield _FIELDS + rows
        for base in self._bases[:1]:
            anchor = self._public[base].replace(".", "").lower()
            yield f"\nWith all that [`{base.__name__}`](#{anchor}) has.\n"
        if tests := [key for key in self._members if key.startswith("test_")]:
            yield "\nIts tests:\n\n" + "".join(f"- {_sentence(key)}\n" for key in tests)
        for key, member in self._members.items():
            text = ""
            if key.startswith("test_"):
                continue  # its name says all
            if member.is_function and not _is_property(member):
                text = _function(member)
            elif hasattr(found := vars(self._shown).get(key), "__wrapped__"):
                text = _blocking(found, name.removeprefix("Blocking"))
            if text:
                yield f'\n<a id="{name}.{key}"></a>\n\n#### {name}.{key}\n{text}'

    def _rows(self, name: str) -> Iterator[str]:
        fields = {
            key: member
            for key, member in self._members.items()
            if _is_property(member) or (member.is_attribute and self._is_field(key, member))
        }
        for key in [*fields, *(one for one in self._told if one not in fields)]:
            member = fields.get(key)
            kind = _type(member)
            if key in self._inherited and _is_class_variable(member):
                continue  # the base tells of it
            text = self._told.get(key, "") or (_first(member) if member is not None else "")
            text = text or self._inherited.get(key, "")
            if not text and _is_class_variable(member) and not issubclass(self._shown, Enum):
                continue  # it is for rillnode's own code
            # What `__init__` sets a thing to is no default of it.
            made = isinstance(member, griffe.Attribute) and (
                member.annotation is None or member.labels == {"instance-attribute"}
            )
            default = _default(member) if not made or issubclass(self._shown, Enum) else ""
            anchor = f'<a id="{name}.{key}"></a>'
            yield f"| {anchor}`{key}` | {_code(kind)} | {_code(default)} | {_cell(text)} |\n"

    def _is_field(self, key: str, member: Object) -> bool:
        # A plain class sets many things in its `__init__` that are nobody's business.
        declared = any(key in vars(one).get("__annotations__", {}) for one in self._own)
        return declared or issubclass(self._shown, Enum) or key in self._told


def _sentence(test: str) -> str:
    """What the name of a test says."""
    return test.removeprefix("test_").replace("_", " ")


def prose_of(shown: type) -> str:
    """A class's docstring as Markdown."""
    return _prose(_source(shown.__module__)[shown.__qualname__])


@cache
def _source(module: str) -> griffe.Module:
    file = inspect.getsourcefile(import_module(module))
    assert file is not None
    code = Path(file).read_text(encoding="utf-8")
    return griffe.visit(module, filepath=Path(file), code=code)


def _is_property(member: Any) -> bool:
    return bool({"property", "cached"} & set(member.labels))


def _blocking(verb: Any, asynchronous: str) -> str:
    """A verb that is made of an asynchronous class's, with whose arguments and errors it blocks."""
    of = verb.__wrapped__
    owner = of.__qualname__.partition(".")[0]
    owner = asynchronous if owner == Correspondent.__name__ else owner
    source: Any = _source(of.__module__)[of.__qualname__]
    returns = verb.__annotations__["return"]
    is_face = returns is not of.__annotations__["return"]
    shown = str(getattr(returns, "__name__", returns)) if is_face else str(source.returns)
    return f"{_signature(source, shown)}\nSee [`{owner}.{of.__name__}`](#{owner}.{of.__name__}).\n"


def _is_class_variable(member: Any) -> bool:
    return isinstance(member, griffe.Attribute) and set(member.labels) == {"class-attribute"}


def _function(source: Any) -> str:
    prefix = "async " if "async" in source.labels else ""
    returns = "" if source.returns is None else str(source.returns)
    return _signature(source, returns, prefix) + _prose(source)


def _signature(source: Any, returns: str, prefix: str = "") -> str:
    result = f" -> {returns}" if returns else ""
    text = f"{prefix}{source.name}({', '.join(_parameters(source))}){result}"
    lines = textwrap.wrap(
        text, _SIGNATURE_COLUMNS, subsequent_indent="    ", break_on_hyphens=False
    )
    return "\n```text\n" + "\n".join(lines) + "\n```\n"


def _parameters(source: Any) -> Iterator[str]:
    """Those of a signature, as they are written, without `self`."""
    starred = False
    for one in source.parameters:
        if one.name in ("self", "cls"):
            continue
        kind = one.kind
        if kind is griffe.ParameterKind.var_positional:
            starred = True
        if kind is griffe.ParameterKind.keyword_only and not starred:
            starred = True
            yield "*"
        stars = {
            griffe.ParameterKind.var_positional: "*",
            griffe.ParameterKind.var_keyword: "**",
        }
        text = f"{stars.get(kind, '')}{one.name}"
        text += f": {one.annotation}" if one.annotation is not None else ""
        is_starred = kind in stars
        has_default = one.default is not None and not is_starred
        yield f"{text} = {_value(one.default, source)}" if has_default else text


def _value(expression: Any, source: Any) -> str:
    """A default as it is written, but for a constant what it is."""
    if not isinstance(expression, griffe.ExprName) or not expression.name.isupper():
        return str(expression)
    constant = vars(import_module(source.module.path))[expression.name]
    return f"{constant:_}" if isinstance(constant, int) else repr(constant)


def stood_for(public: Iterable[Any]) -> dict[str, str]:
    """The names in signatures and fields that stand for other types, and for which.

    Args:
        public: the classes and functions that are shown.
    """
    found: dict[str, str] = {}
    for one in public:
        if inspect.isfunction(one):
            found |= _aliases_of(_source(one.__module__)[one.__qualname__])
        for base in one.__mro__ if isinstance(one, type) else ():
            if base.__module__.startswith("rillnode"):
                for member in _source(base.__module__)[base.__qualname__].members.values():
                    if not member.name.startswith("_") and not member.is_alias:
                        found |= _aliases_of(member)
    return {name: what for name, what in sorted(found.items()) if not name.isupper()}


def _aliases_of(member: Any) -> dict[str, str]:
    kinds = [one.annotation for one in member.parameters] if member.is_function else []
    kinds.append(member.returns if member.is_function else getattr(member, "annotation", None))
    found: dict[str, str] = {}
    for kind in kinds:
        if isinstance(kind, griffe.Expr):
            for name in kind.iterate(flat=True):
                if isinstance(name, griffe.ExprName):
                    found |= _alias_of(name.canonical_path)
    return found


@cache
def _alias_of(path: str) -> dict[str, str]:
    """What a name stands for, and what the names in that do; nothing for classes."""
    module, _, name = path.rpartition(".")
    if not module.startswith("rillnode"):
        return {}
    try:
        source = _source(module)
    except (ImportError, TypeError):  # in a class, where it is its own; in a package without a file
        return {}
    member: Any = source.members.get(name)
    if member is None:
        return {}
    if member.is_alias:
        return _alias_of(member.target_path)
    expression = member.value if isinstance(member, griffe.Attribute) else None
    if not isinstance(expression, griffe.Expr) or "TypeVar" in str(expression):
        return {}
    found = {name: _joined(str(expression))}
    for inner in expression.iterate(flat=True):
        if isinstance(inner, griffe.ExprName):
            found |= _alias_of(inner.canonical_path)
    return found


def _prose(source: Any, but: tuple[str, ...] = ()) -> str:
    """A docstring as Markdown, without sections of some kinds."""
    parts: list[str] = []
    for section in _sections(source):
        kind = section.kind.value
        if kind in but:
            continue
        if kind == "text":
            parts.append(f"\n{section.value}\n")
        elif kind in ("parameters", "attributes"):
            parts.append("\n" + "".join(_item(f"`{one.name}`", one) for one in section.value))
        elif kind == "raises":
            rows = (_item(f"`{one.annotation}`", one) for one in section.value)
            parts.append("\nRaises:\n\n" + "".join(rows))
        elif kind in ("returns", "yields"):
            said = " ".join(map(_returned, section.value))
            parts.append(f"\nReturns: {_joined(said)}\n")
        else:  # a paragraph that begins with a title of its own
            parts.append(f"\n{section.title}: {_joined(section.value.contents)}\n")
    return "".join(parts)


def _returned(one: Any) -> str:
    """A sentence of what is returned, whose colon is no type's end: the signature has the type."""
    told = isinstance(one.annotation, str)
    return f"{one.annotation}: {one.description}" if told else str(one.description)


def _sections(source: Any) -> list[Any]:
    if source.docstring is None:
        return []
    return griffe.parse_google(source.docstring, warnings=False, returns_named_value=False)


def _attributes(source: Any) -> dict[str, str]:
    return {
        one.name: one.description
        for section in _sections(source)
        if section.kind.value == "attributes"
        for one in section.value
    }


def _first(member: Any) -> str:
    """What the text of a docstring says."""
    texts = [one.value for one in _sections(member) if one.kind.value == "text"]
    raised = [
        f"{one.annotation}: {one.description}"
        for section in _sections(member)
        if section.kind.value == "raises"
        for one in section.value
    ]
    return "\n\n".join([*texts, *(f"Raises {one}" for one in raised)])


def _type(member: Any) -> str:
    if member is None:
        return ""
    kind = member.returns if member.is_function else member.annotation
    return "" if kind is None else _shown(kind, member)


def _shown(expression: Any, source: Any) -> str:
    """An annotation, of which what is beside the type is told as far as it bounds a number."""
    if isinstance(expression, griffe.ExprSubscript) and str(expression.left) == "Annotated":
        inner: Any = expression.slice
        kind, *beside = inner.elements
        bounds = [
            f", {_BOUNDS[one.name]} {_value(one.value, source)}"
            for meta in beside if isinstance(meta, griffe.ExprCall)
            for one in meta.arguments
            if isinstance(one, griffe.ExprKeyword) and one.name in _BOUNDS
        ]  # fmt: skip
        return _shown(kind, source) + "".join(bounds)
    if isinstance(expression, griffe.ExprBinOp):
        sides = (expression.left, expression.right)
        return f" {expression.operator} ".join(_shown(side, source) for side in sides)
    return str(expression)


def _default(member: Any) -> str:
    if member is None or member.is_function or member.value is None:
        return ""
    value: Any = member.value
    if isinstance(value, griffe.ExprCall) and str(value.function) == "field":
        arguments: Any = value.arguments
        given = {one.name: one.value for one in arguments}  # a default or what makes one
        if "default_factory" in given:
            return f"{given['default_factory']}()"
        return str(given.get("default", ""))
    return _value(value, member)


def _item(name: str, one: Any) -> str:
    return f"- {name}: {_joined(one.description)}\n"


def _joined(text: str) -> str:
    return " ".join(text.split())


def _code(text: str) -> str:
    if "|" in text:  # readers of Markdown differ in what a backslash before it is, in code
        return f"<code>{escape(_joined(text), quote=False).replace('|', '&#124;')}</code>"
    return f"`{_joined(text)}`" if text else ""


def _cell(text: str) -> str:
    return _joined(text).replace("|", "\\|")


def _alias(found: object) -> str:
    """A type that stands for another."""
    return f"Stands for `{_joined(str(found))}`.".replace("|", "\\|")
