"""Tables that functions of an application make, and how its modules declare them.

    @rillnode.table(streams="sensors/*", dir="lake/hot")
    def hot(rows: DataFrame) -> DataFrame:
        return rows.where("temp > 30")

The function is called in the job of the sink that names the module, with PySpark's frame of rows
that are new. This module needs no Spark, so that applications declare tables wherever they run.
"""

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from rillnode.codecs.errors import ConfigError
from rillnode.node.config.rules import unfit_pattern

_ATTRIBUTE: Final = "__rillnode_table__"

_UNLOADED: Final = (
    ArithmeticError, AttributeError, ConfigError, ImportError, LookupError, NameError, OSError,
    SyntaxError, TypeError, ValueError,
)  # fmt: skip
"""What the import of an application's module raises."""

F = TypeVar("F", bound=Callable[[Any], Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFunction:
    """A table that a function makes.

    Attributes:
        name: what it is called.
        streams: patterns of the streams whose rows the function gets.
        dir: directory or URI of the table.
        of: the typed table that it gets rows of; empty for the one of the same streams, and where
            there is none for bronze.
        function: makes rows of the table of new rows.
    """

    name: str
    streams: tuple[str, ...]
    dir: str
    of: str
    function: Callable[[Any], Any]


def table(
    *,
    streams: str | Sequence[str] = "*",
    dir: str,  # noqa: A002 - as the key of a table is called
    of: str = "",
    name: str = "",
) -> Callable[[F], F]:
    """Declare that a function makes a table of new rows of streams.

    The function takes a PySpark `DataFrame` and returns another one. It is called for each batch,
    and again for the same rows when a batch is cut off; what it returns is in the table once. It
    sees the rows of a batch alone: what has to look at others is a view.

    Args:
        streams: a pattern of streams, or several. The function gets their rows of the typed table
            that is declared with these patterns, and where there is none their rows of bronze.
        dir: directory of the table, or its URL in an object store.
        of: the typed table that it gets rows of, by its name.
        name: what the table is called; left out, as the function.

    Raises:
        ConfigError: `table.function`, a pattern or the directory cannot be.
    """
    patterns = (streams,) if isinstance(streams, str) else tuple(streams)
    if not patterns or not dir:
        raise ConfigError(
            "table.function", "a table's function needs `dir` and a pattern of streams"
        )
    for one in patterns:
        for problem in unfit_pattern((), one):
            raise ConfigError("table.function", f"pattern {one!r}: {problem.text}")

    def declare(function: F) -> F:
        called = name or function.__name__
        declared = TableFunction(name=called, streams=patterns, dir=dir, of=of, function=function)
        setattr(function, _ATTRIBUTE, declared)
        return function

    return declare


def load_functions(module: str) -> list[TableFunction]:
    """The tables that a module declares.

    Raises:
        ConfigError: `table.module`, it cannot be imported, or declares none.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        # As of `python -m`, which starts the sink's job.
        sys.path.append(here)
    try:
        loaded = importlib.import_module(module)
    except _UNLOADED as error:
        text = f"the module {module} cannot be imported: {type(error).__name__}: {error}"
        raise ConfigError("table.module", f"{text}; is its directory in PYTHONPATH?") from error
    found = list(_declared(loaded))
    if not found:
        text = f"the module {module} has no function with the decorator rillnode.table"
        raise ConfigError("table.module", text)
    return found


def _declared(module: object) -> Iterator[TableFunction]:
    """The tables of a module, each once; not those that it has imported from another."""
    for value in vars(module).values():
        found = getattr(value, _ATTRIBUTE, None)
        if isinstance(found, TableFunction) and value.__module__ == getattr(module, "__name__", ""):
            yield found
