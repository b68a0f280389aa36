"""Serves a stream's permissions, publishers and subscribers."""

from collections.abc import Iterable
from typing import Final

from aiohttp import web

from rillnode.actors.core.access import EVERYBODY, Verb
from rillnode.actors.log import ListKeys, StreamRecord, log_id
from rillnode.actors.streamr import metadata, permissions
from rillnode.actors.streamr.admission import ethereum_principal, may
from rillnode.actors.streamr.requests import FIRST, LAST
from rillnode.actors.streamr.sessions import ETHEREUM
from rillnode.codecs.errors import CodecError, RequestError
from rillnode.codecs.streamr.ethereum import parse_address
from rillnode.codecs.streamr.key_exchange import is_key_stream
from rillnode.codecs.streamr.limits import STREAMR_INTEGER_MAX, STREAMR_PUBLISHERS_LISTED_MAX
from rillnode.codecs.streamr.rest_bodies import read_permission
from rillnode.codecs.streamr.sort_keys import bounds, publisher_in, publishers_after
from rillnode.node.streamr.rest.answers import empty_answer, json_answer
from rillnode.node.streamr.rest.query import whole_number
from rillnode.node.streamr.rest.rest import Rest, body_of, principal_of

_ADDRESS_CHARS: Final = 42


async def list_permissions(rest: Rest, request: web.Request) -> web.Response:
    """GET /streams/{id}/permissions: those that the stream's own record gives."""
    principal = principal_of(rest, request)
    record = await rest.find(request.match_info["id"], principal, permissions.SHARE)
    return json_answer([_told(one) for one in permissions.permissions(record)])


async def my_permissions(rest: Rest, request: web.Request) -> web.Response:
    """GET /streams/{id}/permissions/me: all that the asker may do, whatever the reason."""
    principal = principal_of(rest, request)
    record = await rest.find(request.match_info["id"], principal, permissions.GET)
    held = permissions.held(record, rest.access, principal)
    return json_answer([_told(permission) for permission in held])


async def get_permission(rest: Rest, request: web.Request) -> web.Response:
    """GET /streams/{id}/permissions/{permission}."""
    principal, wanted = principal_of(rest, request), _permission_id(request)
    record = await rest.find(request.match_info["id"], principal, permissions.SHARE)
    for permission in permissions.permissions(record):
        if permission.id == wanted:
            return json_answer(_told(permission))
    raise _no_permission()


async def grant(rest: Rest, request: web.Request) -> web.Response:
    """POST /streams/{id}/permissions: give one to a user, or to everybody."""
    principal, name = principal_of(rest, request), request.match_info["id"]
    body = read_permission(await body_of(request))
    operation = body.operation.lower()
    if operation not in permissions.OPERATIONS:
        raise RequestError("rest.query", f"operation is none of {permissions.OPERATIONS}")
    if body.anonymous:
        whom = EVERYBODY
    elif body.user is not None:
        whom = permissions.principal_of(body.user)
    else:
        raise RequestError("rest.query", "a permission is for a user, or for anonymous")

    def revise(record: StreamRecord) -> StreamRecord:
        metadata.check(record, rest.access, principal, permissions.SHARE)
        return permissions.grant(record, whom, operation)

    await rest.revise(name, principal, revise)
    return json_answer(_told(permissions.granted(whom, operation)))


async def revoke(rest: Rest, request: web.Request) -> web.Response:
    """DELETE /streams/{id}/permissions/{permission}."""
    principal, name = principal_of(rest, request), request.match_info["id"]
    permission_id = _permission_id(request)

    def revise(record: StreamRecord) -> StreamRecord:
        metadata.check(record, rest.access, principal, permissions.SHARE)
        revised = permissions.revoke(record, permission_id)
        if revised is None:
            raise _no_permission()
        return revised

    await rest.revise(name, principal, revise)
    return empty_answer(204)


def _permission_id(request: web.Request) -> int:
    text = request.match_info["permission"]
    return whole_number(text, "A permission's id", STREAMR_INTEGER_MAX)


def _no_permission() -> RequestError:
    return RequestError("rest.unknown", "The stream has no such permission")


def _told(permission: permissions.Permission) -> dict[str, object]:
    number, user, operation = permission
    if user is None:
        return {"id": number, "anonymous": True, "operation": operation}
    return {"id": number, "user": user, "operation": operation}


