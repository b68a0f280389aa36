"""Declares commands: one look for every help text, usage errors as exceptions."""

import argparse
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, NoReturn, Protocol, cast

from rillnode.codecs.errors import RequestError
from rillnode.codecs.times import Time, parse_time
from rillnode.node.cli.terminal import Terminal

Verb = Callable[[argparse.Namespace, Terminal], int | Awaitable[int | None] | None]
"""Carries out a command; returns the exit code, or nothing where it is 0."""

_COLUMNS: Final = 92
_NUMBER_MAX: Final = 2**64 - 1
_DIGITS_MAX: Final = len(str(_NUMBER_MAX))
_DIGITS_SHOWN: Final = 40


class UsageError(Exception):
    """A command line that cannot be understood; `command` is what to ask for help."""

    def __init__(self, command: str, text: str) -> None:
        super().__init__(text)
        self.command = command


class Told(Exception):
    """A text that was asked for in place of a command: a help, a version."""

    def __call__(self, _: argparse.Namespace, terminal: Terminal) -> None:
        """Write it, as a verb does."""
        terminal.write_text(str(self))


class Commands(Protocol):
    """A place where commands are added."""

    def add_parser(self, name: str, **options: Any) -> "Parser":
        """Add one command."""
        ...


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help of the same width on every terminal, with each option's value named once."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=_COLUMNS)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings:
            return super()._format_action_invocation(action)
        value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
        return ", ".join(action.option_strings) + value


class Parser(argparse.ArgumentParser):
    """A parser that raises UsageError instead of ending the process."""

    _shows_all_that_is_needed = False

    left_over = ""
    """What helps those who name more arguments than there are."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=HelpFormatter, allow_abbrev=False, **options)
        self._commands: dict[str, Parser] = {}

    def show_all_that_is_needed(self) -> None:
        """Have the usage name its arguments, and the options that it cannot do without."""
        self._shows_all_that_is_needed = True
        self.usage = f"{self.prog} [options]"

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        """Add an argument or an option."""
        action = super().add_argument(*names, **options)
        if self._shows_all_that_is_needed:
            needed = sorted(filter(_is_needed, self._actions), key=_is_option)
            self.usage = " ".join([self.prog, *map(_shown, needed), "[options]"])
        return action

    def add_commands(self, **options: Any) -> Commands:
        """Make room for commands below this one."""
        action = self.add_subparsers(required=True, prog=self.prog, **options)
        self._commands = cast(dict[str, Parser], action.choices)
        return cast(Commands, action)

    @property
    def commands(self) -> "Mapping[str, Parser]":
        """The commands right below this one, by name."""
        return self._commands

    @property
    def actions(self) -> Sequence[argparse.Action]:
        """Its options and arguments, in the order of the help."""
        return self._actions

    def walk(self) -> "Iterator[Parser]":
        """This command and all below it, in the order of the help."""
        yield self
        for command in self._commands.values():
            yield from command.walk()

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Refuse what is none of the choices, and name the one that was meant, on every Python."""
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        below = [f"{name} {value}" for name, one in self._commands.items() if value in one.commands]
        meant = below or get_close_matches(str(value), choices, n=1)
        hint = f"did you mean {' or '.join(meant)}? " if meant else ""
        raise argparse.ArgumentError(
            action, f"invalid choice: {value!r}; {hint}choices: {', '.join(choices)}"
        )

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Any = None, namespace: Any = None
    ) -> Any:
        """As it is, but what is left over is refused by the command that it was given to."""
        parsed, left = super().parse_known_args(args, namespace)
        if left:
            self.error(f"unrecognized arguments: {' '.join(left)}{self._hint(left[0])}")
        for name, value in vars(parsed).items():
            if not is_text(value):
                self.error(f"argument {name.replace('_', '-')}: {value!r} has no UTF-8 form")
        return parsed, left

    def _hint(self, left: str) -> str:
        """What was meant by an argument that nothing takes."""
        known = [option for action in self._actions for option in action.option_strings]
        if left.endswith(".toml") and "--config" in known:
            return f"; did you mean -c {left}?"
        meant = get_close_matches(left.partition("=")[0], known, n=1)
        if meant:
            return f"; did you mean {meant[0]}?"
        return "" if left.startswith("-") or not self.left_over else f"; {self.left_over}"

    def print_help(self, file: Any = None) -> NoReturn:
        """Have the help written where all output is."""
        raise Told(self.format_help())

    def error(self, message: str) -> NoReturn:
        """Refuse the command line."""
        raise UsageError(self.prog, message)


