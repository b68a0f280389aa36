"""Writes the reference pages that are made from the code: `python docs/generate.py`."""

import inspect
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

import msgspec

import actors_reference
import messages_reference
from error_codes import ErrorCode, error_codes
from python_reference import described, stood_for
from rillnode.codecs.errors import ConfigError, RequestError
from rillnode.codecs.next_steps import step_of
from rillnode.node.cli.command import build_parser
from rillnode.node.cli.failures import Exit
from rillnode.node.config.describe import Key, Table, tables, toml_value
from rillnode.node.config.file_type import table_type
from rillnode.node.http.console import COMMANDS
from rillnode.node.http.listener import PATHS
from rillnode.node.installed import SCENARIOS, TABLES, installed, load
from rillnode.node.metrics import every_metric

# The planted mistakes lie with the tests, those of a plug-in in its folder.
_TESTS: Final = Path(__file__).parent.parent / "tests"
sys.path += [str(one) for one in (_TESTS / "support", *sorted(_TESTS.glob("*/support")))]

REFERENCE: Final = Path(__file__).parent / "reference"
_MADE: Final = "<!-- Made by docs/generate.py; change the code, not this page. -->\n"

_CONFIG_INTRO: Final = """# Configuration: `node.toml`

A node reads one TOML file. Unknown keys are errors, and every error names file, line and key. A
value that is set in several places is taken from the first of:

1. `--set key=value` on the command line, such as `--set noise.listen=127.0.0.1:0`;
2. the environment: `RILLNODE__NOISE__LISTEN`, two underscores between the parts of a key;
3. the file;
4. the default.

Items of a list of tables are numbered from 0: `sink.spark[0].trigger_seconds` or
`RILLNODE__SINK__SPARK__0__TRIGGER_SECONDS`. Relative paths are relative to the file's directory.
Secret keys are in files of their own, with mode 0600.

`rillnode config check` checks a file, `rillnode config show` shows what is in effect and where it
comes from, `rillnode config schema` prints a JSON schema for editors.
"""

_CLI_INTRO: Final = """# Command line

Data goes to stdout, messages to stderr. On a terminal, data is shown as tables; elsewhere, or with
`--json`, it is one JSON object per line. `NO_COLOR` is respected. Every error ends
with the next step and, unless the command line is wrong or the system refuses something, has a
[code](errors.md). `make man` writes the same as man pages.

| exit code | meaning |
|---|---|
"""

_EXITS: Final = {
    Exit.OK: "done; a running node was drained",
    Exit.FAILED: "the operation failed",
    Exit.USAGE: "the command line or the configuration is wrong",
    Exit.UNREACHABLE: "the node cannot be reached, or does not know the key",
    Exit.NODE_FAILED: "`rillnode run`: the node cannot go on; start it again",
    Exit.INTERRUPTED: "interrupted by the user",
}

_SHARED_BY: Final = 5
"""Commands that must have a section of the help in common for it to be said once."""
_GROUPS: Final = {"output", "configuration", "node"}
_HELP: Final = "options: -h, --help show this help message and exit"

_CLI_SHARED: Final = """
## Options of many commands

`-h`, `--help` of every command shows its help. The last line of a command below names the groups
of options that it has beside its own.
"""


def config_page() -> str:
    """The reference of the configuration."""
    return "".join((_MADE, _CONFIG_INTRO, *_described_tables(tables())))


def _described_tables(found: list[Table]) -> Iterator[str]:
    for table in found:
        title = f"`{table.header}`" if table.header else "Top-level keys"
        yield f"\n## {title}\n\n{table.summary}\n"
        yield "\n| key | value | default | |\n|---|---|---|---|\n"
        yield from map(_config_row, table.keys)


