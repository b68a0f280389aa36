"""Hosting: puts an application's actors behind addresses of its node, and ends them.

An address leads to the gate, an actor of the node that never waits: it takes what comes by routes,
hands each message to the actor's own mailbox, and is done with it. So a link waits for the gate
only, and an actor that is stuck holds up nothing but what is sent to it.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from inspect import iscoroutinefunction
from random import Random
from typing import Any, Final, cast

from thespian.actors import Actor as StockActor, ActorAddress

from rillnode.actors.apps.actor import Actor, FunctionActor, Handler
from rillnode.actors.apps.addresses import check_address
from rillnode.actors.apps.admission import address_guard
from rillnode.actors.apps.endpoint import STOP_SECONDS, ActorRef, Call, Ended, Endpoint, Reason
from rillnode.actors.apps.handling import ANSWER_SPARE_BYTES, HostedActor, Last, News
from rillnode.actors.apps.messages import ActorReply, Answer, Message
from rillnode.actors.apps.policy import ENDPOINTS_MAX, Policy, policy_of
from rillnode.actors.apps.questions import Question, Questions, failure_in, settle
from rillnode.actors.apps.stock import Decode, Encode, Wire, as_bytes, is_stock, made_stock
from rillnode.actors.core.access import NODE_PRINCIPAL, Access, Grant, GrantVerb
from rillnode.actors.core.delivery import Delivery, Origin
from rillnode.actors.core.pauses import Pauses
from rillnode.actors.core.principals import check_principals
from rillnode.actors.core.router import Router, told
from rillnode.actors.core.threads import Threads
from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.described import Described
from rillnode.actors.engine.outside import Reply
from rillnode.actors.engine.system import AsyncioSystemBase
from rillnode.actors.engine.waiting import LINGER_SECONDS, Work
from rillnode.actors.engine.worker import Worker
from rillnode.actors.ports import Clock, Entropy
from rillnode.codecs import arguments
from rillnode.codecs.errors import ActorError, ConfigError, RequestError, RillnodeError
from rillnode.codecs.events import event_logger
from rillnode.codecs.limits import FRAME_BYTES_MAX
from rillnode.codecs.routing.routes import (
    LOCAL,
    Address,
    Route,
    WireMessage,
    encode_header,
    local,
    parse_route,
)

logger = event_logger("rillnode.actors.apps.hosting")

_SEND: Final[frozenset[GrantVerb]] = frozenset(("send",))

IDLE_SECONDS: Final = 60.0
"""How long an actor that was made by a message waits for the next. As of streams' actors."""

WORK_OFF_SECONDS: Final = 0.002
"""How often it is looked whether an actor that takes no marks has worked off what waits."""


class Gate(Worker):
    """The actor that all addresses of an application lead to; one per node."""

    on_failure = "resume"

    def __init__(self, hosting: "Hosting") -> None:
        self._hosting = hosting

    def described(self, address: bytes) -> Described | None:
        """The actor behind an address."""
        return self._hosting.described(address)

    def handle(self, message: Delivery, sender: Cell | None) -> None:
        """Hand on what has come by routes."""
        self._hosting.deliver(message)


