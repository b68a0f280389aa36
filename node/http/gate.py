"""Guards stream contents: for programs of this machine, or clients with the token.

Figures are shown to all who reach the listener. Entries, the configuration and the route probe are
not: on a loopback address without a token they are for programs of this machine, and a page of
another site that a browser on it has open is not one of them, by whatever name it reaches the
listener.
"""

import re
from hmac import compare_digest
from ipaddress import ip_address
from typing import Final

from aiohttp import web

from rillnode.codecs.errors import ConfigError, RequestError
from rillnode.node.config import HttpListener
from rillnode.node.http.proxies import proxied_hosts
from rillnode.node.keys.files import read_secret

_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{32,128}")


class Gate:
    """Lets requests for data through, or not.

    Raises:
        ConfigError: the token's file cannot be used.
    """

    def __init__(self, table: HttpListener) -> None:
        file = table.token_file
        self._token = None if file is None else read_secret(file, _parse, "rillnode key new")
        self._loopback = table.address.loopback

    @property
    def terms(self) -> str:
        """On what terms data is shown: `open`, `token` or `closed`."""
        if self._token is not None:
            return "token"
        return "open" if self._loopback else "closed"

    def check(self, request: web.Request) -> None:
        """Let a request through.

        Raises:
            RequestError: why, and what to do.
        """
        if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            raise RequestError("http.cross_site", "Other sites' pages are shown no data")
        if self._token is not None:
            given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
            if not compare_digest(given, b"Bearer " + self._token.encode()):
                raise RequestError("http.token", "Send the token of [http] token_file as Bearer")
        elif not self._loopback:
            text = "On an address other than loopback, data needs [http] token_file"
            raise RequestError("http.no_token", text)
        elif proxied_hosts(request.headers.items()) is not None:
            text = "Through a proxy, data needs [http] token_file"
            raise RequestError("http.no_token", text)
        elif not names_loopback(request.host):
            # A foreign name that leads here is how a foreign page would get in.
            text = "Without [http] token_file, use 127.0.0.1 or localhost in the address"
            raise RequestError("http.host", text)


def names_loopback(authority: str) -> bool:
    """Whether a request was for this machine by a name that leads nowhere else."""
    host = re.sub(r":[0-9]*$", "", authority).strip("[]")
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _parse(text: str) -> str:
    token = text.strip()
    if not _TOKEN.fullmatch(token):
        raise ConfigError("key.format", "a token is 32 to 128 letters, digits, _ and -")
    return token