def cli_page() -> str:
    """The reference of the command line; options that many commands have are said once."""
    parts = [_MADE, _CLI_INTRO]
    parts += [f"| {code.value} | {text} |\n" for code, text in _EXITS.items()]
    helps = {one.prog: one.format_help().strip().split("\n\n") for one in build_parser().walk()}
    counts = Counter(" ".join(section.split()) for found in helps.values() for section in found)
    shared: dict[str, str] = {}
    commands: list[str] = []
    for prog, found in helps.items():
        own: list[str] = []
        others: list[str] = []
        for section in found:
            key = " ".join(section.split())
            title = section.partition(":\n")[0]
            if title in _GROUPS and counts[key] >= _SHARED_BY:
                shared.setdefault(key, section)
                others.append(title)
            elif key != _HELP:
                own.append(section)
        if others:
            own.append(f"and options: {', '.join(others)}")
        commands.append(f"\n## {prog}\n\n```text\n{_joined(own)}\n```\n")
    parts.append(f"{_CLI_SHARED}\n```text\n{_joined(shared.values())}\n```\n")
    return "".join((*parts, *commands))


def _joined(sections: Iterable[str]) -> str:
    """Sections of a help text, without the option for help."""
    lines = "\n\n".join(sections).splitlines()
    return "\n".join(line for line in lines if not line.startswith("  -h, --help"))


_METRICS_INTRO: Final = """# Metrics

`/metrics` of the `http` listener, in Prometheus' text format. Counters begin at 0 when the node
starts. `actor` is a class; `transport` and `protocol` are names of listeners. Streams, and
consumers' saved positions, have series of their own up to `[metrics] streams_max`, the first by
name. The usual `process_*` metrics are there too.

How to collect them: [monitoring](../how-to/monitoring.md).

| metric | kind | labels | |
|---|---|---|---|
"""

_HTTP_INTRO: Final = """# HTTP

What the `http` listener serves. Nothing is cached, and nothing changes the node but [commands in an
admin session](#commands). Documents are JSON objects; later versions may add keys. Names of streams
in paths are percent-encoded, slashes included. Errors are JSON objects with `status`,
[`code`](errors.md), `text`, and `next`, what helps. Plug-ins may add documents below
`/v1/plugins/NAME/`; `/v1` lists them, too.

Data, as opposed to figures, is for programs of the same machine, or for clients that send the token
of `[http] token_file` ([security](../explanation/security.md#the-http-listener)).

| path | tells | data |
|---|---|---|
"""


def metrics_page() -> str:
    """The reference of the metrics."""
    rows = [
        f"| `{one.name}` | {one.kind} | {', '.join(f'`{label}`' for label in one.labels) or '-'} "
        f"| {one.text} |\n"
        for one in every_metric()
    ]
    return "".join((_MADE, _METRICS_INTRO, *rows))


def http_page() -> str:
    """The reference of the `http` listener."""
    rows = [f"| `{one.path}` | {one.text} | {'yes' if one.is_data else ''} |\n" for one in PATHS]
    return "".join((_MADE, _HTTP_INTRO, *rows, _COMMANDS_INTRO, *map(_command_row, COMMANDS)))


_COMMANDS_INTRO: Final = """
## Commands

What `POST /v1/console` takes: a JSON object with `do` and what belongs to it; what may be left out
is in brackets. It is for the page, in an [admin
session](../explanation/security.md#the-admin-session); programs use a client, or the
[gateway](../how-to/http.md). The answer tells what came of it.

| `do` | with | does |
|---|---|---|
"""


def _command_row(command: type[msgspec.Struct]) -> str:
    """What a command takes and does."""
    names = [
        f"`{one.encode_name}`" if one.required else f"[`{one.encode_name}`]"
        for one in msgspec.structs.fields(command)
    ]
    text = inspect.getdoc(command) or ""
    return f"| `{command.__struct_config__.tag}` | {', '.join(names)} | {text} |\n"


_PYTHON_INTRO: Final = """# Python

What applications may import. Everything here, and nothing else, is the public interface.

## What is promised

- **Names.** What stands on this page keeps its name, its arguments and their meaning within a major
  version. New optional arguments, new attributes and new names may come with any minor version.
- **Deprecation.** What is to go first warns with `DeprecationWarning` for at least one minor
  version, and goes with a major one; the changelog names what takes its place. Before version 1.0 a
  minor version may do what a major one may do later, and the changelog says so.
- **Errors.** The [`code`](errors.md) of an error is as stable as a name; its text is for people and
  may change.
- **Data.** A store, a backup and a configuration of an earlier version can be used: see
  [upgrade](../how-to/upgrade.md).
- **Not promised:** modules whose names are not on this page, names that begin with an underscore,
  orders and times that no docstring states. The keys of `rillnode.node.config` and of plug-ins'
  tables are as stable as [the file's](config.md).

All of it is typed (`py.typed`); what `Key`, `Start` and the like in signatures stand for is [at the
end](#types-that-have-names). Unless a docstring says otherwise, calls belong on the event loop's
thread; `connect_blocking` is for programs without one.
"""

