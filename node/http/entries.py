"""Entries as rows for people: decoded where they are text, and their bytes as hexadecimal."""

from codecs import utf_8_decode
from typing import Any, Final

from rillnode.codecs.entries import Entry
from rillnode.codecs.keyed import told
from rillnode.node.entry_lines import json_text

PREVIEW_BYTES: Final = 4_096
"""As much of an entry is shown. Own choice: 100 rows of it are 400 kB of text."""


def entry_row(entry: Entry) -> dict[str, Any]:
    """One entry: where it stands, what it is, and the begin of its content.

    `format` says what `text` is: `json`, `text`, or `binary`, which has none. `hex` are the first
    bytes as they are stored, whatever they are. Key and headers are told as `codecs.keyed.told` has
    them.
    """
    form, text = _decoded(entry)
    shown = entry.data[:PREVIEW_BYTES]
    return {
        "partition": entry.partition,
        "index": entry.index,
        "received_at": entry.received_at,
        "kind": entry.kind.name.lower(),
        "bytes": len(entry.data),
        "format": form,
        "text": text,
        "hex": shown.hex(),
        "cut": len(entry.data) > PREVIEW_BYTES,
        **told(entry.key, entry.headers),
    }


def _decoded(entry: Entry) -> tuple[str, str | None]:
    cut = entry.data[:PREVIEW_BYTES]
    try:
        # A cut through a character is no reason to show none.
        text, _ = utf_8_decode(cut, "strict", len(cut) == len(entry.data))
    except UnicodeDecodeError:
        return "binary", None
    if text and not _mostly_printable(text):
        return "binary", None
    return ("text" if json_text(entry.data) is None else "json"), text


def _mostly_printable(text: str) -> bool:
    """Whether it is text rather than bytes that happen to be valid UTF-8."""
    shown = "".join(text.split())
    # Nearly all is, and is told whole; going through it letter by letter takes 100 times as long.
    odd = 0 if shown.isprintable() else len(shown) - sum(map(str.isprintable, shown))
    return odd * 10 <= len(text)
