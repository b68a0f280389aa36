"""The REST interface of a node, call by call: logins, streams, permissions, browsers."""

import asyncio
from pathlib import Path

import pytest

from coroutines import handed_by
from nodes import CLIENT, connect_to
from rillnode.codecs.api_keys import hash_of
from rillnode.node.config import GrantTable
from rillnode.node.config.listener_tables import ApiKeyTable
from streamr_rest_support import ALICE, BOB, Server, User, served, streamr_config

server = handed_by(served, of=streamr_config)

NOBODY = "0x" + "12" * 20

# Logging in ----------------------------------------------------------------------------------


async def test_a_key_logs_in_by_challenge_and_is_told_who_it_is(server: Server) -> None:
    user = User(server.http, server.base, ALICE)
    opened = await user.post(f"/login/challenge/{ALICE.address}")
    assert opened.status == 200
    assert set(opened.body) == {"id", "challenge", "expires"}
    await user.log_in()
    me = await user.get("/users/me")
    assert (me.status, me.body) == (200, {"name": user.address, "username": user.address})


async def test_a_wrong_login_is_401(server: Server) -> None:
    user = User(server.http, server.base, ALICE)
    opened = (await user.post(f"/login/challenge/{ALICE.address}")).body
    forged = BOB.sign(opened["challenge"].encode())
    body = {"challenge": opened, "signature": forged, "address": ALICE.address}
    refused = await user.post("/login/response", body)
    assert refused.refusal == (401, "CHALLENGE_VERIFICATION_FAILED_ERROR")
    assert (await user.post("/login/apikey", {"apiKey": "x"})).refusal == (
        401, "INVALID_API_KEY_ERROR",
    )  # fmt: skip
    assert (await user.post("/login/password", {"username": "a"})).refusal == (404, "NOT_FOUND")
    assert (await user.get("/users/me")).refusal == (401, "NOT_AUTHENTICATED")
    user.token = "made up"
    for path in ("/users/me", "/streams", "/streams/x"):
        assert (await user.get(path)).refusal == (401, "INVALID_SESSION_TOKEN_ERROR")