_CLIENTS: Final = ("rillnode.streamr", "rillnode.nextgraph")
"""Modules with a plug-in's client, named as the plug-in."""

PUBLIC: Final = (
    "rillnode",
    "rillnode.testing",
    "rillnode.testing.contract",
    *_CLIENTS,
    "rillnode.node.config",
)


_PYTHON_ALIASES: Final = """
## Types that have names

They are not to be imported: the signatures above are shorter with them.

| name | stands for |
|---|---|
"""


def python_page() -> str:
    """The reference of the Python interface, made of `__all__` and docstrings."""
    parts = [_MADE, _PYTHON_INTRO]
    names = {
        module: sorted(import_module(module).__all__) for module in PUBLIC if _is_public(module)
    }
    public: dict[type, str] = {}
    shown: list[object] = []
    for module, exported in names.items():
        found = [(getattr(import_module(module), name), name) for name in exported]
        shown += [one for one, _ in found]
        public |= {one: f"{module}.{name}" for one, name in found if isinstance(one, type)}
    for module, exported in names.items():
        parts.append(f"\n## {module}\n\n{_doc(import_module(module))}\n")
        parts += [described(module, name, public) for name in exported]
    tables_of_plug_ins: dict[type, None] = {}
    for kind in dict.fromkeys(table_type(name) for name in installed(TABLES)):
        of_it = [kind, *_parts(kind)]
        tables_of_plug_ins |= dict.fromkeys(one for one in of_it if one not in public)
    parts.append(_PYTHON_ALIASES)
    for name, what in stood_for([*shown, *tables_of_plug_ins]).items():
        cell = f"<code>{escape(what, quote=False).replace('|', '&#124;')}</code>"
        parts.append(f"| `{name}` | {cell} |\n")
    parts.append("\n## Tables of plug-ins\n\nFor `tables` of `Config`, each from its module.\n")
    parts += [described(one.__module__, one.__name__, public) for one in tables_of_plug_ins]
    return "".join(parts)


def _is_public(module: str) -> bool:
    """Whether it is there: the module of a client of a plug-in's is not, without its rooms."""
    return module not in _CLIENTS or _is_there(f"rillnode.node.{module.rpartition('.')[2]}")


def _parts(kind: type) -> list[type]:
    """The types of what stands in a table, and of what stands in that."""
    found: dict[type, None] = {}
    for hint in get_type_hints(kind).values():
        waiting: list[Any] = [hint]
        while waiting:
            one = waiting.pop()
            waiting += get_args(one)
            if isinstance(one, type) and issubclass(one, msgspec.Struct) and one not in found:
                found[one] = None
                found |= dict.fromkeys(_parts(one))
    return list(found)


def _doc(thing: object) -> str:
    return inspect.cleandoc(thing.__doc__ or "")


def _config_row(key: Key) -> str:
    default = "required" if key.required else "-"
    if not key.required and key.default is not None:
        default = f"`{toml_value(key.default)}`"
    cells = (f"`{key.name}`", key.expected, default, key.description)
    return f"| {' | '.join(cells)} |\n"


_ERRORS_INTRO: Final = """# Error codes

Every error has a code and a text. Codes are stable; texts are for people and may change. A code is

- `code` of an exception in Python, all of them `rillnode.RillnodeError`,
- in brackets after the text on the command line, whose next line says what to do,
- `error` in an answer of the `http` listener, `code` in a line of the log,
- a label in [metrics](metrics.md), and what `/v1/status` counts under.

What is filled in stands as `<name>`, or as `...`. Codes without a class are answered, and
then raised as `RequestError` by clients, or only logged and counted. A program that wants to tell
refusals apart catches their classes: `except rillnode.StreamRemoved`.

| class | what has failed | who acts |
|---|---|---|
"""

