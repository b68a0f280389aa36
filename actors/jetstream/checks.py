"""Checks the NATS servers' version and durability settings.

Replicas of one stream differ for good, after servers were killed or cut off, where nats-server is
2.9.10; later ones, up to 2.10.22, have lost whole streams or acknowledged two messages at one
place (nats-server issues 4320, 6188).

By default nats-server acknowledges a write before it is on the disk, and syncs every two minutes:
what a majority of servers lose together in a power cut is lost though it was confirmed (Jepsen,
NATS 2.12.1, 2025-12-08: 131,418 of 930,005 acknowledged messages). Since 2.10 its configuration
takes `sync_interval: always`. A client is not told; the monitoring port is (`/varz`).
"""

import asyncio
import re
from collections.abc import Sequence
from http.client import HTTPException
from typing import Final
from urllib.parse import urlsplit
from urllib.request import urlopen

import msgspec

from rillnode.actors.jetstream.messages import DECODE_ERRORS
from rillnode.actors.jetstream.options import JetStreamOptions
from rillnode.actors.log.shared.port import unsynced_error
from rillnode.codecs.errors import StoreError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import ENTRY_BYTES_MAX

logger = event_logger("rillnode.actors.jetstream")

_MONITOR_SECONDS_MAX: Final = 5.0
_ANSWER_BYTES_MAX: Final = 1_048_576
_REASON_MAX: Final = 100
"""Characters of what a server says instead."""

VERSION_MIN: Final = (2, 10, 0)
"""Of nats-server: earlier ones do not keep what says whose a stream is."""

REPLICAS_VERSION_MIN: Final = (2, 10, 23)
"""Of servers with replicas: earlier ones lose what they have confirmed when servers fail."""

REMEDY: Final = (
    "set `jetstream { sync_interval: always }` in the configuration of every server, and name all "
    'their monitoring addresses in [store] monitors; or set [store] sync = "interval": then '
    "entries that were confirmed may be lost if all servers lose power at once"
)


