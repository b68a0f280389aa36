"""Logging in and out, and who one is."""

from aiohttp import web

from rillnode.actors.streamr.directory import Done, StoreRevocations
from rillnode.actors.streamr.permissions import user_of
from rillnode.actors.streamr.sessions import Token
from rillnode.codecs.streamr.rest_bodies import read_api_key, read_challenge_response
from rillnode.codecs.streamr.times import iso_time
from rillnode.node.streamr.rest.answers import empty_answer, json_answer
from rillnode.node.streamr.rest.rest import Rest, body_of, token_of, user_principal_of


async def challenge(rest: Rest, request: web.Request) -> web.Response:
    """POST /login/challenge/{address}: what its holder has to sign."""
    opened = rest.sessions.challenge(request.match_info["address"], request.remote or "")
    return json_answer(
        {"id": opened.id, "challenge": opened.text, "expires": iso_time(opened.expires_at)}
    )


async def response(rest: Rest, request: web.Request) -> web.Response:
    """POST /login/response: a token for a signed challenge."""
    signed = read_challenge_response(await body_of(request))
    return _token(
        rest.sessions.answer(
            signed.challenge.id, signed.address, signed.signature, request.remote or ""
        )
    )


async def api_key(rest: Rest, request: web.Request) -> web.Response:
    """POST /login/apikey: a token for an API key."""
    key = read_api_key(await body_of(request))
    return _token(rest.sessions.log_in_with_key(key, request.remote or ""))


async def log_out(rest: Rest, request: web.Request) -> web.Response:
    """POST /logout: the token is good for nothing from now on, also after a restart."""
    user_principal_of(rest, request)
    rest.sessions.revoke(token_of(request) or "")
    done: Done = await rest.ask(rest.context.directory, StoreRevocations())
    if done.error is not None:
        raise done.error
    return empty_answer(204)


async def me(rest: Rest, request: web.Request) -> web.Response:
    """GET /users/me: who the token's holder is."""
    user = user_of(user_principal_of(rest, request))
    return json_answer({"name": user, "username": user})


def _token(token: Token) -> web.Response:
    return json_answer({"token": token.text, "expires": iso_time(token.expires_at)})
