"""Checks what the types of `[overlay]` and `[streamr_network]` cannot."""

from collections.abc import Iterator
from typing import Final

from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.node_address import parse_url
from rillnode.node.config.address import WILDCARDS
from rillnode.node.config.paths import KeyPath
from rillnode.node.config.problem import Problem
from rillnode.node.config.tables import Config

_RELEASED: Final = "streamr_network"


def overlay_problems(config: Config) -> Iterator[Problem]:
    """What is wrong with how streams are shared with other nodes."""
    yield from _overlay(config)
    yield from _streamr_network(config)


def _overlay(config: Config) -> Iterator[Problem]:
    table = config.overlay
    if table is None:
        return
    names = {peer.name for peer in config.peers if peer.noise is not None}
    for at, name in enumerate(table.trackers):
        if name not in names:
            text = f"{name!r} is not the name of a peer with noise"
            yield Problem(("overlay", "trackers", at), "config.value", text)
    if not config.noise.enabled:
        yield Problem(("overlay",), "config.conflict", "other nodes come to the noise listener")
    if table.advertise is None and config.noise.address.host in WILDCARDS:
        text = "noise listens on every address: say at which one others reach it"
        yield Problem(("overlay", "advertise"), "config.missing", text)


def _streamr_network(config: Config) -> Iterator[Problem]:
    table = config.streamr_network
    if table is None or not table.enabled:
        return
    for at, url in enumerate(table.trackers):
        yield from _url((_RELEASED, "trackers", at), url)
    if table.advertise is not None:
        yield from _url((_RELEASED, "advertise"), table.advertise)
    if table.trackers and config.overlay is None:
        text = "which streams are shared is said in an [overlay] table"
        yield Problem((_RELEASED, "trackers"), "config.missing", text)
    if table.trackers and config.overlay is not None and config.overlay.trackers:
        text = "streams have these trackers or those of [overlay], not both"
        yield Problem((_RELEASED, "trackers"), "config.conflict", text)
    if not table.trackers and not config.tracker.enabled and config.overlay is None:
        text = "released nodes come to a tracker or to one that shares streams: "
        text += "add [tracker] with enabled = true, or [overlay]"
        yield Problem((_RELEASED,), "config.missing", text)
    if table.advertise is None and table.address.host in WILDCARDS:
        text = "it listens on every address: say at which URL others reach it"
        yield Problem((_RELEASED, "advertise"), "config.missing", text)


def _url(path: KeyPath, url: str) -> Iterator[Problem]:
    try:
        parse_url(url)
    except CodecError as error:
        yield Problem(path, "config.value", f"{url!r}: {error.text}")
