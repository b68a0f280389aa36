"""The admin session of the page, asked for over a link and used over HTTP."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from msgspec.structs import replace

from certificates import make_certificate
from coroutines import handed_by
from link_support import ManualClock
from nodes import CLIENT, connect_to, node_config
from rillnode.actors.core.access import Access
from rillnode.codecs.dead_letters import DeadLetter
from rillnode.codecs.errors import ConfigError, RequestError
from rillnode.codecs.keys import Identity
from rillnode.node.client.session import Session
from rillnode.node.config import Config, GrantTable, HttpListener
from rillnode.node.config.rules import problems
from rillnode.node.http import console
from rillnode.node.runtime import Node

PRINCIPAL = f"noise:{CLIENT.public_hex}"
TICKET, SESSION, DO = "/v1/session", "/v1/session", "/v1/console"


class Page:
    """What the page does: it keeps a cookie, and sends the token and its origin."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.http = aiohttp.ClientSession(
            base, cookie_jar=aiohttp.CookieJar(unsafe=True), headers={"Origin": base}
        )
        self.token = ""

    async def send(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any]:
        sent = {"Rillnode-Console": self.token}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.http.request(method, path, json=body, headers=sent) as answer:
            return answer.status, await answer.json()

    async def enter(self, ticket: str) -> tuple[int, Any]:
        status, document = await self.send("POST", SESSION, {"ticket": ticket})
        self.token = document.get("token", "")
        return status, document

    async def do(self, do: str, **command: Any) -> tuple[int, Any]:
        return await self.send("POST", DO, {"do": do, **command})

    async def refused(self, method: str, path: str, body: Any = None, **headers: str) -> str:
        status, document = await self.send(method, path, body, **headers)
        assert status >= 400, document
        return f"{status} {document['code']}"


class Scene(NamedTuple):
    node: Node
    page: Page

    async def ticket(self, identity: Identity = CLIENT) -> str:
        client = await connect_to(self.node, identity)
        async with client:
            return (await client.console_ticket()).ticket


@asynccontextmanager
async def scene(config: Config) -> AsyncGenerator[Scene]:
    async with Node(config) as node:
        page = Page(f"http://{node.addresses()['http']}")
        try:
            yield Scene(node, page)
        finally:
            await page.http.close()


def with_console(directory: Path, *grants: GrantTable) -> Config:
    http = HttpListener(listen="127.0.0.1:0", console=True)
    return replace(node_config(directory, *grants), http=http)


def run(config: Config, body: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), scene(config) as one:
            await body(one)

    asyncio.run(main())


one = handed_by(run, of=with_console)
unasked = handed_by(run, of=node_config)


