"""Logs a client in, and keeps the session token that proves it.

A private key proves its address by signing a challenge of the server's; an API key is sent as it
is; without either the client is anonymous and has no token.

Source: core-api, /login; streamr-client 5.2.1.
"""

import asyncio
from typing import Annotated, Final
from urllib.parse import quote

import aiohttp
from msgspec import Meta, Struct

from rillnode.codecs.errors import HandshakeError
from rillnode.codecs.streamr.ethereum import EthereumKey
from rillnode.node.streamr.client.rest import call, convert

_CHALLENGE_CHARACTERS_MAX: Final = 4_096


class _Challenge(Struct):
    id: str
    challenge: Annotated[str, Meta(max_length=_CHALLENGE_CHARACTERS_MAX)]
    expires: str


class _Session(Struct):
    token: Annotated[str, Meta(min_length=1)]


class Login:
    """One client's session.

    Args:
        http: makes the connections.
        rest: address of the REST interface.
        key: logs in by challenge, if given.
        api_key: logs in, if given and there is no key.
    """

    def __init__(
        self,
        http: aiohttp.ClientSession,
        rest: str,
        *,
        key: EthereumKey | None = None,
        api_key: str | None = None,
    ) -> None:
        self._http = http
        self._rest = rest
        self._key = key
        self._api_key = api_key
        self._token: str | None = None
        self._lock = asyncio.Lock()

    async def token(self, renew: bool = False) -> str | None:
        """The session token; None for an anonymous client.

        Args:
            renew: get a new one, as the server does not take the one that is held.

        Raises:
            RequestError: the server refuses the key.
            HandshakeError: the server asks for a signature that is no login.
            TransportError: it is not reached.
        """
        held = self._token
        async with self._lock:
            # Many calls fail together when a token's time is over: the first one renews it.
            if self._token is None or (renew and self._token == held):
                self._token = await self._log_in()
            return self._token

    async def _log_in(self) -> str | None:
        if self._key is not None:
            return await self._answer_challenge(self._key)
        if self._api_key is not None:
            return await self._post("/login/apikey", {"apiKey": self._api_key}, _Session)
        return None

    async def _answer_challenge(self, key: EthereumKey) -> str:
        path = f"/login/challenge/{quote(key.address, safe='')}"
        found = await call(self._http, "POST", self._rest + path)
        challenge = convert(found, _Challenge)
        # Whoever may have any text signed can write messages in this address's name.
        if key.address.lower() not in challenge.challenge.lower() or not challenge.id:
            text = "the server asks to sign a text that is no challenge for this address"
            raise HandshakeError("login.challenge", text)
        response = {
            "challenge": challenge,
            "signature": key.sign(challenge.challenge.encode()),
            "address": key.address,
        }
        return await self._post("/login/response", response, _Session)

    async def _post(self, path: str, body: object, kind: type[_Session]) -> str:
        return convert(await call(self._http, "POST", self._rest + path, body=body), kind).token
