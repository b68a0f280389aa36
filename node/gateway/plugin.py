"""The plug-in of `[gateway]`: its listener, the paths there, and what is done at each."""

import asyncio
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.resources import files
from typing import Any, Final

from aiohttp import web

from rillnode.actors.core.access import NODE_PRINCIPAL
from rillnode.actors.log import INDEX_MAX
from rillnode.codecs.entries import Entry
from rillnode.codecs.errors import RequestError, RillnodeError
from rillnode.codecs.gateway.forms import encode_entry, read_position
from rillnode.codecs.limits import PARTITIONS_MAX
from rillnode.codecs.routing.cbor_items import encode_array
from rillnode.codecs.where import Where
from rillnode.node.client.client import Client
from rillnode.node.client.once import Once
from rillnode.node.client.producer import new_entry
from rillnode.node.client.stream import Stream, describe, indexes_at, read_page
from rillnode.node.config import Config
from rillnode.node.gateway import bodies
from rillnode.node.gateway.config import GatewayListener
from rillnode.node.gateway.keys import Asker, Keys
from rillnode.node.gateway.tails import Asked, Tail, come_again, line
from rillnode.node.http import requests
from rillnode.node.http.answers import EVENTS, begun_events, event, json_answer, number, time_of
from rillnode.node.http.api import Api
from rillnode.node.plugin import Core, Host, Listening, PlugIn
from rillnode.node.tls import tls_context
from rillnode.transports.web_server import listen_web

CBOR: Final = "application/cbor"
PULL_LIMIT_MAX: Final = 10_000
LOOKS_MAX: Final = 32
"""How often the node looks for what meets a condition, each time at some thousand entries or
128 KiB of them."""

HELD_BYTES: Final = 4_194_304
"""Bytes of entries from which on an answer takes no more of them, and no more of a push is read
before they are durable."""

SLOW_SECONDS: Final = 2.0
"""How long the readers of tails have to take what is left when the node stops."""

BLOCK_ENTRIES: Final = 1_024
"""Entries that are pushed, or told of, before the loop turns: they travel together."""

HEADER: Final = "rillnode-header-"

STATUSES: Final = {
    "gateway.busy": 429, "gateway.key": 401, "gateway.right": 403, "gateway.ticket": 401,
}  # fmt: skip
SHOWN: Final = "Rillnode-Next, Retry-After, Allow"
"""Headers that pages of other origins may see."""

ROUTES: Final = (
    ("POST", "/streams/{name}", "push"),
    ("GET", "/streams/{name}", "pull"),
    ("GET", "/streams/{name}/tail", "tail"),
    ("GET", "/streams/{name}/indexes/{client}", "indexes"),
    ("PUT", "/streams/{name}/indexes/{client}", "save_indexes"),
    ("POST", "/tickets", "ticket"),
    ("GET", "/openapi.json", "openapi"),
)
"""What there is; `openapi.json` describes it."""

_Placed = tuple[int, asyncio.Future[int]]


