"""The node: its parts put together, started, watched and stopped."""

import asyncio
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack, overload

from thespian.actors import Actor as StockActor, ActorSystem

from rillnode.actors.apps import serving
from rillnode.actors.apps.actor import Actor, Handler
from rillnode.actors.apps.endpoint import ActorRef
from rillnode.actors.apps.hosting import Hosting
from rillnode.actors.apps.policy import Settings
from rillnode.actors.apps.stock import as_bytes
from rillnode.actors.core.access import NODE_PRINCIPAL, Access
from rillnode.actors.core.backup import ADDRESS as BACKUP_ADDRESS, BackupActor
from rillnode.actors.core.groups import addresses
from rillnode.actors.core.groups.nodes import GroupNodes
from rillnode.actors.core.introduction import IntroductionActor, Leave
from rillnode.actors.core.links.connection import ConnectionEvents, Drain, PeerContext
from rillnode.actors.core.lookup.desk import ADDRESS as LOOKUP_ADDRESS, LookupActor
from rillnode.actors.core.lookup.streams import INDEX_PREFIX, index_stand_in
from rillnode.actors.core.principals import check_principals
from rillnode.actors.core.queues.names import PREFIX as QUEUE_PREFIX
from rillnode.actors.core.queues.service import (
    ADDRESS as QUEUES_ADDRESS,
    QueueService,
    explain_queue_refusal,
    queue_guard,
    queue_resolver,
)
from rillnode.actors.core.quotas import Quotas
from rillnode.actors.core.status import ADDRESS as STATUS_ADDRESS, StatusActor
from rillnode.actors.core.streams import index_service, service
from rillnode.actors.core.streams.answers import not_done
from rillnode.actors.core.streams.appender import (
    ADDRESS as APPENDER_ADDRESS,
    AppenderService,
    Partitions,
)
from rillnode.actors.core.streams.context import (
    ADDRESS_PREFIX,
    PushedKeys,
    StreamContext,
    StreamRemoved,
    no_keys,
)
from rillnode.actors.core.streams.following import StoreFollower
from rillnode.actors.core.streams.holds import Holds
from rillnode.actors.core.streams.resolving import explain_refusal, stream_guard, stream_resolver
from rillnode.actors.core.streams.retention import RetentionActor
from rillnode.actors.core.streams.rules import StreamRules
from rillnode.actors.core.threads import SystemThreads, Threads
from rillnode.actors.engine.system import SETTLE_SECONDS, AsyncioSystemBase, Cell
from rillnode.actors.engine.waiting import LINGER_SECONDS, last_of
from rillnode.actors.log import (
    Operation,
    StoreHealth,
    StreamRecord,
)
from rillnode.actors.log.nodes import NodeRecord
from rillnode.actors.ports import Clock, Entropy
from rillnode.codecs.errors import ActorError, NodeFailed, RillnodeError
from rillnode.codecs.events import event_logger
from rillnode.codecs.group_address import GROUP_PREFIX
from rillnode.codecs.keys import SEED_BYTES, Identity
from rillnode.codecs.noise.handshake import DH_BYTES
from rillnode.codecs.noise.link import NoiseLink
from rillnode.codecs.routing.routes import Route
from rillnode.codecs.words import read_words, reserved_streams
from rillnode.node.backup import remove_abandoned_copies
from rillnode.node.client.client import Client
from rillnode.node.client.lookup import About
from rillnode.node.client.session import Session
from rillnode.node.client.stream import Stream
from rillnode.node.client.typed import TypedStream
from rillnode.node.config import Config, SharedStore, check_config
from rillnode.node.entered import Entered
from rillnode.node.http.console import Console
from rillnode.node.http.listener import listen_status
from rillnode.node.iteration import Iteration, kept
from rillnode.node.keys.files import read_key, read_or_make_key
from rillnode.node.listening import listen_noise, public_address
from rillnode.node.observation import Observation, Parts
from rillnode.node.peers import Peers
from rillnode.node.plugin import Check, Core, Host, Listening, PlugIn, Variants
from rillnode.node.plugins import make_plug_ins
from rillnode.node.reloading import Reloading, ensure_streams
from rillnode.node.stores import MakeStore, store_maker
from rillnode.transports.clock import SystemClock
from rillnode.transports.links import LinkEvents
from rillnode.transports.memory import connect_memory
from rillnode.transports.web_server import WebServer