def test_what_an_administrator_does_on_the_page(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rillnode.node.http.console")

    async def body(one: Scene) -> None:
        page, node = one.page, one.node
        status, session = await page.enter(await one.ticket())
        assert (status, session["principal"]) == (201, PRINCIPAL)
        assert 3_500 < session["seconds"] <= 3_600
        assert (await page.send("GET", SESSION))[1]["principal"] == PRINCIPAL
        assert await page.do("create", stream="s", partitions=2) == (200, {"partitions": 2})
        status, placed = await page.do(
            "push", stream="s", text='{"a": 1}', json=True, key="lamp", headers={"by": "hand"}
        )
        stream = await node.stream("s")
        assert placed == {"partition": stream.partition_of("lamp"), "index": 0}
        (entry,) = await stream.pull(0, 1, partition=placed["partition"])
        assert (entry.data, entry.key, entry.headers) == (b'{"a": 1}', b"lamp", {"by": b"hand"})
        assert (await page.do("push", stream="s", text="\u00fc", partition=1))[0] == 200
        await node.client.set_index("c", "s", 1)
        moved = await page.do("set_index", stream="s", consumer="c", partition=0, index=3)
        assert moved == (200, {"index": 3})
        status, kept = await page.do("set_index", stream="s", consumer="c", partition=0, index=2)
        assert (status, kept["code"]) == (409, "index.kept")
        assert kept["text"] == "the position stays at 3: it never goes back to 2"
        trimmed = await page.do("trim", stream="s", partition=1, before=1)
        assert trimmed == (200, {"first_index": 1})
        status, refusal = await page.do("remove", stream="s", typed="S")
        assert (status, refusal["code"]) == (400, "console.typed")
        assert await page.do("remove", stream="s", typed="s") == (200, {})
        assert [info.name for info in await node.client.streams()] == []
        status, refusal = await page.do("run_sink", sink="bronze", run=False)
        assert (status, refusal["code"]) == (404, "sink.unknown")
        assert (await page.send("DELETE", SESSION))[0] == 200
        assert await page.refused("GET", SESSION) == "401 console.session"

    run(with_console(tmp_path), body)
    done = [one for one in caplog.records if one.msg == "console_done"]
    assert [vars(one)["do"] for one in done] == [
        "create", "push", "push", "set_index", "trim", "remove",
    ]  # fmt: skip
    assert {vars(one)["principal"] for one in done} == {PRINCIPAL}
    assert vars(done[4])["stream"] == "s"
    refused = [vars(one)["code"] for one in caplog.records if one.msg == "console_refused"]
    assert refused == ["index.kept", "console.typed", "sink.unknown"]
    assert "lamp" not in caplog.text
    assert not any("hand" in str(vars(one)) for one in caplog.records)


async def test_dead_letters_are_given_again(one: Scene) -> None:
    stream = await one.node.stream("jobs")
    await stream.push(b"print")
    async with stream.work("prints", attempts=1) as work:
        async for job in work:
            await job.reject("no paper")
            break
    letters = await (await one.node.stream("jobs.dead")).pull(0, 1)
    assert DeadLetter.of(letters[0]).queue == "prints"
    await one.page.enter(await one.ticket())
    assert await one.page.do("retry", stream="jobs", queue="prints") == (
        200, {"taken": 1, "gone": 0},
    )  # fmt: skip


async def test_a_ticket_is_good_once_and_for_its_time(
    one: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket = await one.ticket()
    assert (await one.page.enter(ticket))[0] == 201
    status, refusal = await one.page.enter(ticket)
    assert (status, refusal["code"]) == (403, "console.ticket")
    assert refusal["text"] == "This link was already used, or has expired"
    assert "rillnode console" in refusal["next"]
    for wrong in ("", "x", "\u00fc", ticket[:-1]):
        assert (await one.page.enter(wrong))[0] == 403
    monkeypatch.setattr(console, "TICKET_SECONDS", 0.0)
    assert (await one.page.enter(await one.ticket()))[0] == 403
    monkeypatch.setattr(console, "TICKET_SECONDS", 60.0)
    # The first of too many is forgotten.
    tickets = [await one.ticket() for _ in range(2)]
    monkeypatch.setattr(console, "TICKETS_MAX", 2)
    await one.ticket()
    assert (await one.page.enter(tickets[0]))[0] == 403
    assert (await one.page.enter(tickets[1]))[0] == 201


async def test_a_session_ends_with_its_time_and_makes_room(
    one: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Page(one.page.base)
    monkeypatch.setattr(console, "SESSION_SECONDS", 1.0)
    await one.page.enter(await one.ticket())
    assert (await one.page.do("create", stream="s"))[0] == 200
    await asyncio.sleep(1.1)
    assert await one.page.refused("POST", DO, {"do": "create"}) == "401 console.session"
    monkeypatch.setattr(console, "SESSION_SECONDS", 60.0)
    monkeypatch.setattr(console, "SESSIONS_MAX", 1)
    await one.page.enter(await one.ticket())
    await other.enter(await one.ticket())
    assert await one.page.refused("GET", SESSION) == "401 console.session"
    assert (await other.send("GET", SESSION))[0] == 200
    await other.http.close()


async def test_commands_and_tickets_are_paced(one: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "COMMANDS_PER_MINUTE", 2)
    await one.page.enter(await one.ticket())
    for _ in range(2):
        assert (await one.page.do("create", stream="s"))[0] == 200
    assert await one.page.refused("POST", DO, {"do": "create"}) == "429 console.busy"
    for _ in range(console.EXCHANGES_PER_MINUTE - 1):
        assert await one.page.refused("POST", SESSION, {"ticket": "x"}) == "403 console.ticket"
    refusal = await one.page.refused("POST", SESSION, {"ticket": await one.ticket()})
    assert refusal == "429 console.busy"


async def test_nobody_else_acts_in_a_session(one: Scene) -> None:
    page = one.page
    await page.enter(await one.ticket())
    create = {"do": "create", "stream": "s"}
    # Neither another site's page, nor one of another port, nor one without the token.
    for origin in ("http://evil.example", f"{page.base}0", "null", ""):
        refusal = await page.refused("POST", DO, create, Origin=origin)
        assert refusal == "403 http.cross_site"
    for site in ("cross-site", "same-site", "none"):
        refusal = await page.refused("POST", DO, create, Sec_Fetch_Site=site)
        assert refusal == "403 http.cross_site"
    for token in ("", "x", page.token[:-1]):
        refusal = await page.refused("POST", DO, create, Rillnode_Console=token)
        assert refusal == "401 console.session"
    # A name that leads here, and a proxy that may speak in clear to others.
    evil = {"Host": "evil.example", "Origin": "http://evil.example"}
    assert await page.refused("POST", DO, create, **evil) == "403 http.host"
    forwarded = {"X_Forwarded_For": "10.0.0.1"}
    assert await page.refused("POST", DO, create, **forwarded) == "403 console.proxy"
    stranger = Page(page.base)
    stranger.token = page.token  # and no cookie
    assert await stranger.refused("POST", DO, create) == "401 console.session"
    await stranger.http.close()
    assert await one.node.client.streams() == []
    assert (await page.do("create", stream="s"))[0] == 200


async def test_the_cookie_is_the_pages_alone(one: Scene) -> None:
    ticket = await one.ticket()
    async with one.page.http.post(SESSION, json={"ticket": ticket}) as answer:
        (cookie,) = answer.headers.getall("Set-Cookie")
        token = (await answer.json())["token"]
    attributes = cookie.split("; ")
    port = one.page.base.rpartition(":")[2]
    assert attributes[0].startswith(f"rillnode-console-{port}=")
    assert {"HttpOnly", "SameSite=Strict", "Path=/v1", "Max-Age=3600"} <= set(attributes)
    assert token not in cookie


def test_a_session_ends_when_the_right_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rillnode.node.http.console")
    config = with_console(tmp_path)

    async def body(one: Scene) -> None:
        await one.page.enter(await one.ticket())
        unused = await one.ticket()
        less = (GrantTable(who=PRINCIPAL, streams="*", may=("create", "push")),)
        one.node.reload(replace(config, grants=less))
        async with asyncio.timeout(10):
            while not any(vars(it).get("reason") == "right" for it in caplog.records):
                await asyncio.sleep(0.01)
        one.node.reload(config)
        # It does not come back with the right.
        assert await one.page.refused("GET", SESSION) == "401 console.session"
        one.node.reload(replace(config, grants=less))
        assert (await one.page.enter(unused))[0] == 403
        with pytest.raises(RequestError, match=r"address\.unknown"):
            await one.ticket()

    run(config, body)


def test_what_is_not_granted_is_refused_as_to_its_principal(tmp_path: Path) -> None:
    grants = (
        GrantTable(who=PRINCIPAL, streams="own.*", may=("admin",)),
        GrantTable(who=PRINCIPAL, streams="read.*", may=("pull",)),
    )

    async def body(one: Scene) -> None:
        for name in ("own.s", "read.s", "other"):
            await one.node.stream(name)
        await one.page.enter(await one.ticket())
        assert (await one.page.do("push", stream="own.s", text="x"))[0] == 200
        client = await connect_to(one.node)
        for name in ("read.s", "other"):
            with pytest.raises(RequestError) as native:
                await (await client.stream(name)).push(b"x")
            status, refusal = await one.page.do("push", stream=name, text="x")
            assert status == 404
            assert (refusal["code"], refusal["text"]) == (native.value.code, native.value.text)
            assert name in refusal["text"]
            with pytest.raises(RequestError) as removal:
                await client.remove(name)
            status, refusal = await one.page.do("remove", stream=name, typed=name)
            assert (refusal["code"], refusal["text"]) == (
                removal.value.code, removal.value.text,
            )  # fmt: skip
        await client.close()

    run(with_console(tmp_path, *grants), body)


async def test_what_is_no_command_is_refused(one: Scene) -> None:
    await one.page.enter(await one.ticket())
    commands: tuple[Any, ...] = (
        0, [], "x", {}, {"do": "format"}, {"do": "create"}, {"do": "create", "stream": ""},
        {"do": "create", "stream": "s", "partitions": 0},
        {"do": "create", "stream": "s", "partitions": 10**30},
        {"do": "create", "stream": "s", "more": 1},
        {"do": "trim", "stream": "s", "partition": -1, "before": 1},
        {"do": "trim", "stream": "s", "partition": 0, "before": 10**19},
        {"do": "push", "stream": "s", "text": 1},
        {"do": "push", "stream": "s", "text": "{", "json": True},
        {"do": "set_index", "stream": "s", "consumer": "", "partition": 0, "index": 1},
        {"do": "retry", "stream": "s", "queue": "q", "limit": 0},
    )  # fmt: skip
    for command in commands:
        assert await one.page.refused("POST", DO, command) == "400 http.body", command
    assert await one.node.client.streams() == []


async def test_a_body_is_bounded(one: Scene) -> None:
    await one.page.enter(await one.ticket())
    most = "x" * console.BODY_BYTES_MAX
    refusal = await one.page.refused("POST", DO, {"do": "push", "stream": "s", "text": most})
    assert refusal == "413 http.too_large"


async def test_without_the_word_there_is_no_session(unasked: Scene) -> None:
    with pytest.raises(RequestError) as refusal:
        await unasked.ticket()
    assert refusal.value.code == "console.off"
    assert "console = true" in refusal.value.text
    for method, path in (("POST", SESSION), ("GET", SESSION), ("POST", DO)):
        assert await unasked.page.refused(method, path, {}) == "404 http.path"


def test_who_proves_no_identity_gets_no_ticket() -> None:
    def nobody(principal: str) -> Session:
        raise AssertionError(principal)

    one = console.Console(
        Access(), nobody, lambda: "127.0.0.1:1", tls=False, clock=ManualClock(), entropy=os.urandom
    )
    with pytest.raises(RequestError, match=r"console\.anonymous"):
        one.invite("anonymous")


def test_over_tls_it_is_reached_by_any_name(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    http = HttpListener(listen="0.0.0.0:0", console=True, tls_cert=cert, tls_key=key)

    async def body(one: Scene) -> None:
        port = one.node.addresses()["http"].rpartition(":")[2]
        page = Page(f"https://127.0.0.1:{port}")
        name = f"edge.example.org:{port}"
        named = {"Host": name, "Origin": f"https://{name}", "X-Forwarded-For": "10.0.0.1"}
        sent = {"ticket": await one.ticket()}
        async with page.http.post(SESSION, json=sent, headers=named, ssl=False) as answer:
            assert answer.status == 201
            assert "; Secure" in answer.headers["Set-Cookie"]
        plain = {"Host": name, "Origin": f"http://{name}"}
        async with page.http.post(SESSION, json=sent, headers=plain, ssl=False) as answer:
            assert (answer.status, (await answer.json())["code"]) == (403, "http.cross_site")
        await page.http.close()

    run(replace(node_config(tmp_path / "node"), http=http), body)


def test_in_clear_beyond_loopback_it_is_refused(tmp_path: Path) -> None:
    http = HttpListener(listen="0.0.0.0:8080", console=True, allow_plain=True)
    config = replace(node_config(tmp_path), http=http)
    (problem,) = problems(config)
    assert (problem.path, problem.code) == (("http", "console"), "config.plain")
    assert "sessions are not encrypted" in problem.text
    with pytest.raises(ConfigError, match=r"config\.plain"):
        Node(config)
