"""Bi-directional streams as their peers use them: what tests of them ask, and look for."""

from core_support import Core
from hub_support import ME, HubPeer
from rillnode.actors.core.access import VERBS, Grant, Verb
from rillnode.codecs.ockam.stream_item import encode_entry
from rillnode.codecs.routing.routes import Address, Route, WireMessage
from rillnode.codecs.routing.stream import (
    BidirectionalPublisherRequest,
    BidirectionalRequest,
    CreateRequest,
    GetIndexRequest,
    IndexResponse,
    PullRequest,
    PullResponse,
    PushRequest,
    decode_response,
    encode_request,
)

FRIEND = "noise:" + "33" * 32
SERVICE = "stream_subscribe"


def grant(core: Core, principal: str, streams: str = "*", *may: Verb) -> None:
    core.access.add(Grant(who=principal, streams=streams, may=frozenset(may or VERBS)))


def friend(core: Core) -> HubPeer:
    """A peer that may do everything."""
    grant(core, FRIEND)
    return HubPeer(core, FRIEND)


async def create(peer: HubPeer, *names: str) -> None:
    for name in names:
        assert await peer.ask("stream", encode_request(CreateRequest(name)))


async def push(peer: HubPeer, stream: str, *entries: bytes) -> None:
    for entry in entries:
        await peer.ask(f"ST_S_0_{stream}", encode_request(PushRequest(1, entry)))


async def entries(peer: HubPeer, stream: str) -> list[bytes]:
    (answer,) = await peer.ask(f"ST_S_0_{stream}", encode_request(PullRequest(1, 0, 10_000)))
    pulled = decode_response(answer.payload)
    assert isinstance(pulled, PullResponse)
    return [data for _, data in pulled.messages]


async def saved(peer: HubPeer, stream: str, subscription_id: str = "foo") -> int | None:
    request = encode_request(GetIndexRequest(subscription_id, stream))
    (answer,) = await peer.ask("stream_index", request)
    response = decode_response(answer.payload)
    assert isinstance(response, IndexResponse)
    return response.index


async def subscribe(peer: HubPeer, stream: str, subscription_id: str = "foo") -> list[WireMessage]:
    """Subscribe, and return what came of it."""
    return await peer.ask(SERVICE, encode_request(BidirectionalRequest(stream, subscription_id)))


async def publishers(peer: HubPeer, to: str, back: str, subscription_id: str = "") -> list[Address]:
    request = BidirectionalPublisherRequest(to, back, subscription_id)
    answers = await peer.ask(SERVICE, encode_request(request))
    return [answer.return_route[0] for answer in answers]


def item(onward: Route, payload: bytes = b"hi", *, back: str = "back", sender: Route = ME) -> bytes:
    return encode_entry(back, WireMessage(onward, sender, payload))
