"""The servers of a store on JetStream: which of them answer, and whether they sync writes."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from rillnode.codecs.errors import ConfigError, StoreError
from rillnode.node.config import Config
from rillnode.node.doctor.finding import Finding, State
from rillnode.node.stores import jetstream_options

if TYPE_CHECKING:
    from rillnode.actors.storage.jetstream.options import JetStreamOptions


def servers(config: Config) -> Iterator[Finding]:
    """Every server by itself, and the syncing of all, where the store is on JetStream."""
    if config.store.engine != "jetstream":
        return
    try:
        options = jetstream_options(config.store)
    except ConfigError as error:
        advice = "`pip install 'rillnode[jetstream]'`"
        yield Finding("store servers", "fail", error.text, advice)
        return
    yield from asyncio.run(_looked_at(options))


async def _looked_at(options: "JetStreamOptions") -> list[Finding]:
    found = await asyncio.gather(
        *(_server(replace(options, servers=(url,))) for url in options.servers)
    )
    if all(finding.state == "fail" for finding in found):
        return [*found, await _syncing(options)]
    # A node takes the next one.
    borne = [replace(one, state="warn") if one.state == "fail" else one for one in found]
    return [*borne, await _syncing(options)]


async def _server(options: "JetStreamOptions") -> Finding:
    """The only one."""
    # Here, because most nodes have neither the store nor the extra.
    from rillnode.actors.storage.jetstream.checks import VERSION_MIN, version_text
    from rillnode.actors.storage.jetstream.server import Server

    check = f"store server {options.servers[0]}"
    server = Server(options, on_lost=lambda: None)
    try:
        await server.connect(checked=True)
        version = server.version
    except StoreError as error:
        return Finding(check, "fail", error.text, "start it, or correct [store]; most must answer")
    finally:
        await server.close()
    if version is None or version >= VERSION_MIN:
        text = "answers" if version is None else f"nats-server {version_text(version)}"
        return Finding(check, "ok", text)
    advice = f"run {version_text(VERSION_MIN)} or later: earlier ones may lose what they confirmed"
    return Finding(check, "warn", f"nats-server {version_text(version)}", advice)


async def _syncing(options: "JetStreamOptions") -> Finding:
    from rillnode.actors.storage.jetstream.checks import REMEDY, unsynced

    reason, is_grave = await unsynced(options)
    if not reason:
        return Finding("store sync", "ok", "every write")
    state: State = "fail" if is_grave and options.sync == "always" else "warn"
    return Finding("store sync", state, reason, REMEDY)
