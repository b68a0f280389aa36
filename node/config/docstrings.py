"""Reads what the docstrings of tables tell users: of a table, and of each of its keys."""

import inspect
import textwrap


def summary_of(struct: type) -> str:
    """What a table is, for users."""
    return without_attributes(struct.__doc__ or "")


def without_attributes(text: str) -> str:
    """A docstring as far as it is of the whole table."""
    return inspect.cleandoc(text).partition("\n\nAttributes:")[0]


def descriptions_of(struct: type) -> dict[str, str]:
    """The texts under "Attributes" of a struct and of those that it extends."""
    found: dict[str, str] = {}
    for cls in reversed(struct.__mro__):
        listed = inspect.cleandoc(cls.__doc__ or "").partition("Attributes:\n")[2]
        name = ""
        for line in textwrap.dedent(listed).splitlines():
            if line.startswith(" "):
                found[name] += " " + line.strip()
            elif line:
                name, _, text = line.partition(": ")
                found[name] = text
    return found
