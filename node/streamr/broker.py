"""Streamr's side of a node: its key, its actors, and the listener for its clients."""

import os
from collections.abc import Iterable, Mapping, MutableMapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from rillnode.actors.core.streams.context import (
    PushedKeys,
    StreamRemoved,
    stream_address,
)
from rillnode.actors.engine.system import Cell
from rillnode.actors.log import StreamRecord
from rillnode.actors.streamr.catalogue import Catalogue
from rillnode.actors.streamr.connection import StreamrEvents, Terms
from rillnode.actors.streamr.context import Relays, StreamrContext
from rillnode.actors.streamr.directory import Directory, Done, LoadDirectory
from rillnode.actors.streamr.fanout import Audience
from rillnode.actors.streamr.key_exchange import KeyExchangeActor
from rillnode.actors.streamr.outlet import EITHER_LAYOUT, RELEASED_ONLY
from rillnode.actors.streamr.relay import RelayActor
from rillnode.actors.streamr.sessions import Sessions, SessionSettings
from rillnode.actors.streamr.verifying import VerifyingThreads
from rillnode.codecs.streamr.control_forms import CONTROL_VERSIONS
from rillnode.codecs.streamr.ethereum import SECRET_BYTES, EthereumKey
from rillnode.codecs.streamr.limits import STREAMR_FRAME_BYTES_MAX, STREAMR_LINK_BUFFER_BYTES_MAX
from rillnode.codecs.streamr.session_tokens import derive_key
from rillnode.codecs.streamr.sort_keys import pushed_keys
from rillnode.codecs.streamr.stream_message import Layout
from rillnode.node.config import Config
from rillnode.node.keys.files import read_secret, write_secret
from rillnode.node.plugin import Core, Host, Listening, PlugIn
from rillnode.node.streamr.config import StreamrListener, ethereum_key_file
from rillnode.node.streamr.rest import PREFIX, Rest, add_routes
from rillnode.node.streamr.rest.numbers import Numbers
from rillnode.node.streamr.rest.origins import origin_check
from rillnode.node.tls import tls_context
from rillnode.transports.groups import LinkGroup
from rillnode.transports.links import LinkLimits
from rillnode.transports.web import accept_websocket
from rillnode.transports.web_server import listen_web

PING_SECONDS: Final = 60.0
"""Clients never ping; Streamr's broker does so often."""

MESSAGE_VERSIONS: Final = (30, 31, 32)
"""What a connection may ask to be sent; Streamr's broker."""

_LAYOUTS: Final = {
    "released": RELEASED_ONLY,
    "specification": (Layout.SPECIFICATION,),
    "either": EITHER_LAYOUT,
}
"""What the parameter `layout` of a WebSocket's URL may say."""

_FOURTH_RELEASE: Final = "4."
"""Releases of streamr-client that encrypt messages of version 32 without naming the key, and
disconnect at any error, as those before them do, which speak version 1."""

_TOKENS: Final = b"streamr session tokens"

_HELPERS_MAX: Final = 3
"""A quarter of the time that a signature takes is the interpreter's, so that more find no turn."""


