"""A hub's index service: positions of consumers."""

from rillnode.codecs.errors import ActorError, TransportError
from rillnode.codecs.routing.routes import Route
from rillnode.codecs.routing.stream import (
    GetIndexRequest,
    GetPartitionIndexRequest,
    IndexResponse,
    PartitionIndexResponse,
    Response,
    SaveIndexRequest,
    SavePartitionIndexRequest,
)
from rillnode.node.ockam.client.hub_calls import HubCalls

_Answer = IndexResponse | PartitionIndexResponse


class HubIndex:
    """One consumer's position in a stream, or in one partition of it.

    Args:
        calls: reaches the services.
        client_id: the consumer.
        stream: the stream's name.
        partition: None: the position in the plain stream.
    """

    def __init__(self, calls: HubCalls, client_id: str, stream: str, partition: int | None) -> None:
        self._calls = calls
        self._client_id = client_id
        self._stream = stream
        self._partition = partition

    async def load(self) -> int | None:
        """The next index that the consumer reads, None when never saved; asks once."""
        request = (
            GetIndexRequest(self._client_id, self._stream)
            if self._partition is None
            else GetPartitionIndexRequest(self._client_id, self._stream, self._partition)
        )
        answer: _Answer = await self._calls.ask_service("_index", request, self._take)
        return answer.index

    async def save(self, index: int) -> int:
        """Save, and ask what the hub holds then, as it does not answer a save; asks once.

        Raises:
            ActorError: `hub.not_saved`, it holds less.
        """
        self.tell(index)
        held = await self.load()
        if held is None or held < index:
            text = f"the hub holds {held} for {self._client_id}, not {index}"
            raise ActorError("hub.not_saved", text)
        return held

    def tell(self, index: int) -> bool:
        """Send a position to be saved; return whether it was sent, which does not say saved."""
        request = (
            SaveIndexRequest(self._client_id, self._stream, index)
            if self._partition is None
            else SavePartitionIndexRequest(self._client_id, self._stream, self._partition, index)
        )
        try:
            self._calls.tell_service("_index", request)
        except TransportError as error:
            if error.code != "link.closed":
                raise
            return False
        return True

    def _take(self, response: Response, _: Route) -> _Answer | None:
        match response:
            case IndexResponse():
                partition = None
            case PartitionIndexResponse():
                partition = response.partition
            case _:
                return None
        answered = (response.client_id, response.stream_name, partition)
        asked = (self._client_id, self._stream, self._partition)
        return response if answered == asked else None