def add_noun(commands: Commands, name: str, summary: str) -> Commands:
    """Add a noun, whose verbs are added to what is returned."""
    noun = commands.add_parser(name, help=summary, description=_sentence(summary))
    noun.usage = f"{noun.prog} VERB ..."
    return noun.add_commands(metavar="VERB", title="verbs")


def add_verb(
    commands: Commands,
    name: str,
    verb: Verb,
    *,
    summary: str,
    usage: str = "",
    text: str = "",
    examples: Sequence[str],
) -> Parser:
    """Add a command.

    Args:
        commands: where it is added.
        name: what the user types.
        verb: what carries it out.
        summary: one line, lower case, for the list of commands.
        usage: arguments after the name; empty: as they are added.
        text: paragraphs below the summary.
        examples: command lines.
    """
    about = _sentence(summary)
    lines = "".join(f"\n  {line}" for line in examples)
    parser = commands.add_parser(
        name,
        help=summary,
        description=f"{about}\n\n{text}" if text else about,
        epilog=f"examples:{lines}",
    )
    if usage:
        parser.usage = f"{parser.prog} {usage}"
    else:
        parser.show_all_that_is_needed()
    parser.set_defaults(verb=verb, command=parser.prog, asks_node=False)
    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="JSON lines, also on a terminal")
    output.add_argument("-q", "--quiet", action="store_true", help="no messages but errors")
    output.add_argument(
        "-v", "--verbose", action="store_true", help="debug log and traces on stderr"
    )
    return parser


def _sentence(summary: str) -> str:
    """A summary as a sentence; names in it, such as HTTP, stay as they are."""
    return f"{summary[0].upper()}{summary[1:]}."


def is_text(value: object) -> bool:
    """Whether a node can be sent it: an argument that is no UTF-8 is a path at most."""
    if isinstance(value, list | tuple):
        return all(map(is_text, cast(Sequence[object], value)))
    return not isinstance(value, str) or not any("\ud800" <= one <= "\udfff" for one in value)


def _is_option(action: argparse.Action) -> bool:
    return bool(action.option_strings)


def _is_needed(action: argparse.Action) -> bool:
    return action.required or not action.option_strings


def _shown(action: argparse.Action) -> str:
    """An argument as a usage has it."""
    name = str(action.metavar or action.dest)
    if action.option_strings:
        return f"{action.option_strings[-1]} {name}"
    return {"?": f"[{name}]", "+": f"{name} [{name} ...]"}.get(str(action.nargs), name)


def stream_name(text: str) -> str:
    """An argument that names a stream: an empty one has a node make a name up."""
    if not text:
        raise argparse.ArgumentTypeError("expected the name of a stream, not an empty one")
    return text


def whole_number(text: str) -> int:
    """An argument that is a number from 0 on."""
    return _number(text, least=0)


def positive_number(text: str) -> int:
    """An argument that is a number from 1 on."""
    return _number(text, least=1)


def _number(text: str, *, least: int) -> int:
    """A number that fits what is sent to nodes: an index, a count."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"expected a whole number from {least} on, not {text!r}")
    # Python itself refuses to read a number of thousands of digits.
    if len(text.lstrip("0")) > _DIGITS_MAX or (number := int(text)) > _NUMBER_MAX:
        shown = text if len(text) <= _DIGITS_SHOWN else f"one of {len(text):,} digits"
        raise argparse.ArgumentTypeError(
            f"expected a whole number from {least} to {_NUMBER_MAX}, not {shown}"
        )
    if number < least:
        raise argparse.ArgumentTypeError(f"expected a whole number from {least} on, not {text!r}")
    return number


def moment(text: str) -> Time:
    """An argument that is a time: so long ago, or ISO 8601 with a zone."""
    try:
        return parse_time(text)
    except RequestError as error:
        raise argparse.ArgumentTypeError(error.text) from None


def seconds(text: str) -> float:
    """An argument that is a time in seconds, over 0."""
    return _over_zero(text, "seconds")


def days(text: str) -> float:
    """An argument that is a time in days, over 0."""
    return _over_zero(text, "days")


def _over_zero(text: str, unit: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"expected a number of {unit} over 0, not {text!r}")
    return value
