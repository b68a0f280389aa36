"""`rillnode route ask`, `route send` and `rillnode peer` against a client without a node."""

import json
from pathlib import Path
from typing import Any

import pytest

from fake_client import FakeClient, Screen
from rillnode.codecs.errors import RequestError
from rillnode.codecs.keys import Identity
from rillnode.codecs.limits import FRAME_BYTES_MAX
from rillnode.codecs.routing.routes import Route, parse_route
from rillnode.node.cli import main
from rillnode.node.client import Answer
from rillnode.node.keys.files import write_key

BACK: Route = parse_route("TCP_C_00;echo")


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeClient:
    (tmp_path / "node.toml").write_text('name = "a"\n')
    write_key(tmp_path / "data" / "identity.key", Identity.from_seed(bytes(32)))
    write_key(tmp_path / "data" / "admin.key", Identity.from_seed(bytes(32)))
    monkeypatch.chdir(tmp_path)
    fake = FakeClient(answer=Answer(BACK, b"hello"))
    monkeypatch.setattr("rillnode.node.client.connect", fake.connect)
    return fake


def run(*argv: str, stdin: bytes = b"", tty: bool = False) -> tuple[int, str, str]:
    screen = Screen(stdin, tty=tty)
    return main(argv, screen.terminal), screen.out, screen.err


def ask(*argv: str, stdin: bytes = b"", tty: bool = False) -> tuple[int, str, str]:
    return run("route", "ask", *argv, stdin=stdin, tty=tty)


# route ask, route send -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "stdin", "payload"),
    [
        (["größer"], b"", "größer".encode()),
        ([""], b"ignored", b""),
        (["--payload-hex", "00 fF"], b"", b"\x00\xff"),
        ([], b"a\nb\n", b"a\nb\n"),
        ([], b"", b""),
    ],
)
def test_the_payload_comes_from_an_option_or_from_stdin(
    client: FakeClient, argv: list[str], stdin: bytes, payload: bytes
) -> None:
    code, _, err = ask("a", *argv, stdin=stdin)
    assert (code, err) == (0, "")
    assert client.sent == [(parse_route("a"), payload)]


@pytest.mark.parametrize("text", ["1#h:4000;peer/b", " 1#h:4000 => peer/b "])
def test_routes_are_written_either_way(client: FakeClient, text: str) -> None:
    assert ask(text, "x")[0] == 0
    assert client.sent[0][0] == ((1, b"h:4000"), (0, b"peer/b"))


def test_the_answer_is_one_line_of_json_for_programs(client: FakeClient) -> None:
    out = ask("a", "x")[1]
    expected: dict[str, Any] = {
        "return_route": "0#TCP_C_00;0#echo", "payload": "68656c6c6f", "text": "hello",
    }  # fmt: skip
    assert json.loads(out) == expected
    client.answer = Answer((), b"\xff\x00")
    assert json.loads(ask("a", "x")[1]) == {
        "return_route": "", "payload": "ff00",
    }  # fmt: skip


def test_people_see_text_or_digits(client: FakeClient) -> None:
    code, out, err = ask("a", "x", tty=True)
    assert (code, out) == (0, "hello\n")
    assert "0#TCP_C_00;0#echo" in err
    client.answer = Answer((), b"\xff\x00")
    assert ask("a", "x", tty=True)[1] == "ff00\n"
    client.answer = Answer((), b"\x1b[2J")
    assert "\x1b" not in ask("a", "x", tty=True)[1]


def test_nothing_is_waited_for_on_demand(client: FakeClient) -> None:
    client.answer = None
    assert run("route", "send", "a", "x") == (0, "", "")
    assert client.sent == [(parse_route("a"), b"x")]
    code, out, err = ask("a", "x", "--wait", "0.5")
    assert (code, out) == (1, "")
    assert "nothing has come back in 0.5 s [message.timeout]\n  next: check the route" in err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "ROUTE"),
        (["a;;b"], "expected a route: '' is not an address"),
        ([" "], "expected a route, such as 'peer/core;echo'"),
        (["x#a"], "expected a route: 'x#a' is not an address"),
        ([";".join("a" * 65)], "more than 64 hops"),
        (["a", "--payload-hex", "0g"], "expected hexadecimal digits, not '0g'"),
        (["a", "x", "--payload-hex", "00"], "not allowed with"),
        (["a", "--wait", "0"], "expected a number of seconds over 0"),
        (["a", "x", "y"], "unrecognized arguments: y"),
    ],
)
def test_a_wrong_command_line_is_told(client: FakeClient, argv: list[str], said: str) -> None:
    code, out, err = ask(*argv)
    assert (code, out) == (2, "")
    assert said in err
    assert "`rillnode route ask --help`" in err
    assert client.sent == []


def test_too_much_for_one_message_is_refused(client: FakeClient) -> None:
    code, _, err = ask("a", stdin=bytes(FRAME_BYTES_MAX + 1))
    assert code == 1
    assert "[message.size]\n  next: send a smaller payload" in err
    assert client.sent == []


def test_a_peer_out_of_reach_is_told_with_its_reason(client: FakeClient) -> None:
    client.failure = RequestError("peer.unreachable", "No link to core: nothing listens on h:1")
    code, out, err = ask("peer/core;a", "x")
    assert (code, out) == (1, "")
    assert "nothing listens on h:1 [peer.unreachable]\n  next: `rillnode peer ls`" in err


# peer ls, peer ping ----------------------------------------------------------------------------


def test_peers_are_listed(client: FakeClient) -> None:
    client.peers = {
        "core": {
            "address": "h:1", "speaks": "noise", "state": "failed", "links": 0, "waiting": 2,
            "last_error": "nothing listens on h:1 [link.refused]",
        },
    }  # fmt: skip
    code, out, _ = run("peer", "ls")
    assert code == 0
    assert json.loads(out) == {"name": "core", **client.peers["core"]}
    people = run("peer", "ls", tty=True)[1]
    for shown in ("last error", "core", "h:1", "nothing listens"):
        assert shown in people
    assert "core" in run("status", tty=True)[1]


def test_no_peers_says_where_to_name_them(client: FakeClient) -> None:
    code, out, err = run("peer", "ls", tty=True)
    assert (code, out) == (0, "")
    assert "[[peer]] in node.toml" in err


def test_a_ping_tells_the_time(client: FakeClient) -> None:
    client.peers = {"core": {}}
    code, out, _ = run("peer", "ping", "core")
    assert (code, json.loads(out)) == (0, {"name": "core", "milliseconds": 12.346})
    code, out, err = run("peer", "ping", "other")
    assert (code, out) == (1, "")
    assert "`rillnode peer ls`" in err
