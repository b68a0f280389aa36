"""`rillnode completion`: completes command lines in shells, from the parser."""

import argparse
import shlex
from collections.abc import Callable
from typing import Final

from rillnode.node.cli.parsing import Commands, Parser, add_verb
from rillnode.node.cli.terminal import Terminal


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_verb(
        commands, "completion", completion,
        summary="print a script that lets a shell complete commands and options",
        examples=[
            "rillnode completion bash > ~/.local/share/bash-completion/completions/rillnode",
            'rillnode completion zsh > "${fpath[1]}/_rillnode"',
            "rillnode completion fish > ~/.config/fish/completions/rillnode.fish",
        ],
    )  # fmt: skip
    parser.add_argument("shell", choices=list(_SCRIPTS), metavar="SHELL", help="bash, zsh or fish")


def completion(args: argparse.Namespace, terminal: Terminal) -> None:
    """Print the script of one shell."""
    terminal.write_text(_SCRIPTS[args.shell](args.root))


_BASH: Final = """\
# bash completion for rillnode; made by `rillnode completion bash`.
_rillnode() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} path=rillnode index words=
  for ((index = 1; index < COMP_CWORD; index++)); do
    case "$path ${{COMP_WORDS[index]}}" in
      {commands}) path+=" ${{COMP_WORDS[index]}}" ;;
    esac
  done
  case $path in
{cases}
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}}
complete -o default -F _rillnode rillnode
"""

_ZSH: Final = """\
#compdef rillnode
# zsh completion for rillnode; made by `rillnode completion zsh`.
_rillnode() {{
  local path_=rillnode word
  local -a offered
  for word in ${{words[2,CURRENT-1]}}; do
    case "$path_ $word" in
      ({commands}) path_+=" $word" ;;
    esac
  done
  case $path_ in
{cases}
  esac
  _describe rillnode offered || _files
}}
if [ "${{funcstack[1]}}" = _rillnode ]; then
  _rillnode "$@" # a file in $fpath, loaded when it is first needed
else
  compdef _rillnode rillnode
fi
"""


def _bash(root: Parser) -> str:
    cases = "\n".join(
        f"    {shlex.quote(parser.prog)}) words={shlex.quote(' '.join(_words(parser)))} ;;"
        for parser in root.walk()
    )
    return _BASH.format(commands=_patterns(root), cases=cases)


def _zsh(root: Parser) -> str:
    offers = {parser.prog: " ".join(map(_described, _offers(parser))) for parser in root.walk()}
    cases = "\n".join(
        f"    ({shlex.quote(prog)}) offered=({words}) ;;" for prog, words in offers.items()
    )
    return _ZSH.format(commands=_patterns(root), cases=cases)


def _described(offer: tuple[str, str]) -> str:
    """A word and its help as `_describe` takes them: with a colon between."""
    return shlex.quote(":".join(text.replace(":", "\\:") for text in offer))


def _fish(root: Parser) -> str:
    lines = ["# fish completion for rillnode; made by `rillnode completion fish`."]
    for parser in root.walk():
        # The whole path must stand on the line, and none of the commands below it.
        path, below = parser.prog.split()[1:], " ".join(parser.commands)
        tests = [f"__fish_seen_subcommand_from {word}" for word in path]
        tests += [f"not __fish_seen_subcommand_from {below}"] if below else []
        condition = f"-n {shlex.quote('; and '.join(tests))}" if tests else ""
        for word, text in _offers(parser):
            name = word.lstrip("-")
            kind = "-f -a" if name == word else "-l" if word.startswith("--") else "-s"
            lines.append(f"complete -c rillnode {condition} {kind} {name} -d {shlex.quote(text)}")
    return "\n".join(lines) + "\n"


def _patterns(root: Parser) -> str:
    """Every command with its path, as a pattern of `case`."""
    return "|".join(shlex.quote(parser.prog) for parser in root.walk() if parser is not root)


def _words(parser: Parser) -> list[str]:
    return [word for word, _ in _offers(parser)]


def _offers(parser: Parser) -> list[tuple[str, str]]:
    """What may come after a command: commands below it, else its options; each with its help."""
    if parser.commands:
        return [(name, _first_line(below)) for name, below in parser.commands.items()]
    return [
        (word, action.help or "")
        for action in parser.actions
        for word in (action.option_strings or map(str, action.choices or ()))
    ]


def _first_line(parser: Parser) -> str:
    return (parser.description or "").partition("\n")[0]


_SCRIPTS: Final[dict[str, Callable[[Parser], str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