def test_an_api_key_logs_in(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        user = server.anybody()
        user.token = (await user.post("/login/apikey", {"apiKey": "the key"})).body["token"]
        assert (await user.get("/users/me")).body == {"name": "board", "username": "board"}
        assert (await user.post("/streams", {"id": "mine"})).status == 200

    keys = [ApiKeyTable(name="board", hash=hash_of("the key"))]
    creates = GrantTable(who="apikey:board", streams="mine", may=("create",))
    served(streamr_config(tmp_path, creates, apikeys=keys), test)


def test_a_token_and_a_logout_outlive_the_node(tmp_path: Path) -> None:
    tokens: list[str] = []

    async def before(server: Server) -> None:
        kept, ended = await server.user(), await server.user()
        tokens.extend((kept.token or "", ended.token or ""))
        assert (await ended.post("/logout")).status == 204
        assert (await ended.post("/logout")).refusal == (401, "INVALID_SESSION_TOKEN_ERROR")
        await kept.make(id="s", name="called")

    async def after(server: Server) -> None:
        user = server.anybody()
        user.token = tokens[0]
        assert (await user.get("/users/me")).status == 200
        # Permissions and names are known again, too.
        assert (await user.get("/streams/s")).status == 200
        assert [one["id"] for one in (await user.get("/streams?name=called")).body] == ["s"]
        user.token = tokens[1]
        assert (await user.get("/users/me")).refusal == (401, "INVALID_SESSION_TOKEN_ERROR")

    served(streamr_config(tmp_path), before, after)


def test_logins_are_bounded_for_each_address(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        user = await server.user()
        refused = await user.post(f"/login/challenge/{ALICE.address}")
        assert refused.refusal == (429, "TOO_MANY_REQUESTS")
        assert refused.headers["Retry-After"] == "1"
        assert (await user.get("/users/me")).status == 200

    # So few that half a minute of a slow machine allows no more.
    served(streamr_config(tmp_path, logins_per_minute=2), test)


# Streams -------------------------------------------------------------------------------------


async def test_a_stream_is_found_under_its_id_however_it_is_written(server: Server) -> None:
    user = await server.user()
    await user.make(id="/a b/c", partitions=2)
    for path in (f"{user.address}/a%20b/c", f"{user.address}%2Fa%20b%2Fc"):
        assert (await user.get(f"/streams/{path}")).body["id"] == f"{user.address}/a b/c"
        found = await user.get(f"/streams/{path}/validation")
        assert found.body == {
            "partitions": 2, "requireSignedData": False, "requireEncryptedData": False,
        }  # fmt: skip
    # Encoded, an id may end as a call does.
    await user.make(id="/x/publishers")
    path = f"{user.address}%2Fx%2Fpublishers"
    assert (await user.get(f"/streams/{path}")).body["id"].endswith("/x/publishers")
    assert "addresses" in (await user.get(f"/streams/{path}/publishers")).body


async def test_get_or_create_finds_what_it_needs(server: Server) -> None:
    user = await server.user()
    assert (await user.get("/streams/none")).refusal == (404, "NOT_FOUND")
    assert (await user.get("/streams?name=none&public=false")).body == []
    made = await user.post("/streams", {"name": "none"})
    assert (made.status, made.body["name"], made.body["partitions"]) == (200, "none", 1)
    (found,) = (await user.get("/streams?name=none&public=false")).body
    assert found == made.body
    again = await user.post("/streams", {"id": found["id"]})
    assert again.refusal == (400, "DUPLICATE_NOT_ALLOWED")


async def test_others_cannot_tell_a_stream_from_none(server: Server) -> None:
    alice, bob, anybody = await server.user(), await server.user(BOB), server.anybody()
    await alice.make(id="s")
    calls = [("GET", ""), ("PUT", ""), ("DELETE", ""), ("GET", "/publishers"),
             ("GET", "/subscribers"), ("GET", f"/publisher/{ALICE.address}"),
             ("GET", "/validation"), ("GET", "/permissions"), ("GET", "/permissions/me"),
             ("DELETE", "/permissions/1"), ("GET", "/data/partitions/0/last"),
             ("GET", "/data/partitions/0/from?fromTimestamp=0"), ("POST", "/data")]  # fmt: skip
    for user in (bob, anybody):
        for method, path in calls:
            body: dict[str, object] | None = {} if method in ("PUT", "POST") else None
            answers = [await user.call(method, f"/streams/{name}{path}", body)
                       for name in ("s", "t")]  # fmt: skip
            assert [one.refusal for one in answers] == [(404, "NOT_FOUND")] * 2, path
    refused = await anybody.post("/streams", {"id": "u"})
    assert refused.refusal == (401, "NOT_AUTHENTICATED")


def test_who_may_not_create_is_told(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        user = await server.user()
        assert (await user.post("/streams", {"id": "other"})).refusal == (403, "FORBIDDEN")
        assert (await user.post("/streams", {"id": "mine/1"})).status == 200
        assert (await user.post("/streams", {"id": f"{NOBODY}/x"})).refusal == (
            422, "VALIDATION_ERROR",
        )  # fmt: skip
        assert (await user.post("/streams", {"id": "mine/2", "partitions": 0})).refusal == (
            422, "VALIDATION_ERROR",
        )  # fmt: skip

    served(
        streamr_config(tmp_path, GrantTable(who="eth:*", streams="mine*", may=("create",))), test
    )


async def test_a_stream_is_edited_and_deleted(server: Server) -> None:
    user = await server.user()
    path = "/streams/" + await user.make(name="n", description="d")
    before = (await user.get(path)).body
    changed = await user.call("PUT", path, {**before, "description": "e", "partitions": 2})
    assert (changed.status, changed.body["description"]) == (200, "e")
    assert (await user.get(path)).body["partitions"] == 2
    shrunk = await user.call("PUT", path, {"partitions": 1})
    assert shrunk.refusal == (422, "VALIDATION_ERROR")
    assert (await user.call("DELETE", path)).status == 204
    assert (await user.get(path)).refusal == (404, "NOT_FOUND")
    assert (await user.get("/streams?name=n")).body == []


async def test_lists_hold_what_was_asked_for(server: Server) -> None:
    alice, bob = await server.user(), await server.user(BOB)
    for number in range(5):
        await alice.make(id=f"s{number}", name=f"Weather {number}", description="of Oslo")
    public = {"operation": "stream_get", "anonymous": True}
    await alice.post("/streams/s1/permissions", public)
    shared = {"operation": "stream_subscribe", "user": BOB.address}
    await alice.post("/streams/s2/permissions", shared)

    async def ids(user: User, query: str) -> list[str]:
        return [one["id"] for one in (await user.get(f"/streams?{query}")).body]

    assert await ids(alice, "") == ["s0", "s1", "s2", "s3", "s4"]
    assert await ids(alice, "max=2&offset=1") == ["s1", "s2"]
    assert await ids(alice, "search=WEATHER%203") == ["s3"]
    assert await ids(alice, "search=oslo&max=1") == ["s0"]
    assert await ids(bob, "") == ["s2"]
    assert await ids(bob, "public=true") == ["s1", "s2"]
    assert await ids(bob, "operation=stream_publish") == []
    assert await ids(bob, "operation=STREAM_SUBSCRIBE") == ["s2"]
    assert await ids(bob, "name=Weather%201&public=true") == ["s1"]
    assert await ids(server.anybody(), "public=true") == ["s1"]
    for wrong in ("max=x", "offset=-1", "operation=fly"):
        assert (await alice.get(f"/streams?{wrong}")).refusal == (400, "BAD_PARAMETERS")


# Permissions ---------------------------------------------------------------------------------


async def test_permissions_are_given_told_and_taken_back(server: Server) -> None:
    alice, bob = await server.user(), await server.user(BOB)
    path = "/streams/" + await alice.make(name="n")
    given = await alice.post(
        f"{path}/permissions", {"operation": "stream_subscribe", "user": BOB.address}
    )
    assert given.status == 200
    assert given.body == {
        "id": given.body["id"], "user": bob.address, "operation": "stream_subscribe",
    }  # fmt: skip
    assert (await bob.get(f"{path}/permissions/me")).body[1] == given.body
    listed = (await alice.get(f"{path}/permissions")).body
    assert given.body in listed
    assert len([one for one in listed if one["user"] == alice.address]) == 6
    one = f"{path}/permissions/{given.body['id']}"
    assert (await alice.get(one)).body == given.body
    assert (await bob.get(path)).status == 200
    for method, where in (("GET", "/permissions"), ("PUT", ""), ("DELETE", "")):
        refused = await bob.call(method, path + where, {} if method == "PUT" else None)
        assert refused.refusal == (403, "FORBIDDEN")
    assert (await alice.call("DELETE", one)).status == 204
    assert (await alice.call("DELETE", one)).refusal == (404, "NOT_FOUND")
    assert (await bob.get(path)).refusal == (404, "NOT_FOUND")


async def test_a_public_permission_is_everybodys(server: Server) -> None:
    alice, anybody = await server.user(), server.anybody()
    path = "/streams/" + await alice.make(name="n")
    given = await alice.post(f"{path}/permissions", {"operation": "stream_get", "anonymous": True})
    assert given.body["anonymous"] is True
    assert (await anybody.get(path)).status == 200
    assert (await anybody.get(f"{path}/permissions/me")).body == [given.body]
    assert (await anybody.post(f"{path}/data", {"a": 1})).refusal == (403, "FORBIDDEN")


async def test_a_wrong_permission_is_refused(server: Server) -> None:
    wrong: list[tuple[object, tuple[int, str]]] = [
        ({"operation": "stream_fly", "user": NOBODY}, (400, "BAD_PARAMETERS")),
        ({"operation": "stream_get"}, (400, "BAD_PARAMETERS")),
        ({"user": NOBODY}, (400, "BAD_PARAMETERS")),
        ({"operation": "stream_get", "user": "no body"}, (422, "VALIDATION_ERROR")),
        ([], (400, "BAD_PARAMETERS")),
    ]
    alice = await server.user()
    path = "/streams/" + await alice.make(name="n")
    for body, refusal in wrong:
        assert (await alice.post(f"{path}/permissions", body)).refusal == refusal


async def test_publishers_and_subscribers_are_addresses_in_lower_case(server: Server) -> None:
    alice, bob = await server.user(), await server.user(BOB)
    path = "/streams/" + await alice.make(name="n")
    node = server.node.status()["streamr"]["ethereum_address"].lower()
    publishers = await alice.get(f"{path}/publishers")
    assert publishers.body == {"addresses": sorted([alice.address, node])}
    assert (await alice.get(f"{path}/subscribers")).body == {"addresses": [alice.address]}
    given = {"operation": "stream_publish", "user": BOB.address}
    await alice.post(f"{path}/permissions", given)
    assert bob.address in (await alice.get(f"{path}/publishers")).body["addresses"]
    for address in (ALICE.address, alice.address, BOB.address, node):
        assert (await alice.get(f"{path}/publisher/{address}")).status == 200
    for address in (NOBODY, "nobody", "0x", "a" * 64):
        found = await alice.get(f"{path}/publisher/{address}")
        assert found.refusal == (404, "NOT_FOUND")
    assert (await alice.get(f"{path}/subscriber/{ALICE.address}")).status == 200
    for address in (BOB.address, node):
        found = await alice.get(f"{path}/subscriber/{address}")
        assert found.refusal == (404, "NOT_FOUND")


def test_who_published_by_a_grant_for_a_pattern_is_a_publisher(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        alice, bob = await server.user(), await server.user(BOB)
        path = "/streams/" + await alice.make(name="n", partitions=3)
        assert bob.address not in (await alice.get(f"{path}/publishers")).body["addresses"]
        assert bob.address in (await bob.get(f"{path}/publishers")).body["addresses"]
        # He may, as everybody may, but has not: nobody can have a message to ask about.
        assert (await alice.get(f"{path}/publisher/{BOB.address}")).refusal[0] == 404
        assert (await bob.get(f"{path}/publisher/{BOB.address}")).status == 200
        assert (await bob.post(f"{path}/data", {"a": 1})).status == 200
        assert (await alice.get(f"{path}/publisher/{BOB.address}")).status == 200
        assert bob.address in (await alice.get(f"{path}/publishers")).body["addresses"]

    everybody = GrantTable(who="eth:*", streams="*", may=("create", "push"))
    served(streamr_config(tmp_path, everybody), test)


# Other protocols -----------------------------------------------------------------------------


async def test_a_permission_lets_clients_of_other_protocols_in(server: Server) -> None:
    alice = await server.user()
    path = "/streams/" + await alice.make(id="s", partitions=2)
    user = f"noise:{CLIENT.public_hex}"
    for operation in ("stream_publish", "stream_subscribe"):
        given = await alice.post(f"{path}/permissions", {"operation": operation, "user": user})
        assert given.body["user"] == user
    async with await connect_to(server.node) as client:
        stream = await client.stream("s")
        await stream.push(b'{"from": "elsewhere"}')
        (stored,) = (await alice.get(f"{path}/data/partitions/0/last")).body
        assert stored["content"] == {"from": "elsewhere"}
        assert stored["publisherId"] in (await alice.get(f"{path}/publishers")).body["addresses"]


async def test_a_stream_that_another_protocol_removes_is_gone_with_its_permissions(
    server: Server,
) -> None:
    alice = await server.user()
    await alice.make(id="s", name="called")
    assert (await alice.get("/streams?name=called")).body
    await server.node.client.remove("s")
    assert (await alice.get("/streams/s")).refusal == (404, "NOT_FOUND")
    assert (await alice.get("/streams?name=called")).body == []
    await server.node.stream("s")
    # The name is another stream's now, to which nobody has given her anything.
    assert (await alice.get("/streams/s")).refusal == (404, "NOT_FOUND")


# Browsers, and who sends anything at all ------------------------------------------------------


def test_pages_of_configured_origins_may_ask(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        user = await server.user()
        for origin, told in (("https://a.example", True), ("https://b.example", False)):
            headers = {"Origin": origin, "Access-Control-Request-Method": "PUT"}
            asked = await user.call("OPTIONS", "/streams/x", headers=headers)
            assert asked.status == (204 if told else 403)
            assert ("Access-Control-Allow-Origin" in asked.headers) is told
            for path, status in (("/users/me", 200), ("/streams/none", 404), ("/streams", 200)):
                answer = await user.call("GET", path, headers=headers)
                allowed = answer.headers.get("Access-Control-Allow-Origin")
                assert allowed == (origin if told else None)
                if told:
                    assert answer.status == status
                else:
                    assert answer.refusal == (403, "ORIGIN_NOT_ALLOWED")
        assert (await user.call("HEAD", "/users/me")).status == 200
        stored = f"/streams/{await user.make(name='n')}/data/partitions/0/last"
        assert (await user.call("HEAD", stored)).body == b""
        assert (await user.call("HEAD", "/streams/none")).status == 404

    served(streamr_config(tmp_path, origins=["https://a.example"]), test)


@pytest.mark.parametrize(
    ("origins", "origin", "admitted"),
    [
        ([], None, True),
        ([], "https://a.example", False),
        ([], "null", False),
        (["https://a.example"], None, True),
        (["https://a.example"], "https://a.example", True),
        (["https://a.example"], "https://a.example:8443", False),
        (["https://a.example"], "http://a.example", False),
        (["*"], "https://b.example", True),
    ],
)
def test_a_page_opens_a_socket_where_it_may_ask(
    tmp_path: Path, origins: list[str], origin: str | None, admitted: bool
) -> None:
    async def test(server: Server) -> None:
        url = f"{server.base}/ws?controlLayerVersion=2&messageLayerVersion=32"
        headers = {} if origin is None else {"Origin": origin}
        if admitted:
            async with server.http.ws_connect(url, headers=headers) as socket:
                await socket.send_str('[2,9,"s","none",0,null]')
                assert (await socket.receive_json(timeout=60.0))[:3] == [2, 7, "s"]
        else:
            async with server.http.get(url, headers={**headers, **UPGRADE}) as answer:
                assert answer.status == 403
                assert (await answer.json())["code"] == "ORIGIN_NOT_ALLOWED"

    served(streamr_config(tmp_path, origins=origins), test)


UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}

PATHS = [
    "/", "/nothing", "/streams/", "/streams/%00", "/streams/%ff%fe", "/streams/..",
    "/streams/s/nothing", "/streams/" + "a/" * 2_000, "/streams/" + "%2F" * 900,
    "/streams/" + "%E2%82%AC" * 300, "/streams/s/data/partitions/-1/last",
    "/streams/s/permissions/x", "/streams/s/publisher/" + "0" * 4_000, "/login/challenge/0x",
]  # fmt: skip
BODIES = [b"\xff", b"[" * 100_000, b'{"name":' + b"9" * 5_000 + b"}", b'"', b"null"]
TAKERS = [
    ("POST", "/streams"), ("PUT", "/streams/s"), ("POST", "/streams/s/permissions"),
    ("POST", "/login/response"), ("POST", "/login/apikey"),
]  # fmt: skip


@pytest.mark.parametrize(
    "rest",
    [
        b"Transfer-Encoding: chunked\r\n\r\nnot hexadecimal\r\n",
        b"Content-Encoding: gzip\r\nContent-Length: 10\r\n\r\n0123456789",
    ],
)
def test_a_body_that_is_not_what_its_headers_say_is_answered_with_400(
    tmp_path: Path, rest: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(server: Server) -> None:
        host, _, port = server.node.addresses()["streamr"].rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            b"POST /api/v1/login/apikey HTTP/1.1\r\nHost: node\r\nConnection: close\r\n" + rest
        )
        assert (await reader.read()).split(b" ")[1] == b"400"
        writer.close()
        # One that breaks off is nobody's to be answered.
        _, broken = await asyncio.open_connection(host, int(port))
        broken.write(b"POST /api/v1/login/apikey HTTP/1.1\r\nContent-Length: 9\r\n\r\n{")
        broken.transport.abort()
        assert (await server.anybody().get("/users/me")).status == 401

    served(streamr_config(tmp_path), test)
    assert not [one for one in caplog.records if one.exc_info]


async def test_no_request_does_harm(server: Server) -> None:
    user = await server.user()
    await user.make(id="s")
    for path in PATHS:
        for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"):
            answer = await user.call(method, path, {"x": 1} if method[0] == "P" else None)
            assert 400 <= answer.status < 500, (method, path)
            if method != "HEAD":
                assert answer.refusal[1]
    for body in BODIES:
        for method, path in TAKERS:
            answer = await user.call(method, path, data=body)
            assert answer.refusal == (400, "BAD_PARAMETERS")
    assert (await user.get("/streams/s")).status == 200


# What clients ask of a stream's fields and its storage ----------------------------------------


async def test_fields_are_those_of_the_newest_message(server: Server) -> None:
    user = await server.user()
    path = f"/streams/{await user.make(name='n', config={'fields': [], 'kept': 1})}"
    before = await user.get(path)
    assert (await user.get(f"{path}/detectFields")).body == before.body
    content = {"n": 1, "x": 0.5, "s": "t", "b": True, "l": [1], "m": {"a": 1}, "none": None}
    for sent in ({"old": 1}, content):
        assert (await user.post(f"{path}/data", sent)).status == 200
    found = await user.get(f"{path}/detectFields?flatten=false")
    types = {one["name"]: one["type"] for one in found.body["config"]["fields"]}
    assert types == {
        "n": "number", "x": "number", "s": "string", "b": "boolean", "l": "list", "m": "map",
    }  # fmt: skip
    assert found.body == {
        **before.body,
        "config": {"fields": found.body["config"]["fields"], "kept": 1},
    }
    # What was found is not kept, until it is sent back.
    assert (await user.get(path)).body == before.body
    assert (await user.post(f"{path}/data", [1, 2])).status == 200
    assert (await user.get(f"{path}/detectFields")).body == before.body
    stranger = await server.user(BOB)
    assert (await stranger.get(f"{path}/detectFields")).refusal == (404, "NOT_FOUND")


async def test_fields_are_for_who_may_read_messages(server: Server) -> None:
    user, other = await server.user(), await server.user(BOB)
    path = f"/streams/{await user.make(name='n')}"
    given = {"user": other.address, "operation": "stream_get"}
    assert (await user.post(f"{path}/permissions", given)).status == 200
    assert (await other.get(f"{path}/detectFields")).refusal == (403, "FORBIDDEN")


async def test_every_stream_is_stored_by_this_node(server: Server) -> None:
    user, stranger = await server.user(), await server.user(BOB)
    name = await user.make(name="n", partitions=2)
    path = f"/streams/{name}/storageNodes"
    own = server.node.facts["ethereum_address"]
    assert (await user.get(path)).body == [{"streamId": name, "storageNodeAddress": own}]
    added = await user.post(path, {"address": NOBODY.upper().replace("X", "x")})
    assert (added.status, added.body) == (
        200, {"streamId": name, "storageNodeAddress": NOBODY},
    )  # fmt: skip
    assert (await user.post(path, {"address": "0x"})).refusal == (400, "BAD_PARAMETERS")
    removed = await user.call("DELETE", f"{path}/{own}")
    assert removed.refusal == (403, "FORBIDDEN")
    assert (await stranger.get(path)).refusal == (404, "NOT_FOUND")
    assert (await stranger.post(path, {"address": NOBODY})).refusal == (404, "NOT_FOUND")
    assert (await stranger.call("DELETE", f"{path}/{own}")).refusal == (404, "NOT_FOUND")
    for address in (own, NOBODY):
        kept = f"/storageNodes/{address}/streams"
        assert (await user.get(kept)).body == [{"id": name, "partitions": 2}]
        assert (await stranger.get(kept)).body == []
    assert (await user.get("/storageNodes/none/streams")).refusal == (400, "BAD_PARAMETERS")
