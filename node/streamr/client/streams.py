"""Streams as a Streamr server's REST interface tells of them, and who may do what there."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Annotated, Final, Generic, Literal, TypeVar
from urllib.parse import quote

from msgspec import Meta, Struct

from rillnode.codecs.errors import RequestError
from rillnode.codecs.limits import PARTITIONS_MAX
from rillnode.codecs.streamr.ethereum import parse_address
from rillnode.codecs.streamr.json_text import Name
from rillnode.node.streamr.client.rest import Rest, convert

CACHE_SECONDS: Final = 900.0
"""How long an answer holds, as with released clients: a permission that is given or taken back
shows after at most this long."""

REFUSAL_SECONDS: Final = 15.0
"""How long a no holds: who was let in just now is not kept out."""

_CACHED_MAX: Final = 10_000

Operation = Literal["get", "edit", "delete", "publish", "subscribe", "share"]
"""What can be granted."""

Answer = TypeVar("Answer")


class StreamInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """A server's description of a stream.

    Attributes:
        id: the stream's id, by which messages name it.
        partitions: their number.
        name: what people call it.
        description: what people say of it.
        require_signed_data: unsigned messages are refused.
        require_encrypted_data: messages in clear are refused.
    """

    id: Name
    partitions: Annotated[int, Meta(ge=1, le=PARTITIONS_MAX)] = 1
    name: str | None = None
    description: str | None = None
    require_signed_data: bool = False
    require_encrypted_data: bool = False


class Permission(Struct, frozen=True, kw_only=True):
    """One permission on a stream.

    Attributes:
        operation: as the server calls it: `stream_` and an Operation.
        id: the server's name for the permission, by which it is deleted.
        user: an address or a user's name; None: everybody.
        anonymous: whether it is everybody's.
    """

    operation: str
    id: int | str | None = None
    user: str | None = None
    anonymous: bool = False


class Streams:
    """The streams of one server.

    What is asked for each message is answered from a cache of at most 10,000 answers.

    Args:
        rest: makes the calls.
        monotonic: seconds that never go back.
    """

    def __init__(self, rest: Rest, monotonic: Callable[[], float]) -> None:
        self._rest = rest
        self._infos = _Cache[StreamInfo](monotonic)
        self._members = _Cache[bool](monotonic)

    async def create(
        self,
        stream_id: str,
        *,
        partitions: int,
        description: str,
        require_signed: bool,
        require_encrypted: bool,
    ) -> StreamInfo:
        """Create a stream; see `Client.create_stream`."""
        body = {
            "id": stream_id,
            "name": stream_id,
            "description": description,
            "partitions": partitions,
            "requireSignedData": require_signed,
            "requireEncryptedData": require_encrypted,
        }
        info = convert(await self._rest.post("/streams", body), StreamInfo)
        self._infos.keep(stream_id, info, CACHE_SECONDS)
        return info

    async def get(self, stream_id: str, *, fresh: bool = False) -> StreamInfo:
        """Tell about a stream; `fresh` asks the server, else a cached answer will do.

        Raises:
            RequestError: `NOT_FOUND`; PERMISSION_DENIED or whatever else the server says.
            TransportError: it is not reached.
        """
        info = None if fresh else self._infos.find(stream_id)
        if info is None:
            info = convert(await self._rest.get(_path(stream_id)), StreamInfo)
            self._infos.keep(stream_id, info, CACHE_SECONDS)
        return info

    async def grant(
        self, stream_id: str, operations: Sequence[Operation], user: str | None
    ) -> list[Permission]:
        """Give permissions; see `Client.grant`."""
        whom: dict[str, object] = {"anonymous": True} if user is None else {"user": user}
        granted: list[Permission] = []
        for operation in operations:
            body = {"operation": f"stream_{operation}", **whom}
            found = await self._rest.post(_path(stream_id) + "/permissions", body)
            granted.append(convert(found, Permission))
        self._members.clear()
        return granted

    async def revoke(
        self, stream_id: str, operations: Sequence[Operation], user: str | None
    ) -> list[Permission]:
        """Take permissions back; see `Client.revoke`."""
        wanted = {f"stream_{operation}" for operation in operations}
        whose = None if user is None else user.lower()
        revoked = [
            one
            for one in await self.permissions(stream_id)
            if one.operation in wanted and (None if one.user is None else one.user.lower()) == whose
        ]
        for permission in revoked:
            await self._rest.delete(f"{_path(stream_id)}/permissions/{permission.id}")
        self._members.clear()
        return revoked

    async def permissions(self, stream_id: str) -> list[Permission]:
        """All permissions on a stream."""
        return convert(await self._rest.get(_path(stream_id) + "/permissions"), list[Permission])

    async def is_publisher(self, stream_id: str, address: str) -> bool:
        """Whether messages of this address belong on the stream."""
        return await self._is_member(stream_id, "publisher", address)

    async def is_subscriber(self, stream_id: str, address: str, *, fresh: bool = False) -> bool:
        """Whether this address may read the stream; `fresh` as of `get`."""
        return await self._is_member(stream_id, "subscriber", address, fresh=fresh)

    async def _is_member(
        self, stream_id: str, role: str, address: str, *, fresh: bool = False
    ) -> bool:
        address = parse_address(address)
        name = f"{role} {address} {stream_id}"
        known = None if fresh else self._members.find(name)
        if known is None:
            path = f"{_path(stream_id)}/{role}/{address}"
            known = True
            try:
                await self._rest.get(path)
            except RequestError as error:
                if error.context.get("status") != 404:
                    raise
                known = False
            self._members.keep(name, known, CACHE_SECONDS if known else REFUSAL_SECONDS)
        return known


class _Cache(Generic[Answer]):
    """Answers that hold for a time; beyond _CACHED_MAX the longest kept is forgotten."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._kept: OrderedDict[str, tuple[Answer, float]] = OrderedDict()

    def find(self, name: str) -> Answer | None:
        answer, end = self._kept.get(name, (None, 0.0))
        return answer if self._monotonic() < end else None

    def keep(self, name: str, answer: Answer, seconds: float) -> None:
        self._kept[name] = (answer, self._monotonic() + seconds)
        self._kept.move_to_end(name)
        if len(self._kept) > _CACHED_MAX:
            self._kept.popitem(last=False)

    def clear(self) -> None:
        self._kept.clear()


def _path(stream_id: str) -> str:
    return "/streams/" + quote(stream_id, safe="")
