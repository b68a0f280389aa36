"""Reads from requests which proxies they came through."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

_NAMES: Final = re.compile(
    r"via|cdn-loop|x-real-ip|x-original-host|cf-connecting-ip(v6)?|x-envoy-external-address"
    r"|.*forwarded.*|.*client-?ip.*"
)

_HOSTS: Final = ("x-forwarded-host", "x-original-host")
_PAIR: Final = re.compile(r"""(?<![^\s"=;,])([^\s"=;,]+)=("(?:[^"\\]|\\.)*"|[^\s"=;,]*)""")
"""A parameter of `Forwarded` (RFC 7239, section 4), its value perhaps quoted."""


def proxied_hosts(headers: Iterable[tuple[str, str]]) -> list[str] | None:
    """The hosts that a request was for as its proxies tell; None: it came through no proxy.

    A proxy is known by what it adds. Whoever runs one that adds nothing has to see to it himself.
    """
    added = [
        (name, value)
        for name, value in ((name.lower(), value) for name, value in headers)
        if _NAMES.fullmatch(name)
    ]
    return [host for name, value in added for host in _hosts(name, value)] if added else None


def _hosts(name: str, value: str) -> Iterator[str]:
    if name in _HOSTS:
        yield from (host.strip() for host in value.split(","))
    elif name == "forwarded":
        for parameter, host in _PAIR.findall(value):
            if parameter.lower() == "host":
                yield re.sub(r"\\(.)", r"\1", host.strip('"'))
