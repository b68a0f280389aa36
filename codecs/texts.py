"""Interns texts that many parts of a process hold, such as identities."""

from functools import lru_cache
from typing import Final

_TEXTS_KEPT: Final = 16_384
"""Three for each node of the largest simulation. Own choice."""


@lru_cache(_TEXTS_KEPT)
def one_text(text: str) -> str:
    """The text, as the same object for all who come with an equal one.

    Peers choose what comes here, so it is forgotten in time; in Python 3.12 `sys.intern` keeps all.
    """
    return text