T = TypeVar("T")

logger = event_logger("rillnode.node.runtime")

_NOT_STARTED: Final = "the node has not started: use it within `async with`"

DRAIN_SECONDS: Final = 10.0
JOBS_SECONDS: Final = 30.0
FAILED_DRAIN_SECONDS: Final = 5.0
"""How long a node that has failed drains: what it answers still may wait for what it has lost."""
ENDING_SECONDS: Final = LINGER_SECONDS + 1.0
"""How long actors that are not done by then may tidy up, and their askers are told."""
FAILED_ENDING_SECONDS: Final = 1.0


class Node:
    """A node: an asynchronous context manager, started on the running event loop.

    When an actor that all need has failed too often, the node is not ready any more. With `on_fatal
    = "exit"` the task inside `async with` is cancelled then, as by `asyncio.timeout`, and leaves
    the block with `NodeFailed` after the node has drained, for 5 s at most; other tasks are not
    touched, and an exception of the block's own stands.

    Args:
        config: everything that `node.toml` can say.
        make_store: another store than the one in `data_dir`.
        clock: another clock than the machine's.
        entropy: another source of random bytes than the machine's.
        identity: another identity than the one in the key file, which is not looked for then.
        given: parts for plug-ins, by the plug-ins' names, in place of what they would make by their
            tables: such as a tracer, which takes the spans of what the node does, for `telemetry`.
        commit_on_loop: write small groups to a quick disk on the loop's thread while that has time
            to spare, and not on the store's. One push after the other takes less time so; the loop
            stands still meanwhile, for a hundredth of its time at most where the disk is slow.
            `rillnode run` does.
        threads: makes other threads than the operating system's.

    Attributes:
        client: a client in this process, without a socket, that may do everything.
    """

    client: Client

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Say of the client, and of all that is made at the start, how a node is started."""
            made = name == "client" or name.startswith("_")
            raise AttributeError(_NOT_STARTED if made else f"a node has no attribute {name!r}")

    def __init__(
        self,
        config: Config,
        *,
        make_store: MakeStore | None = None,
        clock: Clock | None = None,
        entropy: Entropy = os.urandom,
        identity: Identity | None = None,
        given: Mapping[str, Any] | None = None,
        commit_on_loop: bool = False,
        threads: Threads | None = None,
    ) -> None:
        check_config(config)
        self.config = config
        self._given_clock = clock
        self._entropy = entropy
        # All words are read here, the first time from files, and not in an actor's turn.
        for broken in read_words()[1]:
            extra = {"code": "plugin.broken", **broken._asdict()}
            logger.warning("words_not_read", extra=extra)
        self._access = Access((table.grant() for table in config.grants), reserved_streams())
        self._identity = identity or _identity_of(config, entropy)
        self._threads: Threads = threads or SystemThreads(self._on_thread_end)
        self._make_store = make_store or store_maker(
            config,
            entropy,
            self._now_ms,
            self._threads,
            self._at_turns_end if commit_on_loop else None,
        )
        self._links: dict[str, Listening] = {}
        self._http: WebServer | None = None
        self._dialled = Peers(config, self._identity)
        host = Host(
            config=config, identity=self._identity, entropy=entropy, threads=self._threads,
            given=given or {},
        )  # fmt: skip
        self._plug_ins = make_plug_ins(host)
        parts = Parts(links=self._links, peers=self._dialled, plug_ins=self._plug_ins)
        self._observed = Observation(config, self.identity, parts)
        self._entered = Entered()
        self._introduction: Cell | None = None
        self._sessions: dict[str, Session] = {}
        self._own_links: dict[str, ConnectionEvents] = {}
        self._stopping: asyncio.Task[None] | None = None
        self._opening = threading.Lock()
        self._wanted = False

    @property
    def identity(self) -> str:
        """The node's Ed25519 identity, hex."""
        return self._identity.public_hex

    @property
    def facts(self) -> dict[str, str]:
        """What plug-ins tell of themselves, such as the public halves of their keys, by name."""
        return dict(self._plug_ins.ask("facts", lambda one: one.facts.items()))

    def to_try(self, stream: str) -> list[str]:
        """Commands that show plug-ins at work on a stream, as the banner of `--dev` has them."""
        addresses = self.addresses()
        return [*self._plug_ins.ask("to_try", lambda one: one.to_try(stream, addresses))]

    async def __aenter__(self) -> Self:
        """Start."""
        self._entered.enter()
        try:
            await self.start()
        except BaseException as error:
            if failure := await self._entered.leave(error):
                raise failure from failure.__cause__
            raise
        return self

    async def __aexit__(self, _kind: object, raised: BaseException | None, _where: object) -> None:
        """Stop.

        Raises:
            NodeFailed: the node could not go on; see `on_fatal` of the configuration.
        """
        try:
            failure = await self._entered.leave(raised)
        finally:
            await self.stop()
        if failure is not None:
            raise failure from failure.__cause__

    @overload
    async def stream(self, name: str | None = None, *, partitions: int = 1) -> Stream: ...

    @overload
    async def stream(
        self, name: str | None = None, *, partitions: int = 1, schema: type[T]
    ) -> TypedStream[T]: ...

    async def stream(
        self, name: str | None = None, *, partitions: int = 1, schema: type[T] | None = None
    ) -> Stream | TypedStream[T]:
        """Open or create a stream; see `Client.stream`."""
        if schema is not None:
            return await self.client.stream(name, partitions=partitions, schema=schema)
        return await self.client.stream(name, partitions=partitions)

    async def spawn(
        self,
        actor: type[Actor] | type[StockActor] | Handler,
        *args: Any,
        address: str | None = None,
        allow: Sequence[str] = (),
        essential: bool = False,
        decode: Callable[[bytes], Any] = bytes,
        encode: Callable[[Any], bytes] = as_bytes,
        **settings: Unpack[Settings],
    ) -> ActorRef:
        """Put an actor of the application behind an address of the node; see `Actor`.

        Whoever may send to the address reaches it by its route: from this node, from clients, from
        Ockam peers and other nodes. It ends with the node, or when it is stopped.

        Args:
            actor: a class of actors, ours or Thespian's as it stands, or a function of a message
                and a context, plain or async.
            args: what each instance of the class is made with.
            address: its address; None: one that nobody can guess.
            allow: principals, or patterns of them, that may send to it, beside those of grants.
            essential: the node cannot go on without it: `on_fatal` of the configuration says what
                follows when it ends for its failures.
            decode: makes what one of Thespian's actors is given of a payload.
            encode: makes a payload of what one of Thespian's actors sends back along a route.
            settings: in place of those of the class.

        Returns:
            The actor, once it has started.

        Raises:
            RequestError: `address.taken`, `address.reserved`, `address.invalid`.
            ConfigError: `actor.settings`, `actor.class`, `actor.allow`.
            ActorError: `actor.stopped`, the node is not running.
            Exception: whatever `started`, or the class, raises.
        """
        check_principals(allow)
        return await self._running_hosting().spawn(
            actor, args, address=address, allow=allow, essential=essential, settings=settings,
            decode=decode, encode=encode,
        )  # fmt: skip

    def on_demand(
        self, prefix: str, make: Callable[[str], Actor], *, allow: Sequence[str] = ()
    ) -> None:
        """Have each address below a prefix lead to an actor of its own, made by its first message.

        An actor that is idle, for `idle_seconds` of its class or else a minute, ends; the next
        message makes another. What it is to remember it keeps elsewhere.

        Args:
            prefix: one part and a slash, as `device/`.
            make: makes the actor of what follows the prefix.
            allow: principals, or patterns of them, that may send to all of these addresses, beside
                those of grants.

        Raises:
            RequestError: `address.taken`, `address.reserved`, `address.invalid`.
            ConfigError: `actor.allow`; `actor.class`, `make` is no function.
            ActorError: `actor.stopped`, the node is not running.
        """
        check_principals(allow)
        self._running_hosting().on_demand(prefix, make, allow)

    async def about(self, route: Route | str) -> About:
        """What is at the end of a route; see `Client.about`."""
        return await self.client.about(route)

    def routes(self, pattern: str = "*", *, kind: str = "") -> Iteration[About]:
        """Everything that has a route on the node; see `Client.routes`."""
        return self.client.routes(pattern, kind=kind)

    @property
    def actor_system(self) -> ActorSystem:
        """Thespian's face of the engine; on the node's loop its `ask` is awaited.

        Raises:
            ActorError: `actor.stopped`, the node is not running.
        """
        self._running_hosting()
        return self._actors

    def _running_hosting(self) -> Hosting:
        if self._observed.state != "ready":
            raise ActorError("actor.stopped", "The node is not running: start it first")
        return self._hosting

    # Life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, bind the listeners, start the sinks; all or nothing.

        Raises:
            RillnodeError: the store cannot be opened, or an address cannot be bound;
                `node.running`, it was started before, and not stopped since.
        """
        if self._observed.state not in ("new", "stopped"):
            text = "the node was started before: `async with` does so by itself; stop it first"
            raise RillnodeError("node.running", text)
        variants = (one.variants for one in self._plug_ins)
        self._variants = next((one for one in variants if one is not None), Variants())
        self._observed.state = "starting"
        self._wanted = True
        loop = asyncio.get_running_loop()
        self._clock = self._given_clock or SystemClock(loop)
        self._system = AsyncioSystemBase(clock=self._clock, loop=loop)
        self._system.on_fatal = self._on_fatal
        self._actors = ActorSystem(systemBase=self._system, transientUnique=True)
        self._router = self._variants.router(self._system)
        quotas = [table.quota for table in self.config.quotas]
        self._quotas = Quotas(quotas, self._clock)
        self._store = self._make_store(self._variants.complete(self._complete), self._on_health)
        self._observed.begin(self._system, self._router, self._store)
        self._console = self._make_console()
        try:
            if self.config.http.enabled:
                # First, so that it can tell that the node is starting.
                self._http = await listen_status(
                    self._observed, lambda: self.client, self.config.http, self._console
                )
            await asyncio.to_thread(self._open_store)
            self._observed.health = self._store.health
            self._spawn()
            await self._listen()
            self._introduction = self._introduce()
            self._dialled.start(self._peers, self._clock)
            for plug_in in self._plug_ins:
                await plug_in.serve(self._links)
        except BaseException:
            await self.stop()
            raise
        self._observed.state = "ready"
        logger.info("node_ready", extra={"node": self.config.name, "identity": self.identity})

    async def stop(self) -> None:
        """Take nothing new, answer what was taken, then close; harmless when repeated.

        Cancelled, it goes on to close.
        """
        if self._observed.state in ("new", "stopped"):
            return
        if self._stopping is None or self._stopping.done():
            self._stopping = kept(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        failed = self._entered.failure is not None
        self._observed.state = "draining"
        # Jobs first: to finish a batch, each may still have to connect.
        seconds = 0.0 if failed else JOBS_SECONDS
        await self._plug_ins.end("finish", lambda one: one.finish(seconds), seconds)
        for listener in self._links.values():
            listener.stop_accepting()
        self._dialled.stop()
        if self._introduction is not None:
            self._system.post(self._introduction, Leave())
        begun = asyncio.get_running_loop().time()
        if hasattr(self, "_hosting"):
            await self._hosting.close(FAILED_ENDING_SECONDS if failed else DRAIN_SECONDS)
        if hasattr(self, "_serving"):
            await self._answer_calls(FAILED_ENDING_SECONDS if failed else DRAIN_SECONDS)
        try:
            gone = asyncio.get_running_loop().time() - begun
            async with asyncio.timeout(FAILED_DRAIN_SECONDS - gone if failed else DRAIN_SECONDS):
                await self._drain()
        except TimeoutError:
            await self._cut_short(FAILED_ENDING_SECONDS if failed else ENDING_SECONDS)
        for listener in self._links.values():
            await listener.close()
        await self._dialled.close()
        await self._plug_ins.end("close", lambda one: one.close(), DRAIN_SECONDS)
        await self._system.shutdown()
        await asyncio.to_thread(self._close_store)
        if self._http is not None:
            await self._http.close()
        await self._variants.close()
        self._observed.state = "stopped"
        logger.info("node_stopped", extra={"node": self.config.name})

    def reload(self, config: Config) -> None:
        """Let another configuration take effect as far as that can be done while running.

        Grants, quotas and streams change at once; the log tells which tables need a restart.

        Raises:
            ConfigError: the configuration cannot be; nothing was changed.
        """
        check_config(config)
        self.take_over(config)

    def take_over(self, config: Config) -> None:
        """Do what `reload` does with a configuration that was checked when it was loaded."""
        self.config = self._observed.config = self._reloading.apply(self.config, config)

    def rest(self) -> None:
        """Let memory go that only speeds up what is under way: for while nothing is."""
        self._store.rest()

    def _connections(self) -> Sequence[Cell]:
        """The actors of all links, whatever they speak."""
        if not hasattr(self, "_peers"):
            return ()
        return (*self._peers.open, *self._plug_ins.ask("links", lambda one: one.links))

    async def _drain(self) -> None:
        """Read nothing more, and wait until all that was read has its outcome and is synced."""
        own = {link.cell for link in self._own_links.values()}
        for cell in self._connections():
            if cell not in own:
                self._system.post(cell, Drain())
        if hasattr(self, "client"):
            await self.client.close()
        for session in self._sessions.values():
            await session.close()
        while True:
            await self._system.settle()
            if not self._store.pending_bytes:
                break
            await asyncio.sleep(SETTLE_SECONDS)
        await self._system.settle()

    async def _answer_calls(self, seconds: float) -> None:
        """Have clients that serve addresses answer what they have; they are given nothing new."""
        served = self._serving
        served.draining = True
        try:
            async with asyncio.timeout(seconds):
                while served.open_calls:
                    await asyncio.sleep(SETTLE_SECONDS)
        except TimeoutError:
            logger.warning("calls_cut_short", extra={"calls": served.open_calls})

    async def _cut_short(self, seconds: float) -> None:
        """There is no more time: tell who still waits that nothing comes of it."""
        logger.warning("drain_cut_short", extra={"pending_bytes": self._store.pending_bytes})
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                ended = await self._system.end_unsettled(but=self._connections())
                logger.warning("actors_ended", extra={"actors": ended})
        if hasattr(self, "client"):
            for session in self._sessions.values():
                await session.close(timeout_seconds=0.0)

    def _spawn(self) -> None:
        system, router = self._system, self._router
        context = StreamContext(
            system, router, self._store, self._access, self._clock, self._entropy, self._quotas,
            pushed_keys_of(self._plug_ins),
        )  # fmt: skip
        context = self._variants.streams(context)
        peers = PeerContext(system, router, self._store, self._access, self._entropy)
        self._peers = self._variants.peers(peers)
        self._access.rights.links = lambda: (
            *self._peers.open,
            *self._plug_ins.ask("holders", lambda one: one.holders),
        )
        holds = Holds()
        retention = system.spawn(partial(RetentionActor, context, holds))

        partitions = Partitions(context)

        def on_stream(change: StreamRecord | StreamRemoved) -> None:
            partitions.changed(change)
            system.post(retention, change)
            self._plug_ins.tell("changed", lambda one: one.changed(change))
            record = change.record if isinstance(change, StreamRemoved) else change
            context.groups.stream_changed(record.name, change)
            if isinstance(change, StreamRemoved):
                context.watches.removed(record)
                system.post(self._indexes, change)
            else:
                context.watches.changed(record)

        rules = StreamRules(table.rule for table in self.config.streams)
        streams = system.spawn(partial(service.StreamService, context, on_stream, rules))
        system.spawn(partial(StoreFollower, context, on_stream))
        system.spawn(partial(GroupNodes, context))
        self._hosting = Hosting(
            system,
            router,
            self._access,
            self._entropy,
            self._threads,
            self,
            self._clock,
        )
        self._indexes = system.spawn(partial(index_service.IndexService, context))
        appender = system.spawn(partial(AppenderService, context, partitions))
        router.register(APPENDER_ADDRESS, appender)
        status = system.spawn(
            partial(
                StatusActor, router, self._access, self._observed.status_document, self._console
            )
        )
        for address in service.ADDRESSES:
            router.register(address, streams)
        for address in index_service.ADDRESSES:
            router.register(address, self._indexes)
        router.register(STATUS_ADDRESS, status)
        router.register(LOOKUP_ADDRESS, system.spawn(partial(LookupActor, context)))
        self._observed.spawned(context, self._peers)
        self._serving = serving.ServingContext(system, router, self._access, self._entropy)
        services = system.spawn(partial(serving.ServingService, self._serving))
        router.register(serving.ADDRESS, services)
        copies = self.config.checkpoints_dir
        backup = partial(BackupActor, router, self._access, self._store, copies, self._entropy)
        router.register(BACKUP_ADDRESS, system.spawn(backup))
        router.register_resolver(ADDRESS_PREFIX, stream_resolver(context))
        router.register_resolver(GROUP_PREFIX, addresses.group_resolver(context))
        explain_group = partial(addresses.explain_refusal, self._access)
        router.register_guard(GROUP_PREFIX, addresses.group_guard(self._access), explain_group)
        router.register_guard(ADDRESS_PREFIX, stream_guard(self._access), explain_refusal)
        router.register(QUEUES_ADDRESS, system.spawn(partial(QueueService, context)))
        router.register_resolver(QUEUE_PREFIX, queue_resolver(context))
        router.register_guard(QUEUE_PREFIX, queue_guard(self._access), explain_queue_refusal)
        router.register_stand_in(INDEX_PREFIX, index_stand_in(self._indexes))
        for prefix in (ADDRESS_PREFIX, service.ADDRESSES[0]):  # all services' begin with that
            router.register_refusal(prefix, not_done)
        core = Core(
            streams=context, peers=self._peers, service=streams, indexes=self._indexes,
            rules=rules, holds=holds, changed=on_stream, actor=self._variants.actor,
            client=lambda: self.client, session=self._session_of,
        )  # fmt: skip
        for plug_in in self._plug_ins:
            plug_in.start(core)
        ensure_streams(system, streams, self.config)
        self._reloading = Reloading(
            system=system, access=self._access, quotas=self._quotas, rules=rules,
            streams=streams, retention=retention, plug_ins=self._plug_ins,
        )  # fmt: skip
        self._sessions.clear()
        self._own_links.clear()
        self.client = Client(self._session_of(NODE_PRINCIPAL))

    def _session_of(self, principal: str) -> Session:
        """The session inside this process that is a principal's."""
        session = self._sessions.get(principal)
        if session is None:

            async def connect(events: LinkEvents) -> object:
                return self._connect_memory(events, principal)

            session = self._sessions[principal] = Session(connect, entropy=self._entropy)
            self._connect_memory(session, principal)
        return session

    def _connect_memory(self, events: LinkEvents, principal: str) -> object:
        accepted = ConnectionEvents(self._peers, prefix=b"MEM_")
        self._own_links[principal] = accepted
        return connect_memory(
            events,
            accepted,
            dialling_principal=principal,
            accepting_principal=NODE_PRINCIPAL,
            post=asyncio.get_running_loop().call_soon,
            clock=self._clock,
        )

    def _make_console(self) -> Console | None:
        """What keeps the page's admin sessions, where there may be any."""
        table = self.config.http
        if not (table.enabled and table.console):
            return None

        def address() -> str:
            assert self._http is not None, "who asks has come to the page, or the node is ready"
            return self._http.address

        return Console(
            self._access, self._session_of, address,
            tls=table.tls_cert is not None, clock=self._clock, entropy=self._entropy,
        )  # fmt: skip

    async def _listen(self) -> None:
        config, links, clock = self.config, self._links, self._clock
        if config.noise.enabled:
            codec = self._noise_codec
            links["noise"] = await listen_noise(config.noise, self._peers, clock, codec)

    def _introduce(self) -> Cell | None:
        """Have other nodes of the same log told of this one, where there may be any."""
        config = self.config
        store = config.store
        if not isinstance(store, SharedStore):
            return None
        # Here, because most nodes do not have this store.
        from rillnode.actors.log.shared.frames import FRAME_VERSION

        address = ""
        if "noise" in self._links:
            address = config.noise.public or public_address(self._links["noise"].address)
            if not address:
                logger.warning("node_not_public", extra={"listen": config.noise.listen})

        def introduce() -> NodeRecord:
            return NodeRecord(
                name=config.name, identity=self.identity, address=address,
                serve=store.serve, told_at=self._clock.now_ms(), reads=FRAME_VERSION,
            )  # fmt: skip

        return self._system.spawn(partial(IntroductionActor, self._store, introduce))

    def _noise_codec(self) -> NoiseLink:
        return NoiseLink.responder(
            self._identity, accept=self._accept, ephemeral=self._entropy(DH_BYTES)
        )

    def _accept(self, identity: str) -> bool:
        return self._access.known(f"noise:{identity}") or any(
            self._plug_ins.ask("admits", lambda one: (one.admits(identity),))
        )

    # What fails for good ---------------------------------------------------------------------

    def _on_fatal(self, cell: Cell, error: BaseException) -> None:
        """An actor that all need was given up; the actor system tells, on the loop's thread."""
        name = cell.kind.name.rpartition(".")[2]
        lost = self._observed.lose("actor", name, error, self._clock.now_ms())
        ends = self.config.on_fatal == "exit"
        logger.critical(
            "node_failed",
            exc_info=error,
            extra={"actor": cell.name, "actor_class": name, "on_fatal": "exit" if ends else "stay"},
        )
        if ends:
            failure = NodeFailed("node.failed", lost.text, actor=name)
            failure.__cause__ = error
            self._entered.fail(failure)

    def _on_thread_end(self, name: str, error: BaseException) -> None:
        self._observed.lose("thread", name, error, self._clock.now_ms())

    # The store's threads ---------------------------------------------------------------------

    def _open_store(self) -> None:
        # A start that is cancelled does not wait for this thread: whichever comes second sees it.
        with self._opening:
            if self._wanted:
                self._store.open()
                remove_abandoned_copies(self.config.checkpoints_dir)

    def _close_store(self) -> None:
        with self._opening:
            self._wanted = False
            self._store.close()

    def _now_ms(self) -> int:
        return self._clock.now_ms()

    def _at_turns_end(self, work: Callable[[], None]) -> bool:
        return self._system.at_turns_end(work)

    def _complete(self, operations: Sequence[Operation]) -> None:
        self._system.post_threadsafe(
            [
                (done.reply_to, done, done.then)
                for done in operations
                if done.reply_to is not None and last_of(done)
            ]
        )

    def _on_health(self, health: StoreHealth) -> None:
        self._observed.health = health
        for address in (index_service.ADDRESSES[0], service.ADDRESSES[0]):
            told = self._router.lookup(address)
            if told is not None:
                self._system.post_threadsafe([(told, health)])
        self._plug_ins.tell("on_health", lambda one: one.on_health(health))
        if health.writable:
            logger.info("store_writable")
        else:
            logger.error("store_not_writable", extra={"reason": health.reason})

    # What there is to see --------------------------------------------------------------------

    @property
    def observed(self) -> Observation:
        """How its parts are, for who shows them."""
        return self._observed

    def addresses(self) -> dict[str, str]:
        """The bound listeners, as `host:port`."""
        found = {name: listener.address for name, listener in self._links.items()}
        if self._http is not None:
            found["http"] = self._http.address
        return found

    def checks(self) -> list[Check]:
        """What must be right for the node to be ready."""
        return self._observed.checks()

    def status(self) -> dict[str, Any]:
        """How the node is, as a JSON document."""
        if self._observed.state == "new":
            raise AttributeError(_NOT_STARTED)
        return self._observed.status()


def pushed_keys_of(plug_ins: Sequence[PlugIn]) -> PushedKeys:
    """The secondary keys of what is pushed: those of each plug-in that has some."""
    found = [keys for one in plug_ins if (keys := one.pushed_keys) is not no_keys]
    if len(found) < 2:
        return found[0] if found else no_keys
    return lambda received_at: [one for keys in found for one in keys(received_at)]


def _identity_of(config: Config, entropy: Entropy) -> Identity:
    """The identity that a node's key file holds; made at its first start, unless configured."""
    # A configured key that is not there is a mistake, not a wish for another identity.
    if config.identity.key_file is not None:
        return read_key(config.identity.key_file)
    return read_or_make_key(config.key_file, entropy(SEED_BYTES))
