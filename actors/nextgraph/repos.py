"""Applies the rules of pinning, opening and subscribing to repos, without any actor."""

from collections.abc import Iterable, Mapping
from typing import Final, NoReturn

from rillnode.actors.nextgraph.records import Overlay, Pin
from rillnode.actors.nextgraph.session import Asked, Refusal
from rillnode.codecs.nextgraph.limits import NEXTGRAPH_TOPICS_MAX
from rillnode.codecs.nextgraph.requests import (
    BlocksExist,
    BlocksGet,
    BlocksPut,
    CommitGet,
    OpenRepo,
    PinRepo,
    RepoPinStatusReq,
    TopicSyncReq,
)
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

OncePinned = BlocksExist | BlocksGet | BlocksPut | CommitGet | TopicSyncReq
"""Requests for who has a repo of the overlay pinned or open; they do not say which one."""


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


def check_reader(asked: Asked, request: OncePinned, kept: Iterable[Pin]) -> None:
    """Check that somebody has a repo pinned or open that a request may be about.

    A request may name a topic, which must be of such a repo. A repo that was pinned without any
    stands for all of its overlay: clients learn the topics from a repo's first commits.

    Args:
        asked: the request as it came.
        request: its content.
        kept: all that its sender has of the overlay's repos.

    Raises:
        Refusal: there is none: what who asks about an unknown overlay is told; TOPIC_NOT_FOUND,
            none has the topic.
    """
    topic = None if isinstance(request, BlocksExist | BlocksPut) else request.topic
    pin = None
    for pin in kept:
        if topic is None or not pin.topics or topic in pin.topics:
            return
    if pin is None:
        refuse_unknown(asked)
    raise Refusal(ResultCode.TOPIC_NOT_FOUND)


def refuse_unknown(asked: Asked) -> NoReturn:
    """Refuse a request about an overlay that there is not, or not for its sender.

    Raises:
        Refusal: what such a request is told.
    """
    match asked.content:
        case BlocksGet() | CommitGet() | PinRepo() | OpenRepo():
            raise Refusal(ResultCode.NOT_FOUND)
        case RepoPinStatusReq():
            raise Refusal(ResultCode.FALSE)
        case _:
            raise Refusal(ResultCode.OVERLAY_NOT_FOUND)
