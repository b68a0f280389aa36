"""Says what somebody is not granted, and the grant that would let them."""

import json
from typing import Final

from rillnode.codecs.errors import RequestError

_UNSAID: Final = {
    "address.unknown": "No such address, or it is not yours to use",
    "stream.unknown": "No such stream, or it is not yours to use: see `rillnode stream ls`",
}


def not_granted(code: str, principal: str, verb: str, stream: str) -> RequestError:
    """The refusal of who may not do something with a stream, as of who asks for one that is not.

    It tells nothing of whether there is such a stream: it says the same in either case. Who has
    proved nothing is told no more than that.

    Args:
        code: `address.unknown` or `stream.unknown`.
        principal: who has asked.
        verb: what for.
        stream: the name that was asked for.
    """
    if ":" not in principal:  # it is of no kind, such as `anonymous`
        return RequestError(code, _UNSAID[code])
    who, name, may = quoted(principal), quoted(stream), json.dumps([verb])
    text = (
        f"There is no stream {name}, or {principal} may not {verb} there\n"
        "The node's operator can grant it in node.toml:\n"
        f"[[grant]]\nwho = {who}\nstreams = {name}\nmay = {may}"
    )
    return RequestError(code, text)


def quoted(text: str) -> str:
    """A text as TOML and JSON have it, readable in every language."""
    return json.dumps(text, ensure_ascii=False)
