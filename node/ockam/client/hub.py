"""Any Ockam node's stream, index and forwarding services, at the end of a route.

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
from rillnode.node.client.serving import CALLS_MAX, LEASE_SECONDS, Handler
from rillnode.node.ockam.client.hub_calls import HubCalls, HubServices
from rillnode.node.ockam.client.hub_index import HubIndex
from rillnode.node.ockam.client.hub_stream import HubStream, create
from rillnode.node.ockam.client.serving import HubService

PATIENCE_SECONDS: Final = 60.0


class Hub:
    """The services of an Ockam node at the end of a route; no connection of its own.

    A push without a confirm is sent again after `answer_seconds`: it is stored at least once, and
    perhaps out of order. A confirm means what the hub means by it. A hub that is away is asked
    again for `patience_seconds`; its streams are created again, which finds those that still exist.
    A consumer whose saved position is gone reads from the first entry. Hubs do not confirm saved
    positions: `set_index` reads one back, and a consumer does so when it ends.

    Released hubs in memory share positions between the partitions of a stream: each consumer needs
    a name of its own. Entries of more than 65,000 bytes with their routes are lost on u16 links,
    and so are answers: set the `limit` of `pull` and `consumer` accordingly. Positions at hubs of
    2021-04 cannot be read.

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
        self._messages = way.messages
        self._route = as_route(route)
        self._answer_seconds = answer_seconds
        self._calls = HubCalls(
            way.messages,
            self._route,
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

    async def serve(
        self,
        name: str | None,
        handler: Handler,
        *,
        calls_max: int = CALLS_MAX,
        lease_seconds: float = LEASE_SECONDS,
    ) -> HubService:
        """Have an alias at the hub: what is sent to it comes here, and is answered from here.

        It lasts over lost links and restarts of the hub, until `HubService.stop` or the end of
        the client. Who asks is told nothing where there is no answer: Ockam has no word for it,
        nor for who asks, so each message's principal is `anonymous`.

        Args:
            name: the alias is `forward_to_<name>`, by the service `static_forwarding`: released
                hubs have it since 2022-02, and from 2023-10 for proved identities only. None: the
                hub makes up a name, by `forwarding`.
            handler: as of `Client.serve`.
            calls_max: calls that are open at a time, 1 to 4,096; others are dropped and counted.
            lease_seconds: an alias that is lost is asked for again within this time.

        Raises:
            RequestError: `address.invalid`, nobody can have that name; `serve.limit`, wrong
                numbers; or a node on the way could not hand the request on (`peer.unreachable`).
            ActorError: `hub.timeout`, the hub has not given it.
            TransportError: the client or its channel is closed.
        """
        service = HubService(
            self._messages,
            self._route,
            name,
            handler,
            calls_max=calls_max,
            lease_seconds=lease_seconds,
        )
        await service.begin(self._answer_seconds)
        return service