class Hosting:
    """The actors of one node's application.

    Args:
        system: where they live.
        router: leads to them.
        access: says who may send to them.
        entropy: source of random bytes.
        threads: makes those of blocking actors.
        node: the node, as its application has it.
        clock: tells actors the time.

    Attributes:
        loop: the loop that they are on.
    """

    def __init__(
        self,
        system: AsyncioSystemBase,
        router: Router,
        access: Access,
        entropy: Entropy,
        threads: Threads,
        node: object,
        clock: Clock,
    ) -> None:
        self.system = system
        self.clock = clock
        self.threads = threads
        self.node = node
        self.loop = asyncio.get_running_loop()
        self._router = router
        self._access = access
        self._entropy = entropy
        self._random: Random | None = None
        self._admits = address_guard(access)
        self._endpoints: dict[bytes, Endpoint] = {}
        self._by_cell: dict[Cell, Endpoint] = {}
        self._made_on_demand: dict[bytes, Callable[[str], Actor]] = {}
        self._pauses = Pauses(system.timing.monotonic)
        self._classes: dict[tuple[str, str, Policy], type[HostedActor]] = {}
        self._origin = Origin(NODE_PRINCIPAL, FRAME_BYTES_MAX, native=True)
        self._closed = False
        self._gate = system.spawn(partial(Gate, self))
        self._questions = Questions(router, entropy)
        self._questions.cell = self._gate
        system.outcomes[Call] = self.not_handled
        system.sizes[Call] = Call.size

    @property
    def random(self) -> Random:
        """Chance for the application; made when it is asked for."""
        if self._random is None:
            self._random = Random(self._entropy(32))
        return self._random

    # Coming ----------------------------------------------------------------------------------

    async def spawn(
        self,
        actor: type[Actor] | type[StockActor] | Handler,
        args: Sequence[Any] = (),
        *,
        address: str | None = None,
        allow: Sequence[str] = (),
        essential: bool = False,
        settings: Mapping[str, Any] | None = None,
        parent: Endpoint | None = None,
        decode: Decode = bytes,
        encode: Encode = as_bytes,
    ) -> ActorRef:
        """Put an actor behind an address; see `Node.spawn`."""
        if address is None:
            address = self._entropy(8).hex()
        else:
            check_address(address)
        given: Any = actor
        if is_stock(given):
            return await self._spawn_stock(
                given,
                args,
                address,
                allow,
                essential,
                settings or {},
                parent,
                Wire(self, decode, encode),
            )
        if not callable(given) or (isinstance(given, type) and not issubclass(given, Actor)):
            shown = given.__qualname__ if isinstance(given, type) else f"{given!r:.80}"
            text = f"{shown} is neither a rillnode.Actor nor a function"
            raise ConfigError("actor.class", text)
        policy = policy_of(actor, settings or {}, essential=essential)
        make: Callable[[], Actor]
        is_class = isinstance(given, type)
        receive: Any = getattr(given, "receive", None) if is_class else given
        make = partial(given, *args) if is_class else partial(FunctionActor, given, *args)
        if policy.blocking and iscoroutinefunction(receive):
            text = "what is `async def` does not block: leave `blocking` out"
            raise ConfigError("actor.settings", text)
        hosted = self._hosted_class(actor, policy)
        await self._have_free(address, parent)
        endpoint = self._place(address, policy, hosted, make, allow, parent)
        starting = endpoint.starting = self.loop.create_future()
        try:
            await starting
        except asyncio.CancelledError:
            self.system.exit(endpoint.cell)
            raise
        return endpoint.ref

    async def _spawn_stock(
        self,
        actor: Any,
        args: Sequence[Any],
        address: str,
        allow: Sequence[str],
        essential: bool,
        settings: Mapping[str, Any],
        parent: Endpoint | None,
        wire: Wire,
    ) -> ActorRef:
        """Put one of Thespian's actors behind an address."""
        policy = policy_of(None, settings, essential=essential)
        own = dict(settings) | ({"essential": True} if essential else {})
        await self._have_free(address, parent)
        endpoint = Endpoint(address, policy, self, self.system.timing.monotonic(), parent)
        endpoint.wire = wire
        endpoint.cell = made_stock(self, actor, tuple(args), own)
        self._placed(endpoint, allow)
        return endpoint.ref

    async def spawn_child(
        self,
        parent: Endpoint,
        actor: Any,
        args: Sequence[Any],
        name: str | None,
        allow: Sequence[str],
        settings: Mapping[str, Any],
    ) -> ActorRef:
        """Make a child of an actor; see `Context.spawn`."""
        check_principals(allow)
        if name is None:
            parent.serial += 1
            name = str(parent.serial)
        address = f"{parent.address}/{name}"
        coders = {key: settings[key] for key in ("decode", "encode") if key in settings}
        own = {key: value for key, value in settings.items() if key not in coders}
        return await self.spawn(
            actor, args, address=address, allow=allow, settings=own, parent=parent, **coders
        )

    def on_demand(
        self, prefix: str, make: Callable[[str], Actor], allow: Sequence[str] = ()
    ) -> None:
        """Have actors made by their first messages; see `Node.on_demand`."""
        check_address(prefix)
        if not prefix.endswith("/") or prefix.count("/") > 1:
            text = f"{prefix!r} is no prefix: one part that ends with the only slash, as `device/`"
            raise RequestError("address.invalid", text)
        check_address(prefix[:-1])
        if not callable(make):
            text = f"{make!r:.80} is no function that makes a rillnode.Actor of a name"
            raise ConfigError("actor.class", text)
        key = prefix.encode()
        if key in self._made_on_demand:
            raise RequestError("address.taken", f"{prefix!r} is another's prefix")
        self._made_on_demand[key] = make
        self._access.replace((), _grants(prefix, f"{prefix}*", allow))
        self._router.register_guard(key, self._admits)
        self._router.register_resolver(key, self._resolve)

    def _resolve(self, address: bytes, origin: Origin) -> Cell | None:
        return None if self._endpoint_of(address) is None else self._gate

    def _endpoint_of(self, key: bytes) -> Endpoint | None:
        """The endpoint of an address, made now where its first message makes it.

        Raises:
            ActorError: `actor.busy`, there are too many, or the one before has failed too often
                just now; `actor.failed`, none can be made.
        """
        found = self._endpoints.get(key)
        if found is not None or not self._made_on_demand or self._closed:
            return found
        prefix, slash, rest = key.partition(b"/")
        make = self._made_on_demand.get(prefix + slash)
        if make is None or not rest:
            return None
        try:
            address = key.decode()
            check_address(address)
        except (UnicodeDecodeError, RequestError):
            return None
        left = self._pauses.left(key)
        if left > 0.0:
            text = f"This has failed too often: try again in {left:.1f} s"
            raise ActorError("actor.busy", text, retry_seconds=left)
        if len(self._endpoints) >= ENDPOINTS_MAX:
            raise ActorError("actor.busy", f"The node has {ENDPOINTS_MAX:,} actors already")
        return self._make(address, partial(make, rest.decode()))

    def _make(self, address: str, make: Callable[[], Actor]) -> Endpoint:
        try:
            first: Any = make()
            if not isinstance(first, Actor):
                raise TypeError(f"{first!r:.80} is no rillnode.Actor")
        except Exception as error:
            logger.warning("not_made", extra={"actor": address}, exc_info=error)
            raise ActorError("actor.failed", f"{address} cannot be made") from None
        idle = type(first).idle_seconds
        settings = {"idle_seconds": IDLE_SECONDS if idle is None else idle}
        policy = policy_of(type(first), settings, ends_when_idle=True)
        made = [first]  # whose class had to be seen
        hosted = self._hosted_class(type(first), policy)
        return self._place(
            address, policy, hosted, lambda: made.pop() if made else make(), (), None
        )

    async def _have_free(self, address: str, parent: Endpoint | None) -> None:
        """See that an address is nobody's; one whose actor is about to end is waited for.

        Raises:
            RequestError: `address.taken`.
            ActorError: `actor.stopped`, the node takes no more, or the parent has ended;
                `actor.busy`, the node has too many.
        """
        key = address.encode()
        endpoint = self._endpoints.get(key)
        if endpoint is not None and endpoint.closing:
            await endpoint.wait()
        if self._closed or (parent is not None and parent.ended is not None):
            text = "The node, or the actor that makes this one, has ended or is about to"
            raise ActorError("actor.stopped", text)
        if len(self._endpoints) >= ENDPOINTS_MAX:
            raise ActorError("actor.busy", f"The node has {ENDPOINTS_MAX:,} actors already")
        if key in self._endpoints or self._router.lookup(key) is not None:
            raise RequestError("address.taken", f"{address!r} is another actor's")

    def _place(
        self,
        address: str,
        policy: Policy,
        hosted: Callable[..., HostedActor],
        make: Callable[[], Actor],
        allow: Sequence[str],
        parent: Endpoint | None,
    ) -> Endpoint:
        endpoint = Endpoint(address, policy, self, self.system.timing.monotonic(), parent)
        factory = partial(hosted, self, endpoint, make)
        endpoint.cell = self.system.spawn(factory, name=address)
        self._placed(endpoint, allow)
        return endpoint

    def _placed(self, endpoint: Endpoint, allow: Sequence[str]) -> None:
        """Let an endpoint be found, now that it has its actor."""
        address, parent = endpoint.address, endpoint.parent
        self.system.ended[endpoint.cell] = partial(self._ended, endpoint)
        key = endpoint.key
        self._endpoints[key] = self._by_cell[endpoint.cell] = endpoint
        self._router.register(key, self._gate, self._admits)
        if allow:
            endpoint.grants = _grants(address, address, allow)
            self._access.replace((), endpoint.grants)
        if parent is not None:
            parent.children[address] = endpoint
            endpoint.watchers[parent] = None

    def _hosted_class(self, source: Any, policy: Policy) -> type[HostedActor]:
        """The engine's class for an application's: one for all that have its name and settings."""
        named: Any = source if hasattr(source, "__qualname__") else source.__class__
        key = named.__module__, named.__qualname__, policy
        made = self._classes.get(key)
        if made is None:
            alike = sum(one[:2] == key[:2] for one in self._classes)
            settings = {
                field: getattr(policy, field)
                for field in policy.__struct_fields__
                if field != "overflow"
            }
            concurrent = policy.concurrency > 1
            body = settings | {
                "source": key[1],
                "interleaves": concurrent,
                "handlers_max": policy.concurrency if concurrent else None,
                "__module__": key[0],
                "__qualname__": f"{key[1]}-{alike + 1}" if alike else key[1],
            }
            meta: Any = type(HostedActor)
            made = cast(type[HostedActor], meta(key[1], (HostedActor,), body))
            made.stands_for = made
            self._classes[key] = made
        return made

    def described(self, address: bytes) -> Described | None:
        """The actor behind an address; None: a question that waits for its answer."""
        endpoint = self._endpoints.get(address)
        if endpoint is None:
            return None
        source = getattr(endpoint.cell.kind.actor_class, "source", "")
        return Described(
            "actor",
            source or endpoint.cell.kind.name.rpartition(".")[2],
            made_at=endpoint.made_at,
            state="ending" if endpoint.closing else "",
            open_to="granted",
            stop=None if endpoint.policy.essential else partial(self.begin_stop, endpoint),
            kept="it is essential to its application",
            cell=endpoint.cell,
            parent=b"" if endpoint.parent is None else endpoint.parent.key,
        )

    # Messages --------------------------------------------------------------------------------

    def deliver(self, delivery: Delivery) -> None:
        """Hand on what has come by a route."""
        key = delivery.messages[0].onward_route[0].value
        try:
            endpoint = self._endpoint_of(key)
        except ActorError as error:
            self._router.refuse(error.code.removeprefix("actor."), delivery, error)
            return
        if endpoint is not None:
            for wire in delivery.messages:
                self._take(endpoint, self._called(endpoint, delivery.origin, wire))
            return
        question = self._questions.find(key)
        if question is not None:
            for wire in delivery.messages:
                settle(question, wire)
            return
        self._router.undeliverable("unknown_address", delivery)

    def _called(self, endpoint: Endpoint, origin: Origin, wire: WireMessage) -> Call:
        message = Message(
            payload=wire.payload,
            principal=origin.principal,
            address=endpoint.address,
            onward_route=wire.onward_route[1:],
            return_route=wire.return_route,
            value=failure_in(wire.payload),
        )
        return Call(message, wire, origin)

    def _take(self, endpoint: Endpoint, call: Call) -> None:
        """Put a message into an actor's mailbox; one that it does not take is told so."""
        if endpoint.closing:
            self.not_handled(call, ActorError("actor.stopped", f"{endpoint.address} is ending"))
        elif endpoint.wire is not None:
            endpoint.wire.take(endpoint, call)
        else:
            self.system.post(endpoint.cell, call)

    def not_handled(self, call: Call, error: RillnodeError) -> None:
        """Nothing comes of a message: whoever waits for it is told, or it is counted."""
        call.refused = error
        refuses = isinstance(error, ActorReply)
        reason = "refused_by_actor" if refuses else error.code.removeprefix("actor.")
        if call.question is not None:
            call.question.fail(error)
        elif call.wire is not None and call.origin is not None and not call.answered:
            self._router.refuse(reason, Delivery(call.origin, [call.wire]), told(error))
        elif isinstance(call.sender, Reply):
            call.sender.fail(error)
        elif call.sender is not None and refuses:
            self.system.post(call.sender, error)
        else:
            self.dropped(reason)
        call.answered = True

    def dropped(self, reason: str) -> None:
        """Count a message that nobody waits for."""
        self._router.undelivered[reason] += 1

    def answer(self, call: Call, own: Address, payload: bytes, value: object) -> None:
        """Send an answer back along the route that a message came with.

        Raises:
            ActorReply: `message.size`, its way takes no such large answer.
            TypeError: it is an object, and does not stay on the node.
        """
        if value is not None:
            raise TypeError("an object does not leave the node: answer with bytes")
        origin = call.origin or self._origin
        limit = origin.message_bytes_max - ANSWER_SPARE_BYTES
        if len(payload) > limit:
            text = f"The answer has {len(payload):,} bytes, its way takes {limit:,}"
            raise ActorReply("message.size", text)
        if origin.ended:
            self.dropped("link_lost")
            return
        route = call.message.return_route
        self._router.route(origin, [WireMessage(route, (own,), payload)])

    # What actors do --------------------------------------------------------------------------

    def send(self, sender: Endpoint, to: Any, payload: bytes, value: object, answers: bool) -> None:
        """Send a message; see `Context.send`."""
        back: Route = (local(sender.key),) if answers else ()
        target = self._find(to)
        if isinstance(target, tuple):
            self._send_out(target, back, payload, value)
        elif isinstance(target, Endpoint):
            call = self._local(target, self._rest(to), back, payload, value)
            if target.wire is not None and not target.closing:
                target.wire.take(target, call, sender.cell)
            else:
                self._take(target, call)
            if call.refused is not None:
                raise call.refused
        else:
            self.system.post(target, payload if value is None else value, sender.cell)

    async def ask(
        self,
        asker: Endpoint | None,
        to: Any,
        payload: bytes,
        value: object,
        seconds: float,
        *,
        waiting: bool,
    ) -> Answer:
        """Ask somebody and wait; see `Context.ask`."""
        arguments.seconds("timeout_seconds", seconds)
        target = self._find(to)
        if not isinstance(target, tuple | Endpoint):
            found = await self.system.ask(target, payload if value is None else value, seconds)
            return Answer((), found if isinstance(found, bytes) else b"", found)
        question = self._questions.open(asker if waiting else None)
        try:
            async with asyncio.timeout(seconds):
                if isinstance(target, Endpoint):
                    question.leads_to(target)
                    rest = self._rest(to)
                    call = self._local(target, rest, question.route, payload, value, question)
                    if target.policy.overflow == "hold" and not target.closing:
                        await self.system.mailboxes.room(target.cell, call)
                    self._take(target, call)
                else:
                    self._send_out(target, question.route, payload, value)
                return await question.future
        except TimeoutError:
            text = f"nothing has come back in {seconds:g} s"
            raise ActorError("message.timeout", text) from None
        finally:
            self._questions.close(question)

    async def tell(self, endpoint: Endpoint, payload: bytes, value: object) -> None:
        """Send to an actor from outside; see `ActorRef.send`."""
        call = self._local(endpoint, (), (), payload, value)
        if endpoint.policy.overflow == "hold" and not endpoint.closing:
            await self.system.mailboxes.room(endpoint.cell, call)
        self._take(endpoint, call)
        if call.refused is not None:
            raise call.refused

    def forward(
        self,
        own: Endpoint,
        call: Call,
        before: Sequence[Address | str],
        payload: bytes | None,
        stay: bool,
    ) -> None:
        """Pass a message on; see `Context.forward`."""
        message = call.message
        hops: list[Address] = []
        for one in before:
            hops += parse_route(one) if isinstance(one, str) else (one,)
        route = (*hops, *message.onward_route)
        if not route:
            raise ValueError("the route ends here: say where the message is to go")
        back = (local(own.key), *message.return_route) if stay else message.return_route
        encode_header(route, back)
        payload = message.payload if payload is None else payload
        target = self._endpoints.get(route[0].value) if route[0].type == LOCAL else None
        if call.wire is None and target is not None:
            question = None if stay else call.question
            if question is not None:
                question.target = target
            self._take(
                target, self._local(target, route[1:], back, payload, message.value, question)
            )
        else:
            self._router.route(call.origin or self._origin, [WireMessage(route, back, payload)])
        call.answered = True

    def _find(self, to: Any) -> "Endpoint | ActorAddress | Route":
        """Whom a target means: an actor of this application, another of the node, or a route."""
        if isinstance(to, ActorRef):
            return to._endpoint  # pyright: ignore[reportPrivateUsage]
        if isinstance(to, ActorAddress):
            return self._by_cell.get(cast(Cell, to), to)
        route: Route = parse_route(to) if isinstance(to, str) else to
        if not isinstance(cast(object, to), str | tuple):
            raise TypeError(f"{to!r:.80} is neither a route, nor its text, nor an actor")
        if route and route[0].type == LOCAL:
            endpoint = self._endpoint_of(route[0].value)
            if endpoint is not None:
                return endpoint
        return route

    def _rest(self, to: Any) -> Route:
        """What of a target's route follows the actor that it leads to first."""
        route: Route = parse_route(to) if isinstance(to, str) else to
        return route[1:] if isinstance(to, str | tuple) else ()

    def _local(
        self,
        target: Endpoint,
        rest: Route,
        back: Route,
        payload: bytes,
        value: object,
        question: Question | None = None,
    ) -> Call:
        message = Message(
            payload=_checked(payload),
            principal=NODE_PRINCIPAL,
            address=target.address,
            onward_route=rest,
            return_route=back,
            value=value,
        )
        return Call(message, question=question)

    def _send_out(self, route: Route, back: Route, payload: bytes, value: object) -> None:
        if value is not None:
            raise TypeError("an object does not leave the node: send bytes")
        if len(encode_header(route, back)) + len(_checked(payload)) > FRAME_BYTES_MAX:
            text = f"a message has at most {FRAME_BYTES_MAX:,} bytes with its routes"
            raise RequestError("message.size", text)
        self._router.route(self._origin, [WireMessage(route, back, payload)])

    def watch(self, watcher: Endpoint, ref: ActorRef) -> None:
        """Have an actor told of another's end; see `Context.watch`."""
        endpoint = ref._endpoint  # pyright: ignore[reportPrivateUsage]
        if endpoint.ended is None:
            endpoint.watchers[watcher] = None
        else:
            self.system.post(watcher.cell, News(endpoint.ended))

    # Going -----------------------------------------------------------------------------------

    def begin_stop(self, endpoint: Endpoint) -> None:
        """Have an actor end after what waits; its children end with it."""
        if not endpoint.closing:
            endpoint.closing = True
            endpoint.reason = endpoint.reason or "stopped"
            if endpoint.wire is None:
                self.system.post(endpoint.cell, Last())
            else:
                self.system.exit(endpoint.cell)

    async def stop(self, endpoint: Endpoint, seconds: float, reason: Reason) -> None:
        """End an actor when it has worked off what waits; see `ActorRef.stop`."""
        arguments.seconds("timeout_seconds", seconds)
        current: object = asyncio.current_task()
        if isinstance(current, Work) and current.cell is endpoint.cell:
            self.begin_stop(endpoint)
            return
        if endpoint.ended is not None:
            return
        endpoint.reason = endpoint.reason or reason
        if endpoint.closing:
            try:
                async with asyncio.timeout(seconds):
                    await endpoint.wait()
            except TimeoutError:
                await self._cut_short(endpoint)
            return
        endpoint.closing = True
        # It takes nothing new any more: so it ends, though whoever waits here is cancelled.
        endpoint.ending = self.loop.create_task(self._end(endpoint, seconds))
        await asyncio.shield(endpoint.ending)

    async def _end(self, endpoint: Endpoint, seconds: float) -> None:
        """Have an actor end after its children, and after what waits for it, or in this time."""
        try:
            async with asyncio.timeout(seconds):
                children = tuple(endpoint.children.values())
                await asyncio.gather(*(self.stop(one, seconds, "parent") for one in children))
                if endpoint.wire is not None:
                    await self._work_off(endpoint.cell)
                elif endpoint.ended is None:
                    self.system.post(endpoint.cell, Last())
                await endpoint.wait()
        except TimeoutError:
            await self._cut_short(endpoint)

    async def _cut_short(self, endpoint: Endpoint) -> None:
        """End an actor at once, and what it is still at."""
        logger.warning("stop_cut_short", extra={"actor": endpoint.address})
        self.system.exit(endpoint.cell)
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS + 1.0):
                await endpoint.wait()

    async def _work_off(self, cell: Cell) -> None:
        """Have one of Thespian's actors exit when nothing waits for it."""
        while cell.mailbox:
            await asyncio.sleep(WORK_OFF_SECONDS)
        self.system.exit(cell)

    async def close(self, seconds: float = STOP_SECONDS) -> None:
        """The node stops: all actors work off what waits, children first, and end."""
        self._closed = True
        roots = [one for one in self._endpoints.values() if one.parent is None]
        await asyncio.gather(*(self.stop(one, seconds, "node") for one in roots))

    def instance_gone(self, endpoint: Endpoint) -> None:
        """An actor's instance goes: its children end."""
        for child in endpoint.children.values():
            child.closing = True
            child.reason = child.reason or "parent"
            self.system.exit(child.cell)

    def _ended(self, endpoint: Endpoint) -> None:
        """An actor has ended for good: its address is unknown, and whoever watches is told."""
        del self._by_cell[endpoint.cell]
        del self._endpoints[endpoint.key]
        self._router.unregister(endpoint.key)
        if endpoint.grants:
            self._access.replace(endpoint.grants, ())
        reason = endpoint.reason or ("failed" if self.system.given_up(endpoint.cell) else "stopped")
        if endpoint.policy.ends_when_idle and reason == "failed":
            self._pauses.begin(endpoint.key, endpoint.cell)
        error = endpoint.error if reason == "failed" else None
        ended = Ended(endpoint.ref, reason, error)
        self.instance_gone(endpoint)
        if endpoint.parent is not None:
            endpoint.parent.children.pop(endpoint.address, None)
        endpoint.has_started(ActorError("actor.stopped", f"{endpoint.address} has ended"))
        endpoint.end(ended)
        for watcher in endpoint.watchers:
            self.system.post(watcher.cell, News(ended))


def _checked(payload: Any) -> bytes:
    if not isinstance(payload, bytes):
        raise TypeError(f"a payload is bytes, not {payload!r:.80}")
    return payload


def _grants(given_by: str, addresses: str, allow: Sequence[str]) -> list[Grant]:
    """What principals are allowed together with an actor, or with a prefix."""
    return [Grant(who=who, addresses=addresses, may=_SEND, given_by=given_by) for who in allow]
