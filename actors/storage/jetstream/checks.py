"""Whether the servers are such, and set up so, that a confirm means what it says.

Replicas of one stream differ for good, after servers were killed or cut off, where nats-server is
2.9.10 (`tests/integration/test_jetstream_faults.py`).

By default nats-server acknowledges a write before it is on the disk, and syncs every two minutes:
what a majority of servers lose together in a power cut is lost though it was confirmed (Jepsen,
NATS 2.12.1, 2025-12-08: 131,418 of 930,005 acknowledged messages). Since 2.10 its configuration
takes `sync_interval: always`. A client is not told; the monitoring port is (`/varz`).
"""

import asyncio
import logging
from typing import Final
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import msgspec

from rillnode.actors.storage.jetstream.options import JetStreamOptions
from rillnode.actors.storage.jetstream.server import Server
from rillnode.codecs.errors import StoreError
from rillnode.codecs.limits import ENTRY_BYTES_MAX

logger = logging.getLogger("rillnode.actors.storage")

_MONITOR_SECONDS_MAX: Final = 5.0
_ANSWER_BYTES_MAX: Final = 1_048_576

VERSION_MIN: Final = (2, 10, 23)
"""Of nats-server: earlier ones lose what they have confirmed when servers fail."""

_REMEDY: Final = (
    "set `jetstream { sync_interval: always }` in the configuration of every server (2.10 or "
    "later; 2.10.23 or later recommended), or power them independently of each other"
)


async def check_servers(options: JetStreamOptions, server: Server) -> bool:
    """Warn of settings under which less is kept than is said; returns whether all writes sync.

    Raises:
        StoreError: syncing is required, and some server does not do it or cannot be asked.
    """
    if server.version is not None and server.version < VERSION_MIN:
        logger.warning(
            "store_servers_old",
            extra={
                "version": _text(server.version),
                "remedy": f"run nats-server {_text(VERSION_MIN)} or later: earlier ones may lose "
                "what they have confirmed when one of them fails",
            },
        )
    if server.room_bytes < 2 * ENTRY_BYTES_MAX:
        logger.warning(
            "store_messages_small",
            extra={
                "room_bytes": server.room_bytes,
                "remedy": "set max_payload: 8MB in the servers' configuration: larger batches "
                "and entries are refused",
            },
        )
    faults = [fault for url in options.monitors if (fault := await _fault(url))]
    if not options.monitors:
        faults = ["no monitoring port is configured, so the sync interval is not known"]
    if not faults:
        return True
    if options.sync_required:
        raise StoreError(
            "store.unsynced",
            f"the NATS servers do not sync every write ({'; '.join(faults)}): {_REMEDY}",
            retryable=False,
        )
    logger.warning("store_unsynced", extra={"reason": "; ".join(faults), "remedy": _REMEDY})
    return False


def _text(version: tuple[int, int, int]) -> str:
    return ".".join(map(str, version))


class _Config(msgspec.Struct):
    sync_always: bool = False
    sync_interval: int | None = None


class _JetStream(msgspec.Struct):
    config: _Config | None = None


class _Varz(msgspec.Struct):
    version: str = ""
    jetstream: _JetStream | None = None


async def _fault(url: str) -> str | None:
    try:
        return sync_fault(url, await asyncio.to_thread(_fetch, url))
    except (URLError, OSError, ValueError, msgspec.MsgspecError) as error:
        return f"{url} does not say ({error})"


def sync_fault(url: str, answer: bytes) -> str | None:
    """What the answer of `/varz` says against a server, if anything.

    Raises:
        MsgspecError: it is no such answer.
    """
    server = msgspec.json.decode(answer, type=_Varz)
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
