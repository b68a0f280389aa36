"""Finds the line of each key of a TOML text, for error messages.

The standard library's reader keeps no positions. This one finds the lines of table headers and of
keys at the start of a line; a key inside an inline table has the line of that table. It reads
only texts that the standard library has accepted.
"""

import re

from rillnode.node.config.paths import KeyPath

_HEADER = re.compile(r"\s*(\[\[?)([^\[\]]+)\]")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")
_TOKEN = re.compile(
    r'"""|\'\'\'|"(?:\\.|[^"\\])*"|\'[^\']*\'|#.*|[\[\]]'  # strings, comments, brackets
)


def key_lines(text: str) -> dict[KeyPath, int]:
    """Line number, from 1, of every table and key found."""
    lines: dict[KeyPath, int] = {}
    table: KeyPath = ()
    counts: dict[KeyPath, int] = {}
    quote, depth = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        start = 0
        if not quote and depth == 0:
            header = _HEADER.match(line)
            if header and (names := _parts(header[2])):
                table = _table(names, header[1] == "[[", counts)
                lines[table] = number
                if header[1] == "[[":
                    lines.setdefault(table[:-1], number)
                continue
            if key := _KEY.match(line):
                lines[table + _parts(key[1])] = number
                start = key.end()
        quote, depth = _skip_value(line, start, quote, depth)
    return lines


def line_of(path: KeyPath, lines: dict[KeyPath, int]) -> int | None:
    """Line of a key, or of the nearest table around it."""
    while path:
        if path in lines:
            return lines[path]
        path = path[:-1]
    return None


def _parts(text: str) -> KeyPath:
    return tuple(part.strip("\"'") for part in _PART.findall(text))


def _table(names: KeyPath, is_item: bool, counts: dict[KeyPath, int]) -> KeyPath:
    path: KeyPath = ()
    for name in names[:-1]:
        path = (*path, name)
        if path in counts:
            path = (*path, counts[path] - 1)
    path = (*path, names[-1])
    if not is_item:
        return path
    counts[path] = counts.get(path, 0) + 1
    return (*path, counts[path] - 1)


def _skip_value(line: str, start: int, quote: str, depth: int) -> tuple[str, int]:
    """The open triple quote and the open brackets after a line."""
    while start < len(line):
        if quote:
            end = line.find(quote, start)
            if end < 0:
                return quote, depth
            quote, start = "", end + 3
            continue
        token = _TOKEN.search(line, start)
        if not token:
            break
        start = token.end()
        if token[0] in ('"""', "'''"):
            quote = token[0]
        elif token[0] == "[":
            depth += 1
        elif token[0] == "]":
            depth -= 1
    return quote, depth
