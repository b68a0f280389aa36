"""Reads and writes for a verb: data on stdout, messages on stderr.

Rows are tables on a terminal and JSON lines everywhere else. Texts from outside are made harmless
before a terminal sees them.
"""

import io
import json
import os
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final, TextIO, cast

from rillnode.codecs.errors import RillnodeError

Row = Mapping[str, Any]

_LINE_CHARS_MAX: Final = 1_000

_WHOLE_CHARS: Final = 24
"""Cells of a table up to this length are never folded: names, numbers, times."""


class OutputError(RillnodeError):
    """A verb's output cannot be written."""


@dataclass(slots=True)
class Terminal:
    """The three streams of a process, its environment, and how to write to them.

    Attributes:
        as_json: JSON lines even on a terminal.
        quiet: no messages but errors.
    """

    stdin: BinaryIO = field(default_factory=lambda: sys.stdin.buffer)
    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    as_json: bool = False
    quiet: bool = False

    @property
    def for_people(self) -> bool:
        """Whether data is shown to people rather than handed to a program."""
        return self.out.isatty() and not self.as_json

    def rows(self, rows: Sequence[Row], *, empty: str, title: str = "") -> None:
        """Write rows that have the same keys; `empty` tells people what to type next."""
        if not self.for_people:
            for row in rows:
                self.document(row)
        elif rows:
            self._table(rows, title)
        else:
            self.message(empty)

    def record(self, record: Row) -> None:
        """Write one object: its keys below each other for people, tables for lists of objects."""
        if not self.for_people:
            self.document(record)
            return
        inner = {key: value for key, value in record.items() if _is_table(value)}
        plain = dict(_flat("", {key: record[key] for key in record if key not in inner}))
        width = max(map(len, plain), default=0)
        for key, value in plain.items():
            self.write_text(f"{printable(key):<{width}}  {_shown_as(key, value)}\n")
        for key, value in inner.items():
            self._table(cast(Sequence[Row], value), key)

    def document(self, document: object) -> None:
        """Write one line of JSON."""
        import msgspec

        try:
            line = msgspec.json.encode(document, enc_hook=str)
        except UnicodeEncodeError:  # a path that is no UTF-8, in the form in which errors show it
            line = json.dumps(document, default=str).encode()
        self.write(line + b"\n")

    def write(self, data: bytes) -> None:
        """Write data as it is."""
        with _writing():
            cast(io.TextIOWrapper, self.out).buffer.write(data)

    def write_text(self, text: str) -> None:
        """Write a text as UTF-8, whatever the locale says."""
        self.write(text.encode(errors="replace"))

    def flush(self) -> None:
        """Hand on what was written."""
        with _writing():
            self.out.flush()

    def message(self, text: str) -> None:
        """Tell people something that is not data."""
        if not self.quiet:
            self.error(text)

    def error(self, text: str) -> None:
        """Tell people what went wrong, even when quiet."""
        self.err.write(text + "\n")
        self.err.flush()

    def _table(self, rows: Sequence[Row], title: str) -> None:
        # Only tables need rich, whose import takes longer than most verbs.
        from rich import box
        from rich.cells import cell_len
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(
            box=box.SIMPLE_HEAD,
            title=title or None,
            title_justify="left",
            show_edge=False,
            pad_edge=False,
            collapse_padding=True,
        )
        columns = list(rows[0])
        for column in columns:
            numeric = all(isinstance(row[column], int | float | None) for row in rows)
            heading = column.replace("_", " ")
            texts = [_shown_as(column, row[column]) for row in rows]
            is_whole = max(map(len, texts)) <= _WHOLE_CHARS
            table.add_column(
                heading,
                justify="right" if numeric else "left",
                overflow="fold",
                no_wrap=is_whole,
                # Else it counts as only as wide as its longest word, at the others' expense.
                min_width=max(map(cell_len, (heading, *texts))) if is_whole else None,
            )
        for row in rows:
            table.add_row(*(Text(_shown_as(column, row[column])) for column in columns))
        self.flush()
        console = Console(file=self.out, highlight=False, _environ=self.environ)
        # Too many columns for the terminal make long lines, not columns of single letters.
        unbounded = console.options.update(max_width=_LINE_CHARS_MAX)
        console.width = max(console.width, console.measure(table, options=unbounded).minimum)
        with console.capture() as drawn:
            console.print(table)
        self.write_text(drawn.get())


@contextmanager
def _writing() -> Generator[None]:
    """Tell of an output that takes no more, but leave a closed pipe to who carries a verb out."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError("output.failed", f"cannot write to stdout: {error.strerror}") from error


def printable(text: str) -> str:
    """A text whose control characters are spelt out, so that a terminal does not obey them."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


def shown(value: object) -> str:
    """A value as people read it."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.6g}"
        case list() | tuple():
            return ", ".join(map(shown, cast(Sequence[object], value))) or "-"
        case dict():
            pairs = cast(Mapping[str, object], value).items()
            return ", ".join(f"{printable(key)} {shown(one)}" for key, one in pairs) or "-"
        case _:
            return printable(str(value))


def _shown_as(name: str, value: object) -> str:
    """A value of a name as people read it; ids of processes as other commands take them."""
    return shown(value) if name.rpartition(".")[2] != "pid" else printable(str(value or "-"))


def _is_table(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(row, dict) for row in cast(list[object], value or [None])
    )


def _flat(prefix: str, record: Row) -> Sequence[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for key, value in record.items():
        if isinstance(value, dict) and value:
            found.extend(_flat(f"{prefix}{key}.", cast(Row, value)))
        else:
            found.append((prefix + key, cast(object, value)))
    return found
