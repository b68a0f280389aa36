"""Streamr's REST interface, `/api/v1`: logins, streams, permissions, stored and new messages.

Stream ids stand in paths as they are or percent-encoded; where they hold slashes that are not
encoded, the words behind them (`/publishers`) count as the call's.

Source: streamr-core-api and streamr-broker 14, as clients 2 to 5 use them.
"""

from typing import Final

from aiohttp import web

from rillnode.codecs.errors import RequestError
from rillnode.node.streamr.rest import (
    data,
    fields,
    login,
    members,
    publishing,
    storage_nodes,
    streams,
)
from rillnode.node.streamr.rest.answers import empty_answer
from rillnode.node.streamr.rest.rest import Handler, Rest, handled

__all__ = ["PREFIX", "Rest", "add_routes"]

PREFIX: Final = "/api/v1"
_STREAM: Final = "/streams/{id:.+}"
_DATA: Final = _STREAM + "/data/partitions/{partition}"


async def _options(rest: Rest, request: web.Request) -> web.StreamResponse:
    """What a browser asks before it lets a page ask; the headers are added to every answer."""
    return empty_answer(204)


async def _unknown(rest: Rest, request: web.Request) -> web.StreamResponse:
    raise RequestError("rest.unknown", f"There is no {request.method} {request.path[:200]}")


_ROUTES: Final[tuple[tuple[str, str, Handler], ...]] = (
    ("POST", "/login/challenge/{address}", login.challenge),
    ("POST", "/login/response", login.response),
    ("POST", "/login/apikey", login.api_key),
    ("POST", "/logout", login.log_out),
    ("GET", "/users/me", login.me),
    ("POST", "/streams", streams.create),
    ("GET", "/streams", streams.list_all),
    ("GET", _DATA + "/last", data.last),
    ("GET", _DATA + "/from", data.from_ref),
    ("GET", _DATA + "/range", data.between),
    ("POST", _STREAM + "/data", publishing.publish),
    ("GET", _STREAM + "/validation", streams.validation),
    ("GET", _STREAM + "/publishers", members.publishers),
    ("GET", _STREAM + "/subscribers", members.subscribers),
    ("GET", _STREAM + "/publisher/{address}", members.is_publisher),
    ("GET", _STREAM + "/subscriber/{address}", members.is_subscriber),
    ("GET", _STREAM + "/permissions", members.list_permissions),
    ("POST", _STREAM + "/permissions", members.grant),
    ("GET", _STREAM + "/permissions/me", members.my_permissions),
    ("GET", _STREAM + "/permissions/{permission}", members.get_permission),
    ("DELETE", _STREAM + "/permissions/{permission}", members.revoke),
    ("GET", _STREAM + "/detectFields", fields.detect),
    ("GET", _STREAM + "/storageNodes", storage_nodes.of_stream),
    ("POST", _STREAM + "/storageNodes", storage_nodes.add),
    ("DELETE", _STREAM + "/storageNodes/{address}", storage_nodes.remove),
    ("GET", "/storageNodes/{address}/streams", storage_nodes.streams_of),
    ("GET", _STREAM, streams.get),
    ("PUT", _STREAM, streams.edit),
    ("DELETE", _STREAM, streams.delete),
    ("OPTIONS", "/{rest:.*}", _options),
    ("*", "/{rest:.*}", _unknown),
)


def add_routes(app: web.Application, rest: Rest) -> None:
    """Serve the interface; whatever else is below PREFIX has to be added before."""
    for method, path, handler in _ROUTES:
        handle = handled(rest, handler)
        if method == "GET":
            app.router.add_get(PREFIX + path, handle)
        else:
            app.router.add_route(method, PREFIX + path, handle)
