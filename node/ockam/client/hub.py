"""Any Ockam node's stream and index services, at the end of a route.

Hubs are asked as their released clients ask them, so that both may share streams and positions.
A hub may be away, or come back with its streams at other addresses or with nothing left. Then a
stream is created again, which finds it where it still is, and what had no answer is asked again.
"""

from typing import Final

from rillnode.codecs.errors import RequestError
from rillnode.codecs.limits import PARTITIONS_MAX
from rillnode.codecs.routing.routes import Route
from rillnode.node.client.correspondent import Correspondent
from rillnode.node.client.messages import ANSWER_SECONDS, as_route
from rillnode.node.ockam.client.hub_calls import HubCalls, HubServices
from rillnode.node.ockam.client.hub_index import HubIndex
from rillnode.node.ockam.client.hub_stream import HubStream, create

PATIENCE_SECONDS: Final = 60.0


class Hub:
    """The stream and index services at the end of a route; no connection of its own.

    Args:
        way: carries what is asked and answered, a client or a secure channel; the hub is there as
            long as that is.
        route: leads to the node, `peer/hub` or `1#host:4000`; empty: the next node itself.
        services: how it calls its services: `stream` and `stream_index`, or `stream_service` and
            `stream_index_service`, as until 2021-07. `auto`: whichever answers.
        answer_seconds: how long one answer may take; released clients wait 10 s.
        patience_seconds: how long a hub that is away is asked again.

    Raises:
        CodecError: the text is no route.
    """

    def __init__(
        self,
        way: Correspondent,
        route: Route | str = (),
        *,
        services: HubServices = "auto",
        answer_seconds: float = ANSWER_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._calls = HubCalls(
            way.messages,
            as_route(route),
            services=services,
            answer_seconds=answer_seconds,
            patience_seconds=patience_seconds,
        )

    async def stream(self, name: str | None = None, *, partitions: int | None = None) -> HubStream:
        """Create a stream, or find it.

        Args:
            name: None lets the hub make one up.
            partitions: how many there must be at least. None: a plain stream, which for hubs is
                partition 0 of the name.

        Raises:
            RequestError: `hub.refused`, the hub answered `error`; `hub.answer`, it answered what
                no stream service does; `hub.request`, this cannot be asked; or a node on the way
                could not hand it on (`peer.unreachable`, `address.unknown`).
            ActorError: `hub.timeout`, no answer within the patience.
            TransportError: the client or its channel is closed.
        """
        if partitions is not None and not 1 <= partitions <= PARTITIONS_MAX:
            # Released hubs do not answer 0.
            text = f"a stream has 1 to {PARTITIONS_MAX} partitions, not {partitions}"
            raise RequestError("hub.request", text)
        found = await self._calls.persist(lambda: create(self._calls, name, partitions))
        return HubStream(self._calls, found, partitions)

    async def get_index(
        self, client_id: str, stream: str, *, partition: int | None = None
    ) -> int | None:
        """A consumer's saved position: the next index it reads, None when never saved.

        Args:
            client_id: the consumer.
            stream: the stream's name.
            partition: None: the position in the plain stream.

        Raises:
            RequestError, ActorError, TransportError: as `stream`. Released hubs answer nothing
                to a request that they cannot read.
        """
        index = HubIndex(self._calls, client_id, stream, partition)
        return await self._calls.persist(index.load)

    async def set_index(
        self, client_id: str, stream: str, index: int, *, partition: int | None = None
    ) -> int:
        """Save a consumer's position; return what the hub holds then: never less than `index`.

        Raises:
            RequestError, TransportError: as `stream`.
            ActorError: `hub.timeout`; `hub.not_saved`, the hub still holds less.
        """
        position = HubIndex(self._calls, client_id, stream, partition)
        return await self._calls.persist(lambda: position.save(index))