# Publishers and subscribers ------------------------------------------------------------------


async def publishers(rest: Rest, request: web.Request) -> web.Response:
    """GET /streams/{id}/publishers: addresses that may publish.

    Those that are named, the node itself, which signs what others push, and those that have
    published, as they may do so without being named. Nobody is named for key exchange.
    """
    principal = principal_of(rest, request)
    if is_key_stream(request.match_info["id"]):
        return json_answer({"addresses": []})
    record = await rest.find(request.match_info["id"], principal, permissions.GET)
    node_address = rest.context.node_key.address.lower()
    known = {node_address, *await _publishers(rest, record)}
    return _addresses(rest, record, principal, "push", known, {node_address})


async def subscribers(rest: Rest, request: web.Request) -> web.Response:
    """GET /streams/{id}/subscribers: addresses that are named as subscribers."""
    principal = principal_of(rest, request)
    record = await rest.find(request.match_info["id"], principal, permissions.GET)
    return _addresses(rest, record, principal, "subscribe", (), ())


async def is_publisher(rest: Rest, request: web.Request) -> web.Response:
    """GET /streams/{id}/publisher/{address}: 200 where `publishers` has it, or 404.

    Clients ask it of whoever sends them keys, which the node has let through for the sake of the
    stream that they are for.
    """
    principal, address = principal_of(rest, request), _address(request)
    if is_key_stream(request.match_info["id"]):
        return json_answer({})
    record = await rest.find(request.match_info["id"], principal, permissions.GET)
    who = ethereum_principal(address)
    if address != rest.context.node_key.address.lower():
        named = {principal, *rest.access.holders("push", record.name)}
        allowed = may(rest.access, who, "push", record.name)
        if not allowed or not (who in named or await _has_published(rest, record, address)):
            raise _no_member(address)
    return json_answer({})


async def is_subscriber(rest: Rest, request: web.Request) -> web.Response:
    """GET /streams/{id}/subscriber/{address}: 200, or 404 where it may not subscribe."""
    principal, address = principal_of(rest, request), _address(request)
    record = await rest.find(request.match_info["id"], principal, permissions.GET)
    if not may(rest.access, ethereum_principal(address), "subscribe", record.name):
        raise _no_member(address)
    return json_answer({})


def _no_member(address: str) -> RequestError:
    return RequestError("rest.unknown", f"{address} is none of the stream's")


def _address(request: web.Request) -> str:
    try:
        return parse_address(request.match_info["address"])
    except CodecError as error:
        # Nobody whom a stream could know; a client would log in again on a 400.
        raise RequestError("rest.unknown", error.text) from None


def _addresses(
    rest: Rest,
    record: StreamRecord,
    principal: str,
    verb: Verb,
    seen: Iterable[str],
    always: Iterable[str],
) -> web.Response:
    """The Ethereum addresses among those named, the asker and those seen, as far as they may."""
    named = rest.access.holders(verb, record.name)
    found = {*named, principal, *map(ethereum_principal, seen)}
    addresses = {
        who.removeprefix(ETHEREUM)
        for who in found
        if len(who) == len(ETHEREUM) + _ADDRESS_CHARS
        and who.startswith(ETHEREUM)
        and may(rest.access, who, verb, record.name)
    }
    return json_answer({"addresses": sorted(addresses.union(always))})


async def _has_published(rest: Rest, record: StreamRecord, address: str) -> bool:
    """Whether something of this publisher is stored."""
    start, end = bounds(address, FIRST, LAST)
    for partition in range(record.partitions):
        log = log_id(record.id, partition)
        if (await rest.question(ListKeys(log=log, start=start, end=end, limit=1))).pairs:
            return True
    return False


async def _publishers(rest: Rest, record: StreamRecord) -> set[str]:
    """The publishers of what is stored: one look into the store for each of them."""
    found: set[str] = set()
    for partition in range(record.partitions):
        start, end = publishers_after(None)
        while len(found) < STREAMR_PUBLISHERS_LISTED_MAX:
            log = log_id(record.id, partition)
            page = await rest.question(ListKeys(log=log, start=start, end=end, limit=1))
            if not page.pairs:
                break
            publisher = publisher_in(page.pairs[0][0])
            found.add(publisher)
            start, end = publishers_after(publisher)
    return found