class Gateway(PlugIn):
    """The parts of a node that its `[gateway]` table asks for: a door, and the tails open now."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._table = host.table(GatewayListener)
        self._tails: dict[asyncio.Task[Any], Tail] = {}
        self._api = Api(
            {(method, path): getattr(self, name) for method, path, name in ROUTES},
            origins=self._table.origins, shown=SHOWN, statuses=STATUSES, listed="see /openapi.json",
        )  # fmt: skip

    def start(self, core: Core) -> None:
        """Take the parts of the node; nobody can come in yet."""
        self._core = core
        secret, table = bytes.fromhex(self.host.identity.seed_hex), self._table
        self._keys = Keys(table.key_names, secret, table.ticket_seconds, core.streams)

    async def serve(self, bound: MutableMapping[str, Listening]) -> None:
        """Bind the listener; raises ConfigError or TransportError, as `PlugIn.serve` says."""
        app, tls = self._api.app(), tls_context(self._table, "gateway")
        bound["gateway"] = await listen_web(app, *self._table.address, tls=tls)

    def changed(self, change: object) -> None:
        """Have tails look again: a stream's grants or partitions may be others."""
        asyncio.get_running_loop().call_soon(self._look, change)

    def reload(self, old: Config, new: Config) -> Config:
        """Take over the API keys; grants are others after this, and tails look at both."""
        asyncio.get_running_loop().call_soon(self._look, None)
        config, self._keys.names = GatewayListener.rekeyed(old, new)
        return config

    def _look(self, change: object) -> None:
        for tail in self._tails.values():
            tail.changed(change)

    async def finish(self, seconds: float) -> None:
        """Take nothing more, answer what is under way, and end the tails."""
        self._api.stop()
        for tail in self._tails.values():
            tail.follower.fail(come_again())
        await self._api.drained(SLOW_SECONDS if self._tails else 0.0)
        for task in tuple(self._tails):  # whose readers take nothing
            task.cancel()
        await self._api.drained(seconds)

    def to_try(self, stream: str, addresses: Mapping[str, str]) -> Sequence[str]:
        """A push with what everybody has."""
        at = addresses.get("gateway")
        return () if at is None else (f"""curl -d '{{"mag": 5.1}}' http://{at}/streams/{stream}""",)

    def status(self) -> dict[str, Any]:
        """How many tails are open, and what was refused."""
        return {"gateway": {"tails": len(self._tails), "counters": dict(self._api.refusals)}}

    def counters(self) -> Mapping[str, Mapping[str, int]]:
        """What was refused."""
        return {"gateway": self._api.refusals}

    # Who may do what, and where --------------------------------------------------------------

    def _asker(self, request: web.Request, name: str = "") -> Asker:
        """Who asks, by its key, or for the stream of a name by a ticket."""
        header, ticket = requests.single(request, "Authorization"), request.query.get("ticket")
        if header is None and ticket is not None and name:
            return self._keys.bearer(ticket, name)
        return self._keys.holder(header)

    async def _asked(
        self, request: web.Request, default: str = "start", after: str = "", *, by_ticket: bool
    ) -> Asked:
        """What is to be read from where, where that may be."""
        name = requests.segment(request, 2)
        asker = self._asker(request, name if by_ticket else "")
        self._keys.check_right(asker, "pull", name)
        session = self._core.session(asker.principal)
        described = await describe(session, name)
        info, stream = described.partitions, Stream(session, described)
        partition = number(request, "partition", None, PARTITIONS_MAX - 1)
        chosen = range(len(info)) if partition is None else range(len(info))[partition:][:1]
        if not chosen:
            raise RequestError("stream.partition", f"There is no partition {partition}")
        query = request.query
        text = after or query.get("from")
        if text is None and "since" in query:
            position = await indexes_at(stream, time_of(query, "since"), chosen)
        elif (text := default if text is None else text) == "end":
            position = {one: info[one].next_index for one in chosen}
        else:
            given = {} if text == "start" else read_position(text, chosen, stream.created_at)
            position = {one: given.get(one, 0) for one in chosen}
        where = Where(query["where"]).text if "where" in query else ""
        return Asked(asker, session, stream, position, len(info) if partition is None else 0, where)

    # Pushing ---------------------------------------------------------------------------------

    async def push(self, request: web.Request) -> web.Response:
        """POST /streams/{name}."""
        name, asker = requests.segment(request, 2), self._asker(request)
        self._keys.check_right(asker, "push", name)
        partition = number(request, "partition", None, PARTITIONS_MAX - 1)
        own_key = requests.single(request, "Rillnode-Key")
        names = [one.lower() for one in request.headers if one.lower().startswith(HEADER)]
        own = {one[len(HEADER) :]: requests.single(request, one) or "" for one in names}
        header = requests.single(request, "Idempotency-Key")
        session = self._core.session(asker.principal)
        once = None if header is None else Once(session, asker.principal, header)
        placed, count, window = list[_Placed](), 0, 0
        stream: Stream | None = None
        try:
            async for batch in bodies.batches(request, self._table.body_bytes_max):
                self._keys.check(asker)  # a body takes its time; the node looks at the grants
                if (count := count + len(batch)) > bodies.PUSH_ENTRIES_MAX:
                    text = f"A request has at most {bodies.PUSH_ENTRIES_MAX:,} entries"
                    raise RequestError("entries.many", text)
                # Not before: what is wrong with the request makes no stream.
                stream = stream or await Client(session).stream(name)
                entries = list[tuple[int, bytes, str | bytes | None, dict[str, str] | None]]()
                async for data, headers, event_key in bodies.in_turns(batch):
                    key = event_key if own_key is None else own_key
                    more = {**headers, **own} or None
                    place = stream.partition_of(key) if partition is None else partition
                    if once is not None:
                        once.add(data, key, more, place)
                    else:
                        new_entry(data, key, more)  # or none of the batch is stored
                        entries.append((place, data, key, more))
                async for place, data, key, more in bodies.in_turns(entries, BLOCK_ENTRIES):
                    future = stream.push_nowait(data, key=key, headers=more, partition=place)
                    placed.append((place, future))
                    window += len(data)
                if window > HELD_BYTES:
                    await _settle(placed)
                    window = 0
            placed += [] if once is None else once.push(name)
            await _settle(placed)
        except RillnodeError as error:
            with suppress(RillnodeError):
                await _settle(placed)
            if any(stored := await _indexes(placed)):
                error.context["indexes"] = stored
            raise
        return json_answer({"indexes": await _indexes(placed)})

    # Reading ---------------------------------------------------------------------------------

    async def pull(self, request: web.Request) -> web.Response:
        """GET /streams/{name}."""
        media = requests.accepted(request, (*bodies.LINES, CBOR))
        asked = await self._asked(request, by_ticket=True)
        limit = number(request, "limit", 100, PULL_LIMIT_MAX)
        position = asked.position
        found, looks, size, ends = list[Entry](), 0, 0, dict[int, int]()
        if "until" in request.query:
            ends = await indexes_at(asked.stream, time_of(request.query, "until"), position)
        for partition in position:
            end, more = ends.get(partition, INDEX_MAX), True
            while more and len(found) < limit and size < HELD_BYTES and looks < LOOKS_MAX:
                wanted, left = asked.wanted(partition), limit - len(found)
                page = await read_page(asked.session, wanted, left, until=end)
                looks += bool(asked.where) and page.next_index > wanted.index
                position[partition], more = page.next_index, page.more
                size += sum(len(entry.data) for entry in page.entries)
                found += page.entries
        each = min(bodies.TURN_ENTRIES, 1 + len(found) * bodies.TURN_BYTES // max(1, size))
        form = encode_entry if media == CBOR else line
        forms = [form(one) async for one in bodies.in_turns(found, each)]
        body = encode_array(forms) if media == CBOR else b"".join(forms)
        return web.Response(body=body, content_type=media, headers={"Rillnode-Next": asked.text})

    async def tail(self, request: web.Request) -> web.StreamResponse:
        """GET /streams/{name}/tail."""
        media = requests.accepted(request, (EVENTS,))
        after = requests.single(request, "Last-Event-ID") or ""
        asked = await self._asked(request, "end", after, by_ticket=True)
        if request.method == "HEAD":
            return web.Response(content_type=media)
        if len(self._tails) >= self._table.tails_max:
            raise RequestError("gateway.busy", "Too many tails are open: come again later")
        task = asyncio.current_task()
        assert task is not None
        tail = self._tails[task] = Tail(asked, self._core.session(NODE_PRINCIPAL), self._keys)
        response = web.StreamResponse()
        with suppress(ConnectionError):  # the reader has gone
            try:
                response = await begun_events(request)
                await tail.serve(response)
            except RillnodeError as error:
                await response.write(event("problem", self._api.problem(error)))
            finally:
                tail.follower.close()
                del self._tails[task]
                if asked.asker.ticket:
                    self._keys.renew(asked.asker.ticket)
        return response

    # Saved indexes, tickets, and what there is -----------------------------------------------

    async def indexes(self, request: web.Request) -> web.Response:
        """GET /streams/{name}/indexes/{client}."""
        client_id, asked = requests.segment(request, 4), await self._asked(request, by_ticket=False)
        load = partial(Client(asked.session).get_index, client_id, asked.stream.name)
        saved = {one: await load(partition=one) for one in asked.position}
        position = {one: index for one, index in saved.items() if index is not None}
        return json_answer({"position": asked._replace(position=position).text})

    async def save_indexes(self, request: web.Request) -> web.Response:
        """PUT /streams/{name}/indexes/{client}."""
        client_id, asked = requests.segment(request, 4), await self._asked(request, by_ticket=False)
        kind, text = dict[str, str | int], 'Send {"position": "17"}, or "0:17,1:4" for several'
        body = await requests.json_body(request, kind, text)
        self._keys.check(asked.asker)  # a body takes its time
        client, stream = Client(asked.session), asked.stream
        position = read_position(str(body.get("position")), asked.position, stream.created_at)
        save = partial(client.set_index, client_id, stream.name, created_at=stream.created_at)
        for one, index in position.items():
            position[one] = await save(index, partition=one)
        return json_answer({"position": asked._replace(position=position).text})

    async def ticket(self, request: web.Request) -> web.Response:
        """POST /tickets."""
        asker, text = self._asker(request), 'Send {"stream": "NAME"}'
        body = await requests.json_body(request, dict[str, str], text)
        name = body.get("stream", "")
        self._keys.check_right(asker, "pull", name)
        await describe(self._core.session(asker.principal), name)
        return json_answer(self._keys.ticket(asker, name), 201)

    async def openapi(self, _: web.Request) -> web.Response:
        """GET /openapi.json."""
        document = files("rillnode.node.gateway").joinpath("openapi.json").read_bytes()
        return web.Response(body=document, content_type="application/json")


async def _settle(placed: Iterable[_Placed]) -> None:
    """Wait until all that was pushed is durable; RillnodeError: the first that was refused."""
    for _, future in placed:  # one by one: thousands that are told together hold up the loop
        with suppress(RillnodeError):
            await future
    for _, future in placed:
        future.result()


async def _indexes(placed: Iterable[_Placed]) -> list[dict[str, int] | None]:
    """Where each entry is; None: it was refused. All are settled."""
    return [
        None if future.exception() else {"partition": partition, "index": future.result()}
        async for partition, future in bodies.in_turns(placed, BLOCK_ENTRIES)
    ]
