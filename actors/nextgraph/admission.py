"""Checks requests before any actor sees them: signatures, adverts, who publishes.

What is wrong with these ends the connection, as clients expect; what is only too large, or what an
access forbids, is refused.
"""

from typing import Final

from rillnode.actors.nextgraph.repos import check_access
from rillnode.actors.nextgraph.session import Refusal
from rillnode.codecs.errors import CodecError
from rillnode.codecs.keys import x25519_form
from rillnode.codecs.limits import ENTRY_BYTES_MAX
from rillnode.codecs.nextgraph.adverts import check_publisher_advert
from rillnode.codecs.nextgraph.events import Event, check_event
from rillnode.codecs.nextgraph.limits import NEXTGRAPH_BLOCKS_MAX, NEXTGRAPH_IDS_MAX
from rillnode.codecs.nextgraph.requests import (
    BlocksExist,
    BlocksGet,
    BlocksPut,
    OpenRepo,
    PinRepo,
    RequestContent,
    TopicSub,
)
from rillnode.codecs.nextgraph.results import NextGraphError, ProtocolCode, ResultCode
from rillnode.codecs.nextgraph.types import OuterOverlay, OverlayId

_NOT_THE_CLIENT: Final = "the event's publisher is not the client of this connection"


class RequestChecks:
    """The checks of one connection's requests.

    Args:
        broker: the broker's peer key, which adverts must name.
        client_static: the X25519 key that the connection's client has proved to have.
    """

    def __init__(self, broker: bytes, client_static: bytes) -> None:
        self._broker = broker
        self._client_static = client_static
        # The client's Ed25519 key, once an event has named it: working out the X25519 form takes as
        # long as checking a signature.
        self._publisher: bytes | None = None

    def check(self, overlay: OverlayId, content: RequestContent) -> bytes:
        """Check what a request about an overlay claims; return an event as it is stored.

        Raises:
            NextGraphError: a signature does not hold, or is for or by somebody else.
            Refusal: INVALID_REQUEST, it is larger than can be kept, or its access forbids it.
        """
        match content:
            case Event():
                return self._check_event(content)
            case PinRepo() | OpenRepo():
                check_access(overlay, content)
                for advert in content.rw_topics:
                    check_publisher_advert(advert, self._broker)
            case BlocksPut(blocks=blocks) if len(blocks) > NEXTGRAPH_BLOCKS_MAX:
                raise Refusal(ResultCode.INVALID_REQUEST)
            case BlocksExist(blocks=ids) | BlocksGet(ids=ids) if len(ids) > NEXTGRAPH_IDS_MAX:
                raise Refusal(ResultCode.INVALID_REQUEST)
            case TopicSub(publisher=advert, topic=topic) if advert is not None:
                if isinstance(overlay, OuterOverlay):
                    raise Refusal(ResultCode.INVALID_REQUEST)
                if advert.content.topic != topic:
                    text = "the publisher's advert is for another topic"
                    raise NextGraphError(ProtocolCode.INVALID_PUBLISHER_ADVERT, text)
                check_publisher_advert(advert, self._broker)
            case _:
                pass
        return b""

    def _check_event(self, event: Event) -> bytes:
        if len(event.content.blocks) > NEXTGRAPH_BLOCKS_MAX:
            raise Refusal(ResultCode.INVALID_REQUEST)
        publisher, stored = check_event(event)
        if publisher != self._publisher:
            if not self._is_client(publisher):
                raise NextGraphError(ProtocolCode.INVALID_SIGNATURE, _NOT_THE_CLIENT)
            self._publisher = publisher
        if len(stored) > ENTRY_BYTES_MAX:
            raise Refusal(ResultCode.INVALID_REQUEST)
        return stored

    def _is_client(self, publisher: bytes) -> bool:
        try:
            return x25519_form(publisher) == self._client_static
        except CodecError:
            return False