_CLASSES: Final = {
    "CodecError": (
        "the other side's bytes are no message",
        "nobody: it is answered or its link closed, and it is counted",
    ),
    "TransportError": ("a link could not be made or kept", "clients try again by themselves"),
    "HandshakeError": (
        "the other side cannot be authenticated, refuses, or speaks something else",
        "compare keys, grants and versions",
    ),
    "StoreError": (
        "the log could not do what was asked",
        "`retryable` says whether the same call may succeed later",
    ),
    "ActorError": ("an actor is gone or does not answer", "try again; see the node's log"),
    "RequestError": (
        "the node has refused a request; its code may have a class of its own below it, such as "
        "`StreamRemoved` below `StreamError`",
        "the code says why",
    ),
    "NodeFailed": ("a node cannot go on", "start it again; see its log"),
    "ConfigError": ("a configuration or a file cannot be used", "correct what the text names"),
    "BackupError": ("a backup could not be made or read", "the text says what to do"),
}


def errors_page() -> str:
    """The reference of the error codes, made of the source and of what the command line advises."""
    families: dict[str, list[ErrorCode]] = {}
    for one in error_codes():
        families.setdefault(one.code.partition(".")[0], []).append(one)
    parts = [_MADE, _ERRORS_INTRO]
    parts += [f"| `{name}` | {what} | {who} |\n" for name, (what, who) in _CLASSES.items()]
    for family, codes in families.items():
        parts.append(f"\n## {family}\n")
        if step := step_of(family):
            parts.append(f"\nWhat to do: {step}.\n")
        classes = {_classes(one) for one in codes}
        if len(classes) == 1:
            parts.append(f"\nClass: {classes.pop()}\n\n| code | what it says |\n|---|---|\n")
            parts += [f"| `{one.code}` | {_said(one, family)} |\n" for one in codes]
        else:
            parts.append("\n| code | class | what it says |\n|---|---|---|\n")
            parts += [
                f"| `{one.code}` | {_classes(one)} | {_said(one, family)} |\n" for one in codes
            ]
        if kinds := _results_of(family):
            names = {code.name.lower() for kind in kinds for code in kind}
            results = ", ".join(f"`{family}.{name}`" for name in sorted(names))
            parts.append(
                f"\nA broker's refusals have the names of its protocol's results: {results}.\n"
            )
    return "".join(parts)


def _results_of(family: str) -> list[type[IntEnum]]:
    """The results of a plug-in's protocol, whose refusals go by their names."""
    try:
        results = import_module(f"rillnode.codecs.{family}.results")
    except ModuleNotFoundError:  # another family, or a clone without the plug-in
        return []
    return [results.ResultCode, results.ProtocolCode]


def _classes(one: ErrorCode) -> str:
    names = {_refusal(one.code) if name == "RequestError" else name for name in one.classes}
    return ", ".join(f"`{name}`" for name in sorted(names)) or "-"


def _refusal(code: str) -> str:
    """The class of a refusal, which goes by its code."""
    return type(RequestError(code, "")).__name__


def _said(one: ErrorCode, family: str) -> str:
    """What an error says, and what to do where that is not what its whole family says."""
    step = step_of(one.code)
    own = f". **Do:** {step}" if step and step != step_of(family) else ""
    meaning = one.meaning.translate({ord("<"): "&lt;", ord("|"): "&#124;", ord("*"): "&#42;"})
    return f"{meaning}{own}"


_SIMULATION_INTRO: Final = """# Scenarios, faults, rules and planted mistakes

The keys of a scenario of `rillnode sim run` ([how to](../how-to/simulate.md)), the kinds of faults,
the rules that runs are checked against, and the mistakes that tests plant to see that they are
([simulation](../explanation/simulation.md)).
"""