def version_of(text: str) -> tuple[int, int, int]:
    """A server's version, without what is beside its numbers; zeros where it is none."""
    found = re.match(r"v?(\d{1,6})\.(\d{1,6})\.(\d{1,6})", text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else (0, 0, 0)


def check_version(text: str, replicas: int, *, is_news: bool = True) -> None:
    """Refuse a server that is too old, and warn of one that is so for replicas only, if it is news.

    Raises:
        StoreError: `store.old`.
    """
    version = version_of(text)
    wanted = ".".join(map(str, REPLICAS_VERSION_MIN))
    if version < VERSION_MIN or (replicas > 1 and version < REPLICAS_VERSION_MIN):
        raise StoreError(
            "store.old",
            f"nats-server {text or '(of no known version)'} may lose what it has confirmed when a "
            f"server fails: run nats-server {wanted} or later on every server",
            retryable=False,
        )
    if version < REPLICAS_VERSION_MIN and is_news:
        remedy = f"run nats-server {wanted} or later: with replicas it is demanded"
        logger.warning("store_servers_old", extra={"version": text, "remedy": remedy})


async def check_servers(options: JetStreamOptions, version: str, known: str | None = None) -> str:
    """Why not all writes are known to be synced; empty where they are. Warns of that, if it is new.

    Args:
        options: where the servers' monitoring is.
        version: of the server that is connected to; others tell theirs by their monitoring.
        known: what was returned the last time; None: they were not asked yet.

    Raises:
        StoreError: `store.old`: some server is. `store.unsynced`: every write is to be synced, and
            some server says that it does not, or too few say that they do; in the latter case it
            may be tried again.
    """
    check_version(version, options.replicas, is_news=known is None)
    said = await _ask_all(options)
    for server in said:
        if isinstance(server, Varz) and server.version != version:
            check_version(server.version, options.replicas, is_news=known is None)
    reason, is_grave = _judged(options, said)
    if is_grave and options.sync == "always":
        silent = [answer for answer in said if isinstance(answer, str)]
        raise unsynced_error(
            f"the NATS servers are not known to sync every write ({reason}): {REMEDY}",
            retryable=len(silent) > 0 and reason == "; ".join(silent),
        )
    if reason and reason != known:
        logger.warning("store_unsynced", extra={"reason": reason, "remedy": REMEDY})
    return reason


def check_room(message_bytes_max: int) -> None:
    """Warn of servers that take only small messages, which are those that are set up by default."""
    if message_bytes_max < 2 * ENTRY_BYTES_MAX:
        remedy = "set max_payload: 8MB in the servers' configuration: larger batches are refused"
        logger.warning(
            "store_messages_small", extra={"room_bytes": message_bytes_max, "remedy": remedy}
        )


async def unsynced(options: JetStreamOptions) -> tuple[str, bool]:
    """Why not all writes are known to be synced, if so; and whether that is more than some away.

    A node must start though a server is away, or the loss of one machine would be that of two. So
    it is enough that most of the cluster's servers are known to sync, and that the others are too
    few to confirm without one of them: fewer than a majority of an entry's replicas.
    """
    return _judged(options, await _ask_all(options))


def _judged(options: JetStreamOptions, said: Sequence["Varz | str"]) -> tuple[str, bool]:
    if not said:
        return "no monitoring address is configured, so the sync interval is not known", True
    silent = [answer for answer in said if isinstance(answer, str)]
    faults: list[str] = []
    synced: set[str] = set()
    count = len(options.monitors)
    for url, answer in zip(options.monitors, said, strict=True):
        if not isinstance(answer, str):
            count = max(count, answer.cluster_size)
            if fault := sync_fault(url, answer):
                faults.append(fault)
            else:
                synced.add(answer.server_id or url)
    unasked = count - len(synced) - len(faults) - len(silent)
    if unasked > 0:
        silent.append(f"{unasked} of {count} servers have no monitoring address here")
    unknown = count - len(synced)
    is_grave = bool(faults) or 2 * unknown >= count or unknown > options.replicas // 2
    return "; ".join([*faults, *silent]), is_grave


class _Config(msgspec.Struct):
    sync_always: bool = False
    sync_interval: int | None = None


class _Meta(msgspec.Struct):
    cluster_size: int = 1


class _JetStream(msgspec.Struct):
    config: _Config | None = None
    meta: _Meta | None = None


class Varz(msgspec.Struct):
    """The part of a server's monitoring that matters here."""

    server_id: str = ""
    version: str = ""
    jetstream: _JetStream | None = None

    @property
    def cluster_size(self) -> int:
        """How many servers its cluster has, those that are away included."""
        meta = None if self.jetstream is None else self.jetstream.meta
        return 1 if meta is None else meta.cluster_size


async def _ask_all(options: JetStreamOptions) -> list[Varz | str]:
    return await asyncio.gather(*map(_ask, options.monitors))


async def _ask(url: str) -> Varz | str:
    """What a server says, or that it says nothing."""
    try:
        return decode_varz(await asyncio.to_thread(_fetch, url))
    except (OSError, HTTPException, *DECODE_ERRORS) as error:
        return f"{url} does not say ({str(error)[:_REASON_MAX]})"


def decode_varz(answer: bytes) -> Varz:
    """Read the answer of `/varz`.

    Raises:
        MsgspecError: it is no such answer.
    """
    return msgspec.json.decode(answer, type=Varz)


def sync_fault(url: str, server: Varz) -> str | None:
    """What there is against a server's way to sync, if anything."""
    config = None if server.jetstream is None else server.jetstream.config
    if config is None:
        return f"{url} has no JetStream"
    if config.sync_always:
        return None
    # Before 2.10 there was nothing to set, and nothing is said.
    seconds = 120.0 if config.sync_interval is None else config.sync_interval / 1e9
    return f"{url} syncs every {seconds:g} seconds (nats-server {server.version})"


def _fetch(url: str) -> bytes:
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError("not an HTTP address")
    with urlopen(url.rstrip("/") + "/varz", timeout=_MONITOR_SECONDS_MAX) as answer:
        body: bytes = answer.read(_ANSWER_BYTES_MAX)
        return body
