"""Entries as rows for people."""

import pytest

from rillnode.codecs.entries import Entry, EntryKind
from rillnode.node.http.entries import PREVIEW_BYTES, entry_row


def row(data: bytes) -> dict[str, object]:
    return entry_row(Entry(1, 7, 1_700_000_000_000, EntryKind.BYTES, data))


@pytest.mark.parametrize(
    ("data", "form", "text"),
    [
        (b'{"a": 1}', "json", '{"a": 1}'),
        (b"[1, 2]", "json", "[1, 2]"),
        (b"{not json", "text", "{not json"),
        ("grün\n".encode(), "text", "grün\n"),
        (b"", "text", ""),
        (b"\xff\xfe", "binary", None),
        (bytes(16), "binary", None),
    ],
)
def test_content_is_decoded_where_it_is_text(data: bytes, form: str, text: str | None) -> None:
    found = row(data)
    assert (found["format"], found["text"], found["hex"]) == (form, text, data.hex())
    assert (found["partition"], found["index"], found["kind"]) == (1, 7, "bytes")


def test_of_a_large_entry_the_begin_is_shown() -> None:
    # A character of two bytes lies across the cut.
    found = row(b"a" * (PREVIEW_BYTES - 1) + "ü".encode() * 100)
    assert found["cut"] is True
    assert found["bytes"] == PREVIEW_BYTES + 199
    assert found["text"] == "a" * (PREVIEW_BYTES - 1)
    assert len(str(found["hex"])) == 2 * PREVIEW_BYTES


def test_a_large_entry_is_no_text_for_what_is_left_of_it() -> None:
    found = row(b"a" * 100 + b"\xff" + b"b" * PREVIEW_BYTES)
    assert (found["format"], found["text"]) == ("binary", None)


def test_deeply_nested_json_is_text() -> None:
    assert row(b"[" * 3_000)["format"] == "text"