def simulation_page() -> str:
    """The reference of scenarios, of the rules, and of the mistakes that must break them."""
    faults, invariants, scenario = (
        import_module(f"rillnode.node.simulation.{name}")
        for name in ("faults", "invariants", "scenario")
    )
    whole = scenario.file_type(*installed(SCENARIOS))
    parts = [_MADE, _SIMULATION_INTRO, *_described_tables(tables(whole))]
    parts.append("\n## Faults\n\n| kind | what happens |\n|---|---|\n")
    parts += [f"| `{kind}` | {text} |\n" for kind, text in faults.KINDS.items()]
    parts.append('\nThe last four need `engine = "shared"` in `[store]`.\n')
    parts.append("\n## Rules\n\n| rule | demands |\n|---|---|\n")
    parts += [f"| `{rule}` | {text} |\n" for rule, text in invariants.RULES.items()]
    if planted := _planted():
        parts.append("\n## Planted mistakes\n\n| mistake | breaks one of |\n|---|---|\n")
    for one in planted:
        rules = ", ".join(f"`{rule}`" for rule in one.rules)
        parts.append(f"| {str(one.patch.__doc__).rstrip('.')} | {rules} |\n")
    return "".join(parts)


def _planted() -> Sequence[Any]:
    """The mistakes that tests plant; none in a clone without a plug-in that some are planted in."""
    try:
        found: Sequence[Any] = import_module("every_planted_bug").ALL
    except ModuleNotFoundError:
        if not import_module("deleted_rooms").deleted_rooms():
            raise
        return ()
    return found


def lake_page() -> str:
    """The reference of what sinks write, and of the Spark format."""
    text: str = import_module("tables_reference").page()
    return _MADE + text


def openapi_page() -> str:
    """The OpenAPI document of the HTTP door."""
    text: str = import_module("openapi_document").page()
    return text


def actors_page() -> str:
    """The reference of the actors."""
    return _MADE + actors_reference.page()


def messages_page() -> str:
    """The reference of the messages of rillnode's own link."""
    return _MADE + messages_reference.page()


_ROOT: Final = Path(__file__).parents[1]


def _is_there(module: str) -> bool:
    """Whether a clone has the room of one of the project's modules."""
    _, layer, room = module.split(".")[:3]
    return (_ROOT / layer / room / "__init__.py").is_file()


_OF_PLUG_INS: Final = {
    "openapi.json": "gateway",
    "simulation.md": "simulation",
    "tables.md": "spark",
}
"""Pages that are about a plug-in, which are not made in a clone without it."""

_EVERY: Final = {
    "actors.md": actors_page,
    "config.md": config_page,
    "cli.md": cli_page,
    "errors.md": errors_page,
    "http.md": http_page,
    "messages.md": messages_page,
    "metrics.md": metrics_page,
    "openapi.json": openapi_page,
    "python.md": python_page,
    "simulation.md": simulation_page,
    "tables.md": lake_page,
}

PAGES: Final = {
    name: page
    for name, page in _EVERY.items()
    if name not in _OF_PLUG_INS or _is_there(f"rillnode.node.{_OF_PLUG_INS[name]}")
}

SERVED: Final = Path(__file__).parents[1] / "node" / "gateway" / "openapi.json"
"""The OpenAPI document as the HTTP door has it."""


def lacking() -> list[str]:
    """What of the plug-ins' parts that pyproject.toml names cannot be described, each with why.

    Pages that were made all the same would be without the sections about it. That is what a clone
    wants from which a plug-in's rooms were deleted.
    """
    text = (_ROOT / "pyproject.toml").read_text("utf-8")
    groups: dict[str, dict[str, str]] = tomllib.loads(text)["project"]["entry-points"]
    found: list[str] = []
    for group, named in groups.items():
        for name, value in named.items() if group.startswith("rillnode.") else ():
            if not _is_there(value):
                continue
            try:
                load(group, name)
            except ConfigError as error:
                found.append(f"{group}, {name}: {error.text}")
    return found


if __name__ == "__main__":
    if reasons := lacking():
        sys.exit("\n".join(("The pages would lack sections, so none was written:", *reasons)))
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")
    if "openapi.json" in PAGES:
        SERVED.write_text(import_module("openapi_document").served(), encoding="utf-8")
