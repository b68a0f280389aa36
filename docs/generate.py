"""Writes the reference pages that are made from the code: `python docs/generate.py`."""

from pathlib import Path
from typing import Final

from rillnode.node.cli import build_parser
from rillnode.node.cli.failures import Exit
from rillnode.node.config.describe import Key, tables, toml_value

REFERENCE: Final = Path(__file__).parent / "reference"
_MADE: Final = "<!-- Made by docs/generate.py; change the code, not this page. -->\n"

_CONFIG_INTRO: Final = """# Configuration: `node.toml`

A node reads one TOML file. A key that nothing knows is an error; every error names file, line and
key. What is set in several places is taken from the first of:

1. `--set key=value` on the command line, such as `--set noise.listen=127.0.0.1:0`;
2. the environment: `RILLNODE__NOISE__LISTEN`, two underscores between the parts of a key;
3. the file;
4. the default.

Items of a list of tables have a number, from 0: `sink.spark[0].trigger_seconds` or
`RILLNODE__SINK__SPARK__0__TRIGGER_SECONDS`. Relative paths are relative to the file's directory.
Keys are secrets and stand in files of their own, with mode 0600.

`rillnode config check` checks a file, `rillnode config show` shows what is in effect and where it
comes from, `rillnode config schema` prints a JSON schema for editors.
"""

_CLI_INTRO: Final = """# Command line

Data goes to stdout, messages to stderr. On a terminal, data is shown as tables; elsewhere, or with
`--json`, it is one JSON object per line. `NO_COLOR` is respected. Every error ends with the next
step.

| exit code | meaning |
|---|---|
"""

_EXITS: Final = {
    Exit.OK: "done; a running node was drained",
    Exit.FAILED: "the operation failed",
    Exit.USAGE: "the command line or the configuration is wrong",
    Exit.UNREACHABLE: "the node cannot be reached, or does not know the key",
    Exit.INTERRUPTED: "interrupted by the user",
}


def config_page() -> str:
    """The reference of the configuration."""
    parts = [_MADE, _CONFIG_INTRO]
    for table in tables():
        title = f"`{table.header}`" if table.header else "Above all tables"
        parts.append(f"\n## {title}\n\n{table.summary}\n")
        parts.append("\n| key | value | default | |\n|---|---|---|---|\n")
        parts += [_config_row(key) for key in table.keys]
    return "".join(parts)


def cli_page() -> str:
    """The reference of the command line."""
    parts = [_MADE, _CLI_INTRO]
    parts += [f"| {code.value} | {text} |\n" for code, text in _EXITS.items()]
    for command in build_parser().walk():
        parts.append(f"\n## {command.prog}\n\n```text\n{command.format_help()}```\n")
    return "".join(parts)


def _config_row(key: Key) -> str:
    default = "required" if key.required else "-"
    if not key.required and key.default is not None:
        default = f"`{toml_value(key.default)}`"
    cells = (f"`{key.name}`", key.expected, default, key.description)
    return f"| {' | '.join(cells)} |\n"


PAGES: Final = {"config.md": config_page, "cli.md": cli_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")
