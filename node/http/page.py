"""The status page, whose own script and style are all that a browser may run or load.

It is sent as one document, put together of its parts once: there is nothing to build, and nothing
else to ask for.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

from rillnode.node.http.plain import tables

_TABLES: Final = "<!--tables-->"
_STYLE: Final = "/*page.css*/\n"
_SCRIPT: Final = "/*script*/\n"
SCRIPTS: Final = tuple(
    f"page/{name}.js" for name in ("base", "tiles", "tables", "stream", "console", "life")
)
"""In the order in which they are put together."""

_OF_ROOMS: Final = "page_entries.js"
"""Where a plug-in's room says how the page shows entries of its kind, in `entryKinds` of
`page/stream.js`: whether or not a node has the plug-in now, as it may have had it."""


class Page:
    """The page as it is in the package."""

    def __init__(self) -> None:
        parts = files("rillnode.node")

        def text(name: str) -> str:
            return parts.joinpath(name).read_text(encoding="utf-8")

        page = text("page/index.html").replace(_STYLE, text("page/page.css"))
        rooms = sorted(room.name for room in parts.iterdir() if room.joinpath(_OF_ROOMS).is_file())
        scripts = (*SCRIPTS, *(f"{room}/{_OF_ROOMS}" for room in rooms))
        self._text = page.replace(_SCRIPT, "".join(map(text, scripts)))
        self.policy: Final = "; ".join((
            "default-src 'none'",
            f"script-src {_hashes(self._text, 'script')}",
            f"style-src {_hashes(self._text, 'style')}",
            "img-src data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ))  # fmt: skip

    def html(self, documents: Mapping[str, Mapping[str, Any]]) -> str:
        """The page, with tables for browsers that run no script."""
        return self._text.replace(_TABLES, tables(documents))


def _hashes(text: str, tag: str) -> str:
    """The source expressions of a page's inline elements (CSP level 2, section 4.2.4)."""
    found = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    digests = (hashlib.sha256(one.encode()).digest() for one in found)
    return " ".join(f"'sha256-{base64.b64encode(one).decode()}'" for one in digests)
