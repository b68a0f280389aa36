"""The servers of a store on JetStream: which of them answer, whether they sync, and their log."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from rillnode.codecs.errors import RillnodeError, StoreError
from rillnode.node.cli.connection import target_of
from rillnode.node.client import connect
from rillnode.node.config import Config
from rillnode.node.doctor.finding import Finding, State
from rillnode.node.entry_lines import duration
from rillnode.node.jetstream.config import JetStreamStore

if TYPE_CHECKING:
    from rillnode.actors.jetstream.options import JetStreamOptions


_START: Final = "start it, or correct [store]; most must answer"

_RESTORE: Final = "restore the servers' storage"

_CATCH_UP: Final = "see that its disk has room, and its own log: it catches up by itself"

_LEAVE: Final = "let nobody but the nodes write to the log; see frame_damaged in the node's log"

_ANSWER_SECONDS: Final = 5.0
"""A node that runs tells by then how it is."""

_BEHIND_FRAMES: Final = 1_000
"""More than a view is behind for a moment."""


def servers(config: Config, _: Mapping[str, str]) -> Iterator[Finding]:
    """Every server by itself, the syncing of all, and the log, where the store is on JetStream."""
    if isinstance(config.store, JetStreamStore):
        yield from asyncio.run(_looked_at(config, config.store.options))


async def _looked_at(config: Config, options: "JetStreamOptions") -> list[Finding]:
    found = await asyncio.gather(
        *(_server(replace(options, servers=(url,))) for url in options.servers)
    )
    if not all(finding.state == "fail" for finding in found):
        # A node takes the next one.
        found = [replace(one, state="warn") if one.advice == _START else one for one in found]
    return [*found, await _syncing(options), await _log(options), *await _views(config)]


async def _server(options: "JetStreamOptions") -> Finding:
    """The only one."""
    # Here as below, because most nodes do not have this store.
    from rillnode.actors.jetstream.checks import REPLICAS_VERSION_MIN, check_version, version_of
    from rillnode.actors.jetstream.connection import Connection
    from rillnode.actors.log.shared.port import LogLost

    check = f"store server {options.servers[0]}"
    connection = Connection(options)
    try:
        await connection.open()
        version = connection.version
    except StoreError as error:
        return Finding(check, "fail", error.text, _START)
    except LogLost as error:
        return Finding(check, "fail", str(error), _START)
    finally:
        await connection.close()
    try:
        check_version(version, options.replicas)
    except StoreError as error:
        return Finding(check, "fail", error.text, "update it: no node starts with it")
    if version_of(version) < REPLICAS_VERSION_MIN:
        return Finding(check, "warn", f"nats-server {version}", "update it before it has replicas")
    return Finding(check, "ok", f"nats-server {version}")


async def _syncing(options: "JetStreamOptions") -> Finding:
    from rillnode.actors.jetstream.checks import REMEDY, unsynced

    reason, is_grave = await unsynced(options)
    if not reason:
        return Finding("store sync", "ok", "every write")
    state: State = "fail" if is_grave and options.sync == "always" else "warn"
    return Finding("store sync", state, reason, REMEDY)


async def _log(options: "JetStreamOptions") -> Finding:
    """What there is of the log; nothing is made."""
    from rillnode.actors.jetstream.connection import Connection
    from rillnode.actors.jetstream.making import found_log
    from rillnode.actors.log.shared.port import LogLost

    connection = Connection(options)
    try:
        await connection.open()
        made, found = await found_log(connection, options.prefix)
    except StoreError as error:
        return Finding("store log", "fail", error.text, _RESTORE)
    except LogLost as error:
        return Finding("store log", "fail", str(error), "start the servers; a majority must answer")
    finally:
        await connection.close()
    if made is None:
        return Finding("store log", "ok", "not made yet: the first node that starts makes it")
    text = f"{made.shards} shards, {sum(one.span.last for one in found.values()):,} frames"
    missing = made.shards - len(found)
    if missing:
        return Finding("store log", "fail", f"{text}; {missing} are missing", _RESTORE)
    lacking = {name for one in found.values() for name in one.lacking}
    if lacking:
        text += f"; not all of it at {', '.join(sorted(lacking))}"
        return Finding("store log", "warn", text, _CATCH_UP)
    return Finding("store log", "ok", text)


async def _views(config: Config) -> list[Finding]:
    """How far the node's views of the log are, where it runs."""
    try:
        target = target_of(config)
        async with (
            asyncio.timeout(_ANSWER_SECONDS),
            await connect(
                target.url,
                identity=target.identity,
                node_identity=target.node_identity,
                reconnect=False,
            ) as client,
        ):
            log = (await client.status())["store"]["log"]
    except (RillnodeError, OSError, TimeoutError):
        return []
    return [] if log is None else [_judged(log)]


def _age(seconds: float) -> str:
    return duration(round(seconds / 60) * 60) if seconds >= 60 else duration(round(seconds))


def _judged(log: Mapping[str, Any]) -> Finding:
    views = log["views"]
    failed = [f"shard {view['shard']}: {view['error']}" for view in views if view["error"]]
    if failed:
        advice = "see the node's log: it takes no writes there"
        return Finding("store views", "fail", "; ".join(failed), advice)
    behind = max((view["behind"] for view in views), default=0)
    served = ", ".join(log["serve"]) or "whatever is used"
    text = f"{len(views)} of {log['shards']} shards in use, up to {behind:,} frames behind"
    ages = [view["snapshot_seconds"] for view in views if view["snapshot_seconds"] is not None]
    text += f", {len(ages)} with snapshots"
    if ages:
        text += f" of at most {_age(max(ages))}"
    text += f"; serves {served}"
    if damaged := sum(view["damaged"] for view in views):
        text += f"; passed over damaged frames: {damaged}"
        return Finding("store views", "warn", text, _LEAVE)
    if behind > _BEHIND_FRAMES:
        return Finding("store views", "warn", text, "wait: the node reads what it has missed")
    return Finding("store views", "ok", text)
