"""Names this node as the storage node of every stream.

Clients of 2021 name a storage node for each stream whose messages they want to be kept. Whichever
they name, this node stands in for it.
"""

from aiohttp import web

from rillnode.actors.streamr import permissions
from rillnode.codecs.errors import RequestError
from rillnode.codecs.streamr.ethereum import parse_address
from rillnode.codecs.streamr.rest_bodies import read_storage_node
from rillnode.node.streamr.rest.answers import json_answer
from rillnode.node.streamr.rest.rest import Rest, body_of, principal_of
from rillnode.node.streamr.rest.streams import asked_for


async def of_stream(rest: Rest, request: web.Request) -> web.Response:
    """GET /streams/{id}/storageNodes: this node."""
    principal = principal_of(rest, request)
    record = await rest.find(request.match_info["id"], principal, permissions.GET)
    return json_answer([_told(record.name, rest.context.node_key.address)])


async def add(rest: Rest, request: web.Request) -> web.Response:
    """POST /streams/{id}/storageNodes: done already."""
    principal = principal_of(rest, request)
    address = parse_address(read_storage_node(await body_of(request)))
    record = await rest.find(request.match_info["id"], principal, permissions.EDIT)
    return json_answer(_told(record.name, address))


async def remove(rest: Rest, request: web.Request) -> web.Response:
    """DELETE /streams/{id}/storageNodes/{address}: refused, since nothing would be removed."""
    principal = principal_of(rest, request)
    await rest.find(request.match_info["id"], principal, permissions.EDIT)
    text = "This node stores every stream; storageDays says for how long"
    raise RequestError("streamr.forbidden", text)


async def streams_of(rest: Rest, request: web.Request) -> web.Response:
    """GET /storageNodes/{address}/streams: those that the asker may know of."""
    parse_address(request.match_info["address"])
    found = await asked_for(rest, request)
    return json_answer([{"id": one.name, "partitions": one.partitions} for one in found])


def _told(stream_id: str, address: str) -> dict[str, str]:
    return {"streamId": stream_id, "storageNodeAddress": address}
