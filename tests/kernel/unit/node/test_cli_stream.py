"""`rillnode stream`, `index` and `status` against a client without a node."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fake_client import RECEIVED_TEXT, FakeClient, FakeStream, Screen
from rillnode.codecs.keys import Identity
from rillnode.node.cli import main, push
from rillnode.node.client import GroupInfo, GroupMember
from rillnode.node.entry_lines import duration
from rillnode.node.keys.files import write_key


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeClient:
    (tmp_path / "node.toml").write_text('name = "a"\n')
    write_key(tmp_path / "data" / "identity.key", Identity.from_seed(bytes(32)))
    write_key(tmp_path / "data" / "admin.key", Identity.from_seed(bytes(32)))
    monkeypatch.chdir(tmp_path)
    fake = FakeClient()
    monkeypatch.setattr("rillnode.node.client.connect", fake.connect)
    return fake


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def run(*argv: str, stdin: bytes = b"", tty: bool = False) -> tuple[int, str, str]:
    screen = Screen(stdin, tty=tty)
    return main(argv, screen.terminal), screen.out, screen.err


# ls, create, show, trim ------------------------------------------------------------------------


def test_ls_is_json_lines_for_programs(client: FakeClient) -> None:
    client.add("sensors", [b"12", b"3"], [])
    client.add("other", [])
    code, out, _ = run("stream", "ls", "sens")
    assert code == 0
    assert lines(out) == [
        {
            "name": "sensors",
            "partitions": 2,
            "entries": 2,
            "bytes": 3,
            "retention": {"seconds": 60.0},
            "created_at": RECEIVED_TEXT,
        }
    ]


def test_ls_is_a_table_for_people(client: FakeClient) -> None:
    client.add("sensors", [b"x" * 1234])
    out = run("stream", "ls", tty=True)[1]
    assert "created at" in out
    assert "1,234" in out
    assert out.count("\n") > 2
    assert lines(run("stream", "ls", "--json", tty=True)[1])[0]["bytes"] == 1234


def test_a_stream_cannot_write_to_the_screen_by_its_name(client: FakeClient) -> None:
    client.add("a\x1b[2J\n[red]b", [])
    for argv in (("stream", "ls"), ("stream", "show", "a\x1b[2J\n[red]b")):
        out = run(*argv, tty=True)[1]
        assert "\x1b[2J" not in out
        assert "\\x1b[2J\\n[red]b" in out


def test_nothing_to_list_says_what_to_type_next(client: FakeClient) -> None:
    code, out, err = run("stream", "ls", tty=True)
    assert (code, out) == (0, "")
    assert "rillnode stream create NAME" in err
    assert run("stream", "ls") == (0, "", "")


def test_create_and_show(client: FakeClient) -> None:
    code, out, _ = run("stream", "create", "s", "--partitions", "3")
    assert (code, lines(out)) == (0, [{"name": "s", "partitions": 3}])
    (shown,) = lines(run("stream", "show", "s")[1])
    assert [one["partition"] for one in shown["partitions"]] == [0, 1, 2]
    people = run("stream", "show", "s", tty=True)[1]
    assert "owner" in people
    assert "STR_2" in people


def test_trim_needs_a_yes(client: FakeClient) -> None:
    client.add("s", [b"a", b"b", b"c"])
    code, out, err = run("stream", "trim", "s", "--before", "2")
    assert (code, out) == (2, "")
    assert "--yes" in err
    code, out, _ = run("stream", "trim", "s", "--before", "2", "--yes")
    assert (code, lines(out)) == (0, [{"name": "s", "partition": 0, "first_index": 2}])


def test_a_trim_tells_which_sinks_lose_what(client: FakeClient) -> None:
    client.add("s", [b"a", b"b", b"c"])
    client.positions = {("sink/a", "s", 0): 1, ("sink/b", "s", 0): 2, ("c", "s", 0): 0}
    code, _, err = run("stream", "trim", "s", "--before", "2", "--yes")
    assert (code, err) == (0, "sink/a had landed only what is below index 1\n")


def test_rm_needs_a_yes(client: FakeClient) -> None:
    client.add("s", [b"a"])
    code, out, err = run("stream", "rm", "s")
    assert (code, out) == (2, "")
    assert "--yes" in err
    assert "s" in client.held
    assert run("stream", "rm", "s", "--yes")[:2] == (0, '{"name":"s","removed":true}\n')
    assert client.held == {}
    code, _, err = run("stream", "rm", "s", "--yes")
    assert code == 1
    assert "[stream.unknown]" in err


# pull, tail ------------------------------------------------------------------------------------


def test_pull_prints_json_lines(client: FakeClient) -> None:
    client.add("s", [b'{"a": [1]}', b"text \xc3\xa9", b"\xff\x00", b'{"a":\n1}', b"[broken", b""])
    code, out, _ = run("stream", "pull", "s")
    assert code == 0
    rows = lines(out)
    assert rows[0] == {
        "partition": 0, "index": 0, "received_at": RECEIVED_TEXT, "kind": "bytes",
        "json": {"a": [1]},
    }  # fmt: skip
    assert [row.get("text") for row in rows] == [None, "text é", None, None, "[broken", ""]
    assert rows[2]["base64"] == "/wA="
    assert rows[3]["json"] == {"a": 1}


def test_pull_takes_a_range_of_one_partition(client: FakeClient) -> None:
    client.add("s", [], [b"%d" % number for number in range(12_000)])
    argv = ("stream", "pull", "s", "--partition", "1", "--from", "7", "--format", "raw")
    assert run(*argv, "--count", "3")[1] == "7\n8\n9\n"
    assert len(run(*argv, "--count", "11000")[1].splitlines()) == 11_000
    assert len(run(*argv, "--count", "20000")[1].splitlines()) == 11_993


def test_pull_takes_the_last_and_what_came_since_and_until(client: FakeClient) -> None:
    client.add("s", [b"%d" % number for number in range(300)]).step_ms = 1_000

    def pulled(*options: str) -> list[int]:
        code, out, _ = run("stream", "pull", "s", "--format", "raw", *options)
        assert code == 0
        return [int(line) for line in out.splitlines()]

    assert pulled("--last", "3") == [297, 298, 299]
    assert pulled("--last", "1000") == list(range(300))
    assert pulled("--last", "200", "--count", "2") == [100, 101]
    assert pulled("--since", "1m") == list(range(239, 300))
    assert pulled("--since", "250s") == list(range(49, 300))
    assert pulled("--since", "1h", "--until", "296s") == [0, 1, 2]
    assert pulled("--since", "2027-01-15T08:00:00Z") == [299]
    assert pulled("--until", "100s", "--last", "2") == [197, 198]
    assert pulled("--until", "2020-01-01T00:00Z") == []
    assert pulled("--since", "2099-01-01T00:00+01:00") == []
    assert pulled("--from", "5", "--until", "290s") == [5, 6, 7, 8]
    assert pulled("--from", "200") == list(range(200, 300))


def test_pull_says_that_there_is_more(client: FakeClient) -> None:
    client.add("s", [b"x"] * 300)
    assert "the first 100 of 300 entries: see --count and --last" in run("stream", "pull", "s")[2]
    assert run("stream", "pull", "s", "--count", "100")[2] == ""
    assert run("stream", "pull", "s", "--from", "200")[2] == ""
    assert run("stream", "pull", "s", "-q")[2] == ""


def test_pull_and_tail_print_what_meets_a_condition(client: FakeClient) -> None:
    client.add("s", [b'{"n": %d}' % number for number in range(300)] + [b"no json"])
    argv = ("stream", "pull", "s", "--format", "raw", "--where")
    assert run(*argv, "n > 297") == (0, '{"n": 298}\n{"n": 299}\n', "")
    assert run(*argv, "n >= 10", "--count", "1") == (0, '{"n": 10}\n', "")
    assert run(*argv, "n > 297", "--last", "2")[1] == '{"n": 299}\n'
    code, out, err = run(*argv, "n > 1000")
    assert (code, out) == (0, "")
    assert "no entry meets it from index 0 on in partition 0" in err
    code, out, err = run(*argv, "n >= 0")
    assert len(out.splitlines()) == 100
    assert "the first 100 that meet it: see --count" in err
    tail = ("stream", "tail", "s", "--format", "raw", "--from", "start", "--count", "1", "--where")
    assert run(*tail, "n = 7") == (0, '{"n": 7}\n', "")
    for verb in (argv, tail):
        code, out, err = run(*verb, "n >")
        assert (code, out) == (2, "")
        assert "--where: condition, character 4: expected a number" in err


def test_pull_and_tail_print_the_entries_of_a_key(client: FakeClient) -> None:
    stream = client.add("s", [b"a", b"b"], [b"c"], [b"a", b"b"], [])
    odd = 'm\\"7'
    stream.beside.update({b"a": ("m7", None), b"c": (odd, None)})
    assert stream.partition_of("m7") == 2
    pull = ("stream", "pull", "s", "--format", "raw", "--entry-key")
    assert run(*pull, "m7") == (0, "a\n", "")
    assert run(*pull, "m7", "--partition", "0", "--where", "$key != 'm8'") == (0, "a\n", "")
    assert run(*pull, odd, "--partition", "1") == (0, "c\n", "")
    _, out, err = run(*pull, "m7", "--where", "n > 1 or $key = 'b'")
    assert (out, err) == ("", "no entry meets it from index 0 on in partition 2\n")
    tail = ("stream", "tail", "s", "--format", "raw", "--from", "start", "--entry-key")
    assert run(*tail, "m7", "--count", "2") == (0, "a\na\n", "")
    code, _, err = run(*tail[:5], "--entry-key", "m7", "--consumer", "c")
    assert code == 2
    assert "argument --entry-key: not allowed with --consumer" in err


def test_a_key_that_is_no_file_may_be_meant_as_that_of_an_entry(client: FakeClient) -> None:
    client.add("s", [b"x"])
    for verb in ("pull", "tail", "push"):
        code, _, err = run("stream", verb, "s", "--key", "m7", stdin=b"a\n")
        assert code == 2
        assert "m7: no such file; --key is your key file, --entry-key the key of an entry" in err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--since", "2026-01-01T00:00"), "has no zone: add Z for UTC"),
        (("--since", "soon"), "expected how long ago, as 90s or 1h30m, or an ISO time"),
        (("--until", "-1h"), "expected"),
        (("--last", "0"), "expected a whole number from 1 on"),
        (("--last", "5", "--since", "1h"), "not allowed with argument"),
        (("--last", "5", "--from", "1"), "not allowed with argument"),
    ],
)
def test_pull_refuses_what_is_no_range(
    client: FakeClient, options: tuple[str, ...], says: str
) -> None:
    client.add("s", [b"x"])
    code, out, err = run("stream", "pull", "s", *options)
    assert (code, out) == (2, "")
    assert says in err


def test_pull_formats(client: FakeClient) -> None:
    client.add("s", [b"\x1b[2J\xc3\xa9", bytes(range(200, 240))])
    screen = Screen()
    main(["stream", "pull", "s", "--format", "raw"], screen.terminal)
    assert screen.out_bytes == b"\x1b[2J\xc3\xa9\n" + bytes(range(200, 240)) + b"\n"
    assert run("stream", "pull", "s", "--format", "hex")[1].splitlines()[0] == "1b5b324ac3a9"
    first, second = run("stream", "pull", "s", tty=True)[1].splitlines()
    assert first == f"0:0  {RECEIVED_TEXT}  \\x1b[2Jé"
    assert second.startswith(f"0:1  {RECEIVED_TEXT}  <40 bytes> c8 c9")


@pytest.mark.parametrize("verb", ["pull", "tail", "push"])
def test_a_stream_that_is_not_there_is_not_made_by_the_way(client: FakeClient, verb: str) -> None:
    code, _, err = run("stream", verb, "typo", stdin=b"a\n")
    assert code == 1
    assert "[stream.unknown]\n  next: add the grant, if one is named; `rillnode stream ls`" in err
    assert client.held == {}


def test_tail_ends_with_its_count(client: FakeClient) -> None:
    client.add("s", [b"a", b"b", b"c"], [b"d"])
    argv = ("stream", "tail", "s", "--format", "raw", "--from")
    assert run(*argv, "start", "--count", "2") == (0, "a\nb\n", "")
    assert run(*argv, "1", "--count", "2") == (0, "b\nc\n", "")
    assert run(*argv, "start", "--count", "4") == (0, "a\nb\nc\nd\n", "")
    assert run(*argv, "start", "--partition", "1", "--count", "1") == (0, "d\n", "")


def test_tail_begins_before_the_end_or_at_a_time(client: FakeClient) -> None:
    client.add("s", [b"%d" % number for number in range(20)]).step_ms = 1_000
    argv = ("stream", "tail", "s", "--format", "raw", "--count", "2")
    assert run(*argv, "--from", "-10") == (0, "10\n11\n", "")
    assert run(*argv, "--since", "3s") == (0, "16\n17\n", "")
    code, _, err = run(*argv, "--from=-x")
    assert code == 2
    assert "expected start, end, an index or -N, not '-x'" in err
    assert run(*argv, "--from", "1", "--since", "3s")[0] == 2


def test_tail_ends_with_its_timeout(client: FakeClient) -> None:
    client.add("s", [b"a"])
    argv = ("stream", "tail", "s", "--timeout", "0.01", "--format", "raw")
    assert run(*argv, "--from", "start") == (0, "a\n", "")
    code, out, err = run(*argv, "--from", "start", "--count", "2")
    assert (code, out) == (1, "a\n")
    assert "1 of 2 entries" in err
    assert run(*argv)[:2] == (0, "")


# push ------------------------------------------------------------------------------------------


def test_push_stores_each_line(client: FakeClient) -> None:
    stream = client.add("s", [b"before"])
    code, out, _ = run("stream", "push", "s", stdin=b"a\n\nb b\r\nlast")
    assert code == 0
    assert stream.logs[0] == [b"before", b"a", b"", b"b b\r", b"last"]
    assert lines(out) == [
        {"stream": "s", "partition": 0, "entries": 4, "first_index": 1, "last_index": 4}
    ]


def test_push_keeps_a_bounded_number_under_way(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push, "_WINDOW_ENTRIES", 100)
    stream = client.add("s", [])
    data = b"".join(b"%d\n" % number for number in range(50_000))
    assert run("stream", "push", "s", stdin=data)[0] == 0
    assert stream.logs[0] == data.splitlines()
    assert stream.unconfirmed_max <= 101


def test_push_reads_every_format(client: FakeClient) -> None:
    stream = client.add("s", [])
    assert run("stream", "push", "s", "--format", "hex", stdin=b"00ff\n\n")[0] == 0
    assert run("stream", "push", "s", "--format", "raw", stdin=b"a\nb\n")[0] == 0
    assert run("stream", "push", "s", "--format", "json", stdin=b'{"a": 1}\n\n5\n')[0] == 0
    assert stream.logs[0] == [b"\x00\xff", b"", b"a\nb\n", b'{"a": 1}', b"5"]


def test_push_can_create(client: FakeClient) -> None:
    assert run("stream", "push", "s", "--create", stdin=b"a\n")[0] == 0
    assert client.held["s"].logs == [[b"a"]]


def test_push_chooses_the_partition_by_a_field(client: FakeClient) -> None:
    stream = client.add("s", [], [], [], [])
    data = b"".join(b'{"d": {"id": "device-%d"}, "n": %d}\n' % (n % 10, n) for n in range(200))
    argv = ("stream", "push", "s", "--format", "json", "--key-field", "d.id")
    code, out, _ = run(*argv, stdin=data)
    assert code == 0
    assert sum(row["entries"] for row in lines(out)) == 200
    homes: dict[str, set[int]] = {}
    for partition, log in enumerate(stream.logs):
        for entry in log:
            homes.setdefault(json.loads(entry)["d"]["id"], set()).add(partition)
    assert all(len(found) == 1 for found in homes.values())
    assert sum(bool(log) for log in stream.logs) > 1
    code, _, err = run(*argv, stdin=b'{"d": 5}\n')
    assert code == 1
    assert "no field d.id" in err
    assert run("stream", "push", "s", "--key-field", "a")[0] == 2
    assert {key for key, _ in stream.beside.values()} == {f"device-{n}" for n in range(10)}


def test_push_gives_a_key_and_headers(client: FakeClient) -> None:
    stream = client.add("s", [], [], [], [])
    options = ("--entry-key", "lamp", "--header", "sender=hall", "--header", "note=a=b")
    code, out, _ = run("stream", "push", "s", *options, stdin=b"on\noff\n")
    assert code == 0
    home = stream.partition_of("lamp")
    assert [(row["partition"], row["entries"]) for row in lines(out)] == [(home, 2)]
    wanted = ("lamp", {"sender": "hall", "note": "a=b"})
    assert stream.beside == {b"on": wanted, b"off": wanted}
    other = (home + 1) % 4
    assert run("stream", "push", "s", *options, "--partition", str(other), stdin=b"x\n")[0] == 0
    assert stream.logs[other] == [b"x"]
    code, _, err = run("stream", "push", "s", "--header", "a=1", "--header", "a=2")
    assert (code, "names the same header twice" in err) == (2, True)


def test_lines_tell_keys_and_headers_where_there_are_any(client: FakeClient) -> None:
    stream = client.add("s", [b"plain", b"keyed"])
    stream.beside[b"keyed"] = b"lamp", {"sender": "hall", "raw": b"\xff"}
    plain, keyed = lines(run("stream", "pull", "s")[1])
    assert not {"key", "key_base64", "headers", "headers_base64"} & plain.keys()
    assert keyed["key"] == "lamp"
    assert keyed["headers"] == {"sender": "hall"}
    assert keyed["headers_base64"] == {"raw": "/w=="}
    first, second = run("stream", "pull", "s", tty=True)[1].splitlines()
    assert first.endswith(f"{RECEIVED_TEXT}  plain")
    assert second.endswith("  [lamp]  {sender=hall, raw=<1 bytes> ff}  keyed")
    stream.beside[b"keyed"] = b"\x00\xff", None
    assert lines(run("stream", "pull", "s")[1])[1]["key_base64"] == "AP8="


def test_push_tells_what_was_stored_before_an_error(client: FakeClient) -> None:
    stream = client.add("s", [])
    code, out, err = run("stream", "push", "s", "--format", "json", stdin=b"1\n2\noops\n3\n")
    assert (code, out) == (1, "")
    assert "2 entries were stored before the error" in err
    assert "line 3 of the input: not JSON" in err
    assert stream.logs[0] == [b"1", b"2"]


def test_push_passes_a_refusal_on(client: FakeClient) -> None:
    client.held["s"] = FakeStream("s", 1, refuse=b"bad")
    code, _, err = run("stream", "push", "s", stdin=b"a\nbad\nb\n")
    assert code == 1
    assert "2 entries were stored before the error" in err
    assert "too large" in err
    assert run("stream", "push", "s", "--partition", "3", stdin=b"a\n")[0] == 1


def test_push_of_nothing_is_said(client: FakeClient) -> None:
    client.add("s", [])
    assert run("stream", "push", "s") == (0, "", "nothing on stdin, nothing pushed\n")
    assert run("stream", "push", "s", "-q") == (0, "", "")
    code, _, err = run("stream", "push", "s", tty=True)
    assert code == 0
    assert "Ctrl-D" in err
    assert "nothing pushed" in err
    assert run("stream", "push", "s", "--quiet", tty=True) == (0, "", "")


# index, status ---------------------------------------------------------------------------------


def test_positions_are_listed_with_their_lag(client: FakeClient) -> None:
    client.add("s", [])
    client.positions = {("c1", "s", 0): 4, ("c1", "t", 1): 10}
    assert lines(run("index", "ls", "s")[1]) == [
        {
            "stream": "s", "partition": 0, "client": "c1", "index": 4, "end": 10, "lag": 6,
            "member": None,
        }
    ]  # fmt: skip
    assert len(lines(run("index", "ls")[1])) == 2
    assert "lag" in run("index", "ls", tty=True)[1]


def test_positions_are_listed_with_the_members_that_have_the_partitions(client: FakeClient) -> None:
    client.add("s", [])
    client.positions = {("g", "s", 0): 4}
    member = GroupMember("00ff00ff", "noise:aa", (0, 1))
    client.consumer_groups = [GroupInfo("s", "g", True, 7, [member])]
    rows = lines(run("index", "ls", "s")[1])
    assert [(row["partition"], row["index"], row["lag"], row["member"]) for row in rows] == [
        (0, 4, 6, "00ff00ff noise:aa"), (1, None, None, "00ff00ff noise:aa"),
    ]  # fmt: skip


def test_a_position_is_shown_and_moved(client: FakeClient) -> None:
    code, out, err = run("index", "get", "s", "c1")
    assert (code, out) == (1, "")
    assert "has saved no position" in err
    code, out, _ = run("index", "set", "s", "c1", "5", "--partition", "2")
    expected = {"stream": "s", "partition": 2, "client": "c1", "index": 5}
    assert (code, lines(out)) == (0, [expected])
    assert lines(run("index", "get", "s", "c1", "--partition", "2")[1]) == [expected]


def test_a_position_that_does_not_move_is_a_failure(client: FakeClient) -> None:
    client.positions = {("c1", "s", 0): 9}
    code, out, err = run("index", "set", "s", "c1", "5")
    assert (code, out) == (1, "")
    assert "stays at 9" in err


@pytest.mark.usefixtures("client")
def test_status_is_one_document() -> None:
    (document,) = lines(run("status")[1])
    assert document["store"] == {"writable": True}
    people = run("status", tty=True)[1]
    assert "takes writes" in people
    assert "checks" in people
    assert "127.0.0.1:1" in people
    assert "StreamActor" in people
    assert "rillnode.actors" not in people
    assert "7,000" in people


def test_status_at_80_columns_shows_streams_first_and_folds_nothing(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"devices/{number:04}/temperature" for number in range(25)]
    for number, name in enumerate(names):
        client.add(name, [b"x" * 1_000] * (number + 1))
    actors = ["RetentionActor", "AppenderService", "IntroductionActor", "StaticForwardingService"]
    figures = {
        "cells": 100_000, "handled": 12_345_678, "failures": 0, "restarts": 0,
        "mailbox_depth": 0, "slowest_handler_seconds": 0.012345,
    }  # fmt: skip
    document: dict[str, Any] = {
        "name": "edge",
        "identity": "a" * 64,
        "state": "ready",
        "uptime_seconds": 1_234.5,
        "checks": [{"name": "store", "ok": True, "reason": ""}],
        "store": {"writable": True, "reason": "", "pending_bytes": 0, "log": None},
        "listeners": {"noise": {"address": "127.0.0.1:46537", "links": 3, "errors": {}}},
        "actors": {f"rillnode.actors.{name}": figures for name in actors},
        "peers": {"core": {"state": "connected", "round_trip_seconds": 0.0123, "last_error": ""}},
        "channels": None,
        "nextgraph": {"peer_id": "9" * 64, "clients": 3, "counters": {}, "topics": 2},
    }

    async def status() -> dict[str, Any]:
        return document

    monkeypatch.setattr(client, "status", status)
    screen = Screen(tty=True, environ={"COLUMNS": "80"})
    assert main(["status"], screen.terminal) == 0
    shown = re.sub(r"\x1b\[[\d;]*m", "", screen.out).splitlines()
    assert max(map(len, shown)) <= 80
    assert screen.out.index("streams") < screen.out.index("listeners") < screen.out.index("actors")
    rows = [line.split() for line in shown]
    assert ["devices/0024/temperature", "1", "25", "25,000"] in rows
    assert ["devices/0004/temperature", "1", "5", "5,000"] not in rows  # the smallest of 25
    for name in actors:
        assert [name, "100,000", "12,345,678", "0", "0", "12.345"] in rows
    assert ["nextgraph", "clients", "3,", "topics", "2"] in rows
    assert "the largest of 25 streams: `rillnode stream ls` lists all" in screen.err
    assert lines(run("status")[1]) == [document]


def test_ls_at_80_columns_folds_nothing(client: FakeClient) -> None:
    client.add("devices/0007/temperature", [b"x" * 1_000] * 3)
    screen = Screen(tty=True, environ={"COLUMNS": "80"})
    assert main(["stream", "ls"], screen.terminal) == 0
    shown = re.sub(r"\x1b\[[\d;]*m", "", screen.out).splitlines()
    assert max(map(len, shown)) <= 80
    assert ["devices/0007/temperature", "1", "3", "3,000", "1m", "2027-01-15"] in [
        line.split() for line in shown
    ]


def test_a_narrow_terminal_gets_long_lines_and_every_digit(client: FakeClient) -> None:
    client.add("devices/0007/temperature", [b"x" * 1_000_000] * 3)
    screen = Screen(tty=True, environ={"COLUMNS": "20"})
    assert main(["stream", "ls"], screen.terminal) == 0
    assert "3,000,000" in screen.out


def test_an_identity_is_not_folded_for_the_sake_of_headings_of_two_words() -> None:
    screen = Screen(tty=True, environ={"COLUMNS": "80"})
    row = {"name": "e", "url": "noise://127.0.0.1:41", "node_identity": "9" * 64, "key_file": None}
    screen.terminal.rows([row, row | {"name": "of two words"}], empty="")
    assert screen.out.count("9" * 64) == 2


def test_a_table_is_written_whatever_the_locale_says(client: FakeClient) -> None:
    client.add("größe/☃", [b"x"])
    screen = Screen(tty=True)
    screen.terminal.out.reconfigure(encoding="ascii")  # type: ignore[attr-defined]
    assert main(["stream", "ls"], screen.terminal) == 0
    assert "größe/☃" in screen.out


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (60.0, "1m"),
        (604_800.0, "7d"),
        (5_400.0, "90m"),
        (90.0, "90s"),
        (0.5, "0.5s"),
        (7_200, "2h"),
    ],
)
def test_a_duration_has_the_largest_unit_that_fits(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_status_shows_the_log_that_nodes_share(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = [{"shard": 3, "sequence": 4_567, "behind": 2, "error": None}]
    log = {"engine": "jetstream", "connected": "n1:4222", "shards": 16, "views": views}

    async def status() -> dict[str, Any]:
        return {"store": {"writable": True, "log": log}}

    monkeypatch.setattr(client, "status", status)
    (document,) = lines(run("status")[1])
    assert document["store"]["log"] == log
    people = run("status", tty=True)[1]
    assert "log.connected" in people
    assert "n1:4222" in people
    assert "4,567" in people
    assert "store.log" not in people


def test_a_missing_key_field_names_its_line(client: FakeClient) -> None:
    stream = client.add("s", [])
    data = b'{"user": {"id": 1}}\n\n{"user": {}}\n'
    argv = ("stream", "push", "s", "--format", "json", "--key-field", "user.id")
    code, _, err = run(*argv, stdin=data)
    assert code == 1
    assert "line 3 of the input: no field user.id [input.key]" in err
    assert "1 entry was stored before the error" in err
    assert len(stream.logs[0]) == 1


def test_a_push_to_no_stream_mentions_create(client: FakeClient) -> None:
    code, _, err = run("stream", "push", "typo", stdin=b"x\n")
    assert code == 1
    assert "; --create makes a missing one [stream.unknown]" in err


def test_lost_links_are_told_of(client: FakeClient) -> None:
    async def drop(name: str) -> Any:
        assert client.on_disconnect is not None
        assert client.on_reconnect is not None
        client.on_disconnect("no answer")
        client.on_reconnect()
        return await FakeClient.describe(client, name)

    client.add("s", [b"x"])
    client.describe = drop  # type: ignore[method-assign]
    argv = ("stream", "tail", "s", "--from", "start", "--count", "1", "--format", "raw")
    assert run(*argv) == (0, "x\n", "link lost (no answer), trying again\nlink is back\n")
    assert run(*argv, "-q") == (0, "x\n", "")


@pytest.mark.parametrize(
    "argv",
    [
        ("stream", "tail", "s", "--from", "start", "--count", "2"),
        ("stream", "pull", "s"),
        ("stream", "ls"),
        ("stream", "show", "s"),
    ],
)
@pytest.mark.parametrize("tty", [False, True])
def test_an_output_that_takes_no_more_is_told_of(
    client: FakeClient, argv: tuple[str, ...], tty: bool
) -> None:
    client.add("s", [b"x" * 100_000] * 2)
    screen = Screen(tty=tty)
    full = open("/dev/full", "w")  # noqa: SIM115
    if tty:
        full.isatty = lambda: True  # type: ignore[method-assign]
    screen.terminal.out = full
    code = main(argv, screen.terminal)
    assert code == 1
    told = screen.err
    assert "rillnode: cannot write to stdout: No space left on device [output.failed]" in told
    assert "next: make room where stdout goes, or send it elsewhere" in told
    full.close()  # nothing is left in it that could fail again


def test_positions_of_a_misspelt_stream_are_refused(client: FakeClient) -> None:
    client.add("s", [b"a"])
    code, out, err = run("index", "ls", "t")
    assert (code, out) == (1, "")
    assert "[stream.unknown]" in err
    assert run("index", "ls", "s") == (0, "", "")


def test_a_position_beyond_the_end_is_told(client: FakeClient) -> None:
    client.add("s", [b"a"])
    code, _, err = run("index", "set", "s", "c", "19")
    assert (code, err) == (0, "the partition ends at 10: what comes before 19 is left out\n")
    assert run("index", "set", "s", "d", "10")[2] == ""


def test_a_position_in_a_stream_that_is_not_there_is_told(client: FakeClient) -> None:
    code, _, err = run("index", "set", "c", "s", "5")
    assert (code, err) == (0, "there is no stream 'c': the position waits for one\n")


def test_create_says_that_a_stream_was_there_otherwise(client: FakeClient) -> None:
    client.add("s", [], [])
    code, out, err = run("stream", "create", "s")
    assert (code, lines(out)) == (0, [{"name": "s", "partitions": 2}])
    assert err == "s was there, with 2 partitions\n"
