"""What users keep of repos: the rules of pinning, opening and subscribing, without any actor."""

from collections.abc import Iterable, Mapping
from typing import Final

from rillnode.actors.nextgraph.records import Overlay, Pin
from rillnode.actors.nextgraph.session import Asked, Refusal
from rillnode.codecs.limits import NEXTGRAPH_TOPICS_MAX
from rillnode.codecs.nextgraph.requests import (
    BlocksExist,
    BlocksGet,
    CommitGet,
    OpenRepo,
    PinRepo,
    RepoPinStatusReq,
)
from rillnode.codecs.nextgraph.responses import BlocksFound
from rillnode.codecs.nextgraph.results import ResultCode
from rillnode.codecs.nextgraph.types import (
    InnerOverlay,
    OuterOverlay,
    OverlayId,
    ReadOnlyAccess,
    ReadWriteAccess,
    WriteOnlyAccess,
)

NOTHING: Final = Pin()


def check_access(overlay: OverlayId, request: PinRepo | OpenRepo) -> None:
    """Check that a repo is asked for as its kind of access allows.

    Raises:
        Refusal: INVALID_REQUEST.
    """
    exposes = isinstance(request, PinRepo) and request.expose_outer
    match request.overlay:
        case ReadOnlyAccess(overlay=OuterOverlay() as outer):
            rooted = isinstance(request, PinRepo) and request.overlay_root_topic is not None
            allowed = outer == overlay and not (request.rw_topics or rooted or exposes)
        case ReadWriteAccess(inner=InnerOverlay() as inner, outer=OuterOverlay()):
            allowed = inner == overlay and bool(request.rw_topics or not exposes)
        case WriteOnlyAccess(overlay=InnerOverlay() as inner):
            allowed = inner == overlay and not exposes
        case _:
            allowed = False
    if not allowed or len(request.ro_topics) + len(request.rw_topics) > NEXTGRAPH_TOPICS_MAX:
        raise Refusal(ResultCode.INVALID_REQUEST)


def overlay_after(known: Overlay | None, request: PinRepo | OpenRepo) -> Overlay | None:
    """The overlay as it is once a repo of it is pinned or opened; None: there is none to read.

    Raises:
        Refusal: OVERLAY_MISMATCH, the overlay is known with another outer one.
    """
    access = request.overlay
    if isinstance(access, ReadOnlyAccess):
        return known
    outer = None
    if isinstance(access, ReadWriteAccess) and isinstance(access.outer, OuterOverlay):
        outer = access.outer.id
    if known is not None and known.outer != outer:
        raise Refusal(ResultCode.OVERLAY_MISMATCH)
    root = request.overlay_root_topic if isinstance(request, PinRepo) else None
    if root is None and known is not None:
        root = known.root_topic
    return Overlay(outer=outer, root_topic=root)


def topics_of(request: PinRepo | OpenRepo) -> dict[bytes, bool]:
    """The topics that a request lists -> whether to publish on them."""
    reads = dict.fromkeys(request.ro_topics, False)
    return reads | {advert.content.topic: True for advert in request.rw_topics}


def with_topics(topics: Mapping[bytes, bool], more: Mapping[bytes, bool]) -> dict[bytes, bool]:
    """Topics, and more of them; who publishes on one goes on publishing.

    Raises:
        Refusal: INVALID_REQUEST, they are too many.
    """
    merged = dict(topics)
    for topic, publishes in more.items():
        merged[topic] = merged.get(topic, False) or publishes
    if len(merged) > NEXTGRAPH_TOPICS_MAX:
        raise Refusal(ResultCode.INVALID_REQUEST)
    return merged


def publishes(kept: Iterable[Pin], topic: bytes) -> bool:
    """Whether any of these lets their user publish on a topic."""
    return any(pin.topics.get(topic, False) for pin in kept)


def refuse_unknown(asked: Asked) -> None:
    """Answer a request about an overlay that there is not.

    Raises:
        Refusal: what such a request is told.
    """
    match asked.content:
        case BlocksExist(blocks=blocks):
            asked.answer(BlocksFound([], blocks))
        case BlocksGet() | CommitGet() | PinRepo() | OpenRepo():
            raise Refusal(ResultCode.NOT_FOUND)
        case RepoPinStatusReq():
            raise Refusal(ResultCode.FALSE)
        case _:
            raise Refusal(ResultCode.OVERLAY_NOT_FOUND)