class Streamr(PlugIn):
    """The parts of a node that its `[streamr]` table asks for.

    Raises:
        ConfigError: the key's file cannot be used.
    """

    simulated = "rillnode.node.streamr.simulation.part:StreamrPart"

    _context: StreamrContext
    _catalogue: Catalogue
    _sessions: Sessions
    _stream_service: Cell

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._table = host.table(StreamrListener)
        self._entropy = host.entropy
        self._key = _read_or_make_key(ethereum_key_file(host.config), host.entropy(SECRET_BYTES))
        self._token_key = derive_key(bytes.fromhex(host.identity.seed_hex), _TOKENS)
        helpers = self._table.verifying_threads
        self._verifying = VerifyingThreads(
            host.threads, _helpers_of_cores() if helpers is None else helpers
        )

    @property
    def facts(self) -> Mapping[str, str]:
        """The address that signs what other clients have pushed."""
        return {"ethereum_address": self._key.address}

    @property
    def pushed_keys(self) -> PushedKeys:
        """The secondary keys of what other clients push."""
        return partial(pushed_keys, self._key.address)

    @property
    def links(self) -> Iterable[Cell]:
        """The connections that there are."""
        return tuple(self._context.open) if hasattr(self, "_context") else ()

    def start(self, core: Core) -> None:
        """Make the actors."""
        streams, system = core.streams, core.streams.system
        relay = core.actor(RelayActor)
        self._stream_service = core.service
        self._catalogue = Catalogue(streams.access)
        settings = SessionSettings(
            token_key=self._token_key,
            token_seconds=self._table.session_seconds,
            logins_per_minute=self._table.logins_per_minute,
            api_keys=self._table.key_names,
        )
        sessions = self._sessions = Sessions(
            settings, streams.clock, self._entropy, streams.access.rights
        )

        def make_relay(stream_id: str, partition: int) -> Cell:
            clients = Audience(self._context.counters, stream_id, partition)
            return system.spawn(partial(relay, self._context, stream_id, partition, clients))

        directory = partial(Directory, streams.store, sessions, self._catalogue, streams.clock)
        self._context = StreamrContext(
            streams=streams,
            node_key=self._key,
            sessions=sessions,
            relays=Relays(make_relay),
            key_exchange=system.spawn(lambda: KeyExchangeActor(self._context)),
            directory=system.spawn(directory),
            verify=self._verifying,
        )

    def changed(self, change: StreamRecord | StreamRemoved) -> None:
        """Tell those who know a stream that its record is another, or that it is no more."""
        self._catalogue.tell(change)
        self._context.relays.tell(change)
        if isinstance(change, StreamRecord):
            router = self._context.streams.router
            for partition in range(change.partitions):
                cell = router.lookup(stream_address(change.name, partition))
                if cell is not None:
                    self._context.streams.system.post(cell, change)

    def reload(self, old: Config, new: Config) -> Config:
        """Take over the API keys; what goes on by another one ends."""
        config, names = StreamrListener.rekeyed(old, new)
        self._sessions.set_api_keys(names)
        return config

    async def serve(self, bound: MutableMapping[str, Listening]) -> None:
        """Bind the listener, once logouts and permissions are known again.

        Raises:
            ActorError: `actor.failed`, what is known could not be taken over.
            ConfigError: the TLS certificate or its key cannot be used.
            StoreError: what is known cannot be read.
            TransportError: the address cannot be bound.
        """
        table = self._table
        done: Done = await self._context.streams.system.ask(
            self._context.directory, LoadDirectory()
        )
        if done.error is not None:
            raise done.error
        limits = LinkLimits(
            # WebSocket's own pings find out who is gone, so that nobody need be idle for too long.
            idle_ping_seconds=None,
            idle_close_seconds=None,
            buffer_bytes_max=STREAMR_LINK_BUFFER_BYTES_MAX,
            connections_max=table.connections_max,
            connections_per_address_max=table.connections_per_address_max,
        )
        group = LinkGroup(transport="streamr", clock=self._context.streams.clock, limits=limits)
        origins = frozenset(table.origins)
        app = self._app(group, origins)
        rest = Rest(
            context=self._context,
            sessions=self._sessions,
            catalogue=self._catalogue,
            stream_service=self._stream_service,
            numbers=Numbers(self._entropy),
            origins=origins,
        )
        add_routes(app, rest)
        tls = tls_context(table, "streamr")
        bound["streamr"] = await listen_web(app, *table.address, group=group, tls=tls)

    async def close(self) -> None:
        """End the threads that verify."""
        self._verifying.stop()

    def status(self) -> dict[str, Any]:
        """The node's address, and what was dropped or refused."""
        if not hasattr(self, "_context"):
            return {"streamr": None}
        shown = {
            **self.facts,
            "connections": len(self._context.open),
            "counters": dict(self._context.counters),
        }
        return {"streamr": shown}

    def counters(self) -> Mapping[str, Mapping[str, int]]:
        """What was dropped or refused."""
        return {"streamr": self._context.counters} if hasattr(self, "_context") else {}

    def _app(self, group: LinkGroup, origins: Set[str]) -> web.Application:
        async def connect(request: web.Request) -> web.StreamResponse:
            try:
                control_version = _version(request, "controlLayerVersion", CONTROL_VERSIONS)
                message_version = _version(request, "messageLayerVersion", MESSAGE_VERSIONS)
                layouts = _layouts(request)
            except ValueError as error:
                return web.Response(status=400, text=f"{error}\n")
            is_fourth = _release(request).startswith(_FOURTH_RELEASE)
            return await accept_websocket(
                request,
                StreamrEvents(
                    self._context,
                    Terms(
                        control_version,
                        message_version,
                        layouts,
                        names_keys=not is_fourth,
                        survives_errors=control_version > 1 and not is_fourth,
                    ),
                ),
                group,
                text=True,
                message_bytes_max=STREAMR_FRAME_BYTES_MAX,
                ping_seconds=PING_SECONDS,
            )

        app = web.Application(middlewares=[origin_check(origins)])
        app.router.add_get(f"{PREFIX}/ws", connect)
        return app


def _helpers_of_cores() -> int:
    """Threads that verify where it is not said how many: one for each further core."""
    usable = getattr(os, "sched_getaffinity", None)  # not everywhere
    cores = len(usable(0)) if usable is not None else os.cpu_count() or 1
    return min(cores - 1, _HELPERS_MAX)


def _read_or_make_key(path: Path, secret: bytes) -> EthereumKey:
    """Read the node's key, or write one with `secret` where there is none."""
    if path.exists():
        return read_secret(path, EthereumKey.from_hex, "a node that starts without this file")
    key = EthereumKey(secret)
    write_secret(path, key.secret_hex)
    return key


def _version(request: web.Request, name: str, known: Sequence[int]) -> int:
    """The version that a connection asks for.

    Raises:
        ValueError: none, or one that is not known; the text is for the client.
    """
    text = request.query.get(name)
    for version in known:
        if text == str(version):
            return version
    asked = "missing" if text is None else f"{text[:20]!a}"
    expected = ", ".join(map(str, known))
    raise ValueError(f"{name} is {asked}; expected one of {expected}")


def _layouts(request: web.Request) -> tuple[Layout, ...] | None:
    """Which layouts of messages a client reads, the preferred first; None: it does not say.

    Raises:
        ValueError: it says something that is not known; the text is for the client.
    """
    text = request.query.get("layout")
    if text is None:
        # Released clients from 4 on say that they are, and read nothing else.
        return RELEASED_ONLY if _release(request) else None
    layouts = _LAYOUTS.get(text)
    if layouts is None:
        raise ValueError(f"layout is {text[:20]!a}; expected one of {', '.join(_LAYOUTS)}")
    return layouts


def _release(request: web.Request) -> str:
    """Which release of streamr-client it is, such as `5.2.1dev`; empty for any other client."""
    return request.query.get("streamrClient", "")
