"""Texts that are one object for all who hold them."""

import gc
import weakref

from rillnode.codecs.texts import one_text


class Text(str):
    """One that can be watched."""


def test_equal_texts_are_one_object() -> None:
    first, second = "".join(("shared", " text")), "".join(("shared", " text"))
    assert first is not second
    assert one_text(first) is one_text(second)


def test_what_peers_have_said_is_forgotten_when_others_have_said_more() -> None:
    said = weakref.ref(one_text(Text("said once")))
    assert said() is not None
    kept = one_text.cache_info().maxsize
    assert kept is not None
    for number in range(kept):
        one_text(f"said later {number}")
    gc.collect()
    assert said() is None
