"""Checks which return routes a worker may keep for later messages."""

from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.router import Router
from rillnode.codecs.limits import RECORDED_ROUTE_BYTES_MAX
from rillnode.codecs.routing.routes import LOCAL, Route


def leads_out(router: Router, origin: Origin, route: Route) -> bool:
    """Whether a route begins with the very connection that its message came through.

    Nothing sent to such a route comes to a worker of this node. So no two workers that keep routes
    can send to each other for ever, or a copy of each copy. It is small enough to be kept, too.
    """
    return (
        bool(route)
        and route[0].type == LOCAL
        and origin.connection is not None
        and router.lookup(route[0].value) is origin.connection
        and sum(len(address.value) for address in route) <= RECORDED_ROUTE_BYTES_MAX
    )
