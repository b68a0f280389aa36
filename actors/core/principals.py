"""The spelling of principals that grants, quotas and peers name."""

import re
from collections.abc import Iterable
from functools import cache
from typing import Final

from rillnode.actors.core.access import ANONYMOUS, EVERYBODY
from rillnode.codecs.errors import ConfigError
from rillnode.codecs.words import Kind, brought_words

_KEY: Final = Kind("[0-9a-f]{64}", "HEX")

_OWN: Final = {"noise": _KEY, "ockam": _KEY, "apikey": Kind("[A-Za-z0-9._-]+", "NAME")}
"""The kernel's kinds, which no package widens."""

_OWN_FORMS: Final = "noise:HEX or ockam:HEX (64 hexadecimal digits in lower case), apikey:NAME"


def unfit_principal(who: str, *, granted: bool = False) -> str | None:
    """What is wrong with a principal that a configuration names; None: nothing.

    Args:
        who: the principal, or `kind:*` for all of one kind.
        granted: a grant names it, and may name those that prove nothing.
    """
    if who in (ANONYMOUS, EVERYBODY):
        return None
    name, colon, rest = who.partition(":")
    kind = _OWN.get(name) or _brought().get(name)
    fits = kind is not None and (rest == "*" or re.fullmatch(kind.names, rest))
    if colon and kind is not None and fits and (kind.proved or granted):
        return None
    brought = (
        f"{name}:{kind.form}"
        for name, kind in _brought().items()
        if name not in _OWN and (kind.proved or granted)
    )
    forms = ", ".join((_OWN_FORMS, *brought))
    text = f"{forms}, anonymous, * for everybody or noise:* for all of one kind"
    return f"{who!r}: expected {text}"


def check_principals(principals: Iterable[str]) -> None:
    """See that principals are such as a grant may name.

    Raises:
        ConfigError: `actor.allow`; also for a text, each of whose characters would be a principal,
            `*` among them.
    """
    given: object = principals
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        text = f'{given!r:.80}: expected a list of principals, as in allow=["noise:*"]'
        raise ConfigError("actor.allow", text)
    for who in given:
        unfit = unfit_principal(who, granted=True) if isinstance(who, str) else f"{who!r}: no text"
        if unfit:
            raise ConfigError("actor.allow", unfit)


@cache
def _brought() -> dict[str, Kind]:
    return {name: kind for words in brought_words() for name, kind in words.principals.items()}
