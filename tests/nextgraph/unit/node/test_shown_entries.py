"""Events are shown as bytes: whoever looks at a stream's entries guesses at no text in them."""

import pytest

from nextgraph_support import make_event
from rillnode.codecs.entries import Entry, EntryKind
from rillnode.codecs.nextgraph.events import EVENT
from rillnode.node.entry_lines import line_formatter
from rillnode.node.http.entries import PREVIEW_BYTES, entry_row


@pytest.mark.parametrize("size", [0, 1, 100, PREVIEW_BYTES, 5 * PREVIEW_BYTES])
def test_an_event_is_no_text(size: int) -> None:
    for seq in range(1, 21):
        data = EVENT.encode(make_event(b"a" * size, seq=seq)[0])
        entry = Entry(0, seq, 0, EntryKind.NEXTGRAPH, data)
        assert entry_row(entry)["format"] == "binary"
        assert b'"base64"' in line_formatter("json")(entry)
