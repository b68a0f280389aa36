"""The spelling of principals that grants, quotas and peers name."""

import re
from collections.abc import Callable, Iterable
from typing import Final

from rillnode.codecs.errors import ConfigError

_HEX_64 = "[0-9a-f]{64}"
PRINCIPAL: Final = re.compile(
    rf"\*|anonymous|(?:noise|ockam|nextgraph):(?:\*|{_HEX_64})"
    r"|eth:(?:\*|0x[0-9a-f]{40})|apikey:(?:\*|[A-Za-z0-9._-]+)"
)
PRINCIPAL_TEXT: Final = (
    "expected noise:HEX, ockam:HEX or nextgraph:HEX (64 hexadecimal digits in lower case), "
    "eth:0xHEX (40), apikey:NAME, anonymous, * for everybody or noise:* for all of one kind"
)
GRANTED: Final = re.compile(rf"{PRINCIPAL.pattern}|streamr:[A-Za-z0-9._:@#-]{{0,256}}\*?")
GRANTED_TEXT: Final = f"{PRINCIPAL_TEXT}, or streamr:ID for a released Streamr node"


def _is_none(_: str) -> bool:
    return False


def check_principals(principals: Iterable[str], is_other: Callable[[str], bool] = _is_none) -> None:
    """See that principals are such as a grant may name.

    Args:
        principals: what is to be some.
        is_other: whether a text is a principal of a kind that is not the kernel's.

    Raises:
        ConfigError: `actor.allow`; also for a text, each of whose characters would be a principal,
            `*` among them.
    """
    given: object = principals
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        text = f'{given!r:.80}: expected a list of principals, as in allow=["noise:*"]'
        raise ConfigError("actor.allow", text)
    for who in given:
        if not isinstance(who, str) or not (GRANTED.fullmatch(who) or is_other(who)):
            raise ConfigError("actor.allow", f"{who!r}: {GRANTED_TEXT}")
