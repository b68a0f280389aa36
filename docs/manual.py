"""Writes man pages of the command line: `python docs/manual.py DIRECTORY`, or `make man`.

They are made of the parser, as docs/reference/cli.md is: one page of the whole, and one of each
command with its verbs.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rillnode import __version__
from rillnode.node.cli.command import build_parser
from rillnode.node.cli.parsing import Parser

_ROOT_TEXT: Final = """\
Data goes to stdout, messages to stderr. On a terminal, data is shown as tables; elsewhere, or with
--json, it is one JSON object per line. Every error ends with the next step."""

_EXITS: Final = (
    "0 done, 1 failed, 2 usage or configuration, 3 no node in reach, 4 the node could not go on, "
    "130 interrupted."
)


def manual() -> dict[str, str]:
    """The pages, by the names of their files."""
    root = build_parser()
    pages = {"rillnode.1": _root_page(root)}
    for name, command in root.commands.items():
        pages[f"rillnode-{name}.1"] = "".join(_command_page(command))
    return pages


def _root_page(root: Parser) -> str:
    about, _, example = (root.description or "").partition("\n\n")
    parts = [_head("rillnode", about.partition(": ")[2].rstrip(".")), ".SH SYNOPSIS\n"]
    parts.append(f"{_text(root.usage or '')}\n.SH DESCRIPTION\n{_text(_ROOT_TEXT)}\n")
    parts += (".SH OPTIONS\n", *_options(root))
    parts += (
        ".SH COMMANDS\n",
        *(_entry(name, _summary(one)) for name, one in root.commands.items()),
    )
    parts.append(f".SH EXIT STATUS\n{_text(_EXITS)}\n.SH EXAMPLES\n{_block(example.strip())}")
    names = ", ".join(f"rillnode-{name}(1)" for name in root.commands)
    parts.append(f".SH SEE ALSO\n{_text(names)}\n")
    return "".join(parts)


def _command_page(command: Parser) -> Iterator[str]:
    yield _head(command.prog.replace(" ", "-"), _summary(command))
    yield f".SH SYNOPSIS\n{_text(command.usage or '')}\n.SH DESCRIPTION\n"
    if not command.commands:
        yield from _described(command)
    else:
        yield f"{_text(command.description or '')}\n.SH VERBS\n"
        for verb in command.commands.values():
            yield f".SS {_text(verb.usage or verb.prog)}\n"
            yield from _described(verb)
    yield ".SH SEE ALSO\n.BR rillnode (1)\n"


def _described(command: Parser) -> Iterator[str]:
    """The text, options and examples of one command that does something."""
    for paragraph in (command.description or "").split("\n\n"):
        yield f".PP\n{_text(paragraph)}\n"
    yield from _options(command)
    _, _, examples = (command.epilog or "").partition("\n")
    yield f".PP\nExamples:\n{_block(examples)}"


def _options(command: Parser) -> Iterator[str]:
    for action in command.actions:
        if action.metavar != "COMMAND":
            yield _entry(_spelt(action), str(action.help or "") % vars(action))


def _spelt(action: argparse.Action) -> str:
    if not action.option_strings:
        return str(action.metavar or action.dest)
    value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
    return ", ".join(action.option_strings) + value


def _summary(command: Parser) -> str:
    first = (command.description or "").partition("\n")[0].rstrip(".")
    return first[:1].lower() + first[1:]


def _head(name: str, summary: str) -> str:
    title = f'.TH "{name.upper()}" 1 "" "rillnode {__version__}" "rillnode"\n'
    return f"{title}.SH NAME\n{_text(name)} \\- {_text(summary)}\n"


def _entry(name: str, text: str) -> str:
    return f".TP\n\\fB{_text(name)}\\fR\n{_text(text)}\n"


def _block(text: str) -> str:
    return f".nf\n{_text(text)}\n.fi\n"


def _text(text: str) -> str:
    """A text of which troff takes nothing for its own."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    lines = (f"\\&{line}" if line.startswith(".") else line for line in escaped.split("\n"))
    return "\n".join(lines)


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, page in manual().items():
        (directory / name).write_text(page, encoding="utf-8")
