"""Makes reports: one HTML page that needs nothing else, its tables and sections."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final, cast

import msgspec

from rillnode.node.simulation.scenario import Scenario

_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>
:root {{ color-scheme: light dark }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto;
  padding: 0 1rem }}
table {{ border-collapse: collapse; margin: 1rem 0 }}
td, th {{ text-align: left; padding: .15rem 1.2rem .15rem 0; vertical-align: top }}
th {{ font-weight: 600 }}
figure {{ margin: 1.5rem 0 }} figcaption {{ font-weight: 600; margin-bottom: .4rem }}
svg {{ width: 100%; height: auto; background: white }}
code, pre {{ font-size: 13px; overflow-wrap: anywhere }} pre {{ overflow-x: auto }}
summary {{ cursor: pointer }} .broken {{ color: #d1495b }} .kept {{ color: #2e8b57 }}
</style></head><body>
{body}</body></html>
"""


def page(title: str, parts: Iterable[str]) -> str:
    """A whole page; parts that are empty are left out."""
    body = "\n".join(part for part in (f"<h1>{escape(title)}</h1>", *parts) if part)
    return _PAGE.format(title=escape(title), body=body)


def section(title: str, *parts: str) -> str:
    """A part of a page under a heading."""
    return "\n".join((f"<h2>{escape(title)}</h2>", *parts))


def paragraph(text: str, *, kind: str = "") -> str:
    """A paragraph of text."""
    mark = f' class="{kind}"' if kind else ""
    return f"<p{mark}>{escape(text)}</p>"


def table(rows: Iterable[Sequence[str]], heads: Sequence[str] = ()) -> str:
    """A table of texts; the first of each row names it."""
    lines = [
        f"<tr><th>{escape(first)}</th>{''.join(f'<td>{escape(one)}</td>' for one in rest)}</tr>"
        for first, *rest in rows
    ]
    if heads:
        lines.insert(0, f"<tr>{''.join(f'<th>{escape(head)}</th>' for head in heads)}</tr>")
    return f"<table>{''.join(lines)}</table>"


def scenario_section(scenario: Scenario) -> str:
    """A scenario with all its defaults, as the file that would give it."""
    text = escape(scenario_text(scenario))
    return section(
        "Scenario", f"<details><summary>With all defaults</summary><pre>{text}</pre></details>"
    )


def scenario_text(scenario: Scenario) -> str:
    """A scenario with all its defaults, as TOML."""
    tree: dict[str, Any] = msgspec.to_builtins(scenario, enc_hook=str)
    faults = cast(Sequence[Mapping[str, Any]], tree.pop("fault"))
    tables = [key for key, value in tree.items() if isinstance(value, dict)]
    parts = [_lines({key: value for key, value in tree.items() if key not in tables})]
    parts += [f"[{key}]\n{_lines(tree[key])}" for key in tables]
    parts += [f"[[fault]]\n{_lines(fault)}" for fault in faults]
    return "\n".join(parts)


def _lines(values: Mapping[str, Any]) -> str:
    # What JSON writes for texts, numbers, lists and truths is TOML as well; it has no null.
    return "".join(
        f"{key} = {msgspec.json.encode(value).decode()}\n"
        for key, value in values.items()
        if value is not None
    )
