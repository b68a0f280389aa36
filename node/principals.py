"""Principals as a configuration may name them: the kernel's kinds, and those of plug-ins."""

from collections.abc import Callable, Iterable
from typing import Final

from rillnode.actors.core.principals import (
    GRANTED,
    GRANTED_TEXT,
    PRINCIPAL,
    PRINCIPAL_TEXT,
    check_principals,
)
from rillnode.node.installed import PRINCIPALS, installed, load

_OWN: Final = frozenset(("noise", "ockam", "nextgraph", "eth", "apikey", "streamr"))
"""Kinds that no package may widen."""


def is_of_plug_in(who: str) -> bool:
    """Whether it is a principal of a kind that a plug-in brings, or `kind:*` for all of them.

    Raises:
        ConfigError: as `load` of `rillnode.node.installed`.
    """
    kind, colon, rest = who.partition(":")
    if not colon or kind in _OWN or kind not in installed(PRINCIPALS):
        return False
    if rest == "*":
        return True
    known: Callable[[str], bool] = load(PRINCIPALS, kind)
    return known(rest)


def unfit_principal(who: str, *, granted: bool = False) -> str | None:
    """What is wrong with a principal that a configuration names; None: nothing.

    Args:
        who: the principal.
        granted: a grant names it, and may name those that prove nothing.

    Raises:
        ConfigError: as `load` of `rillnode.node.installed`.
    """
    if (GRANTED if granted else PRINCIPAL).fullmatch(who) or is_of_plug_in(who):
        return None
    brought = "".join(f", or {kind}:... as the plug-in says" for kind in installed(PRINCIPALS))
    return f"{who!r}: {GRANTED_TEXT if granted else PRINCIPAL_TEXT}{brought}"


def check_allowed(principals: Iterable[str]) -> None:
    """See that principals are such as a grant may name.

    Raises:
        ConfigError: `actor.allow`, as `check_principals`; as `load` of `rillnode.node.installed`.
    """
    check_principals(principals, is_of_plug_in)
