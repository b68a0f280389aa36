"""The real command line in processes of its own, against a real node."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from command_line import LIMIT_SECONDS, begun, call, lines, rillnode, wait_for
from deleted_rooms import there
from forked import PIPE, Forked, finished
from rillnode import connect_blocking
from rillnode.node.testing.contract.ports import free_address


@dataclass
class Started:
    """A node in a process, and how its clients reach it."""

    process: Forked
    ports: dict[str, str]
    log: Path
    home: Path

    @property
    def options(self) -> list[str]:
        url = f"noise://{self.ports['noise']}"
        return ["-c", str(self.home / "node.toml"), "--node", url]

    def wait_for(self, text: str) -> None:
        """Wait until it has said so; it tells its ports before."""
        wait_for(lambda: text in self.log.read_text(), self.process)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LIMIT_SECONDS)


Start = Callable[..., Started]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts nodes; what still runs at the end of the test is killed."""
    processes: list[Forked] = []

    def begin(home: Path, *options: str | Path) -> Started:
        ports, log = tmp_path / f"ports-{len(processes)}", tmp_path / f"log-{len(processes)}"
        argv = (
            "run", "--set", "noise.listen=127.0.0.1:0", "--set", "http.listen=127.0.0.1:0",
            *options, "--ports-file", ports,
        )  # fmt: skip
        with log.open("wb") as file:
            process = begun(*argv, stdout=file, stderr=file, cwd=tmp_path)
        processes.append(process)
        try:
            wait_for(ports.exists, process)
        except AssertionError as error:
            raise AssertionError(log.read_text()) from error
        return Started(process, json.loads(ports.read_text()), log, home)

    yield begin
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "edge"
    assert call("init", made).returncode == 0
    return made


def test_a_pattern_is_followed_and_its_position_kept(start: Start, home: Path) -> None:
    address = free_address()
    start(home, "-c", home / "node.toml", "--set", f"noise.listen={address}")
    at = ("-c", str(home / "node.toml"), "--node", f"noise://{address}")
    kept = home / "position.json"
    follow = ("stream", "follow", "s.*", *at, "--timeout", "10")

    def push(stream: str, data: bytes) -> None:
        assert call("stream", "push", stream, "--create", *at, stdin=data).returncode == 0

    for stream in ("s.a", "s.b", "other"):
        push(stream, stream.encode())
    found = lines(call(*follow, "--position", kept, "--count", "2"))
    assert sorted((one["stream"], one["text"]) for one in found) == [("s.a", "s.a"), ("s.b", "s.b")]
    push("s.a", b"more")
    (one,) = lines(call(*follow, "--position", kept, "--count", "1"))
    assert (one["stream"], one["index"], one["text"]) == ("s.a", 1, "more")
    saved = json.loads(kept.read_text())["s.a"]
    assert saved.pop("created_at") > 0
    assert saved == {"0": 2}
    everything = call(*follow, "--from", "start", "--format", "raw", "--count", "3")
    assert sorted(everything.stdout.split()) == [b"more", b"s.a", b"s.b"]
    nothing = call("stream", "follow", "s.*", *at, "--count", "1", "--timeout", "0.2")
    assert (nothing.returncode, nothing.stdout) == (1, b"")
    kept.write_text("no JSON")
    assert call(*follow, "--position", kept).returncode == 2
    kept.write_text('{"s.a": 7}')
    assert b"[follow.invalid]" in call(*follow, "--position", kept).stderr


def test_a_consumer_at_the_command_line(start: Start, home: Path) -> None:
    """It goes on where it stopped, and says on stderr that the node is away."""
    address = free_address()
    node = start(home, "-c", home / "node.toml", "--set", f"noise.listen={address}")
    at = ("-c", str(home / "node.toml"), "--node", f"noise://{address}")
    tail = ("stream", "tail", "s", "--consumer", "worker", "--format", "raw", *at)
    assert call("stream", "push", "s", "--create", *at, stdin=b"a\nb\nc\n").returncode == 0
    for count, printed in ((1, b"a\n"), (2, b"b\nc\n")):
        assert call(*tail, "--count", str(count)).stdout == printed
    none = call(*tail, "--count", "1", "--timeout", "0.2")
    assert (none.returncode, none.stdout) == (1, b"")
    (row,) = lines(call("index", "ls", "s", *at))
    assert (row["client"], row["index"], row["lag"]) == ("worker", 3, 0)
    assert call(*tail, "--from", "start").returncode == 2
    with (home / "told").open("w+b") as told:
        process = begun(*tail, stdout=PIPE, stderr=told)
        try:
            assert call("stream", "push", "s", *at, stdin=b"d\n").returncode == 0
            assert process.stdout is not None
            assert process.stdout.readline() == b"d\n"
            node.process.kill()
            node.process.wait(LIMIT_SECONDS)
            told_of = Path(told.name)
            wait_for(lambda: b"trying again" in told_of.read_bytes(), process)
            start(home, "-c", home / "node.toml", "--set", f"noise.listen={address}")
            wait_for(lambda: b"link is back" in told_of.read_bytes(), process)
            assert call("stream", "push", "s", *at, stdin=b"e\n").returncode == 0
            assert process.stdout.readline() == b"e\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(LIMIT_SECONDS) == 130
        finally:
            process.kill()
            process.wait()
    (row,) = lines(call("index", "ls", "s", *at))
    assert row["index"] == 5


def test_a_day_at_the_command_line(start: Start, home: Path) -> None:
    node = start(home, "-c", home / "node.toml")
    at = node.options
    assert lines(call("stream", "create", "sensors", "--partitions", "2", *at)) == [
        {"name": "sensors", "partitions": 2}
    ]
    data = b"".join(b'{"device": "d%d", "n": %d}\n' % (n % 5, n) for n in range(5_000))
    by_device = ("--format", "json", "--key-field", "device")
    pushed = lines(call("stream", "push", "sensors", *by_device, *at, stdin=data))
    assert sum(row["entries"] for row in pushed) == 5_000
    (listed,) = lines(call("stream", "ls", *at))
    assert (listed["name"], listed["entries"]) == ("sensors", 5_000)
    pulled = [
        row["json"]["n"]
        for partition in ("0", "1")
        for row in lines(
            call("stream", "pull", "sensors", "--partition", partition, "--count", "9999", *at)
        )
    ]
    assert sorted(pulled) == list(range(5_000))
    tailed = lines(call("stream", "tail", "sensors", "--from", "start", "--count", "5000", *at))
    assert len(tailed) == 5_000
    assert all(row["key"] == row["json"]["device"] for row in tailed)
    beside = ("--entry-key", "lamp", "--header", "sender=hall")
    (row,) = lines(call("stream", "push", "sensors", *beside, *at, stdin=b"on\n"))
    there = ("--partition", str(row["partition"]), "--from", str(row["first_index"]))
    (pulled_row,) = lines(call("stream", "pull", "sensors", *there, *at))
    assert (pulled_row["text"], pulled_row["key"]) == ("on", "lamp")
    assert pulled_row["headers"] == {"sender": "hall"}

    assert call("index", "get", "sensors", "c1", *at).returncode == 1
    assert lines(call("index", "set", "sensors", "c1", "10", *at))[0]["index"] == 10
    assert lines(call("index", "get", "sensors", "c1", *at))[0]["index"] == 10
    (position,) = lines(call("index", "ls", *at))
    assert position["lag"] == position["end"] - 10
    assert call("index", "set", "sensors", "c1", "9", *at).returncode == 1

    first = lines(call("stream", "trim", "sensors", "--before", "100", "--yes", *at))
    assert 0 <= first[0]["first_index"] <= 100
    (status,) = lines(call("status", *at))
    assert (status["name"], status["identity"]) == ("edge", node.ports["identity"])

    unknown = call("stream", "show", "typo", *at)
    assert unknown.returncode == 1
    assert b"`rillnode stream ls` lists" in unknown.stderr
    assert node.stop() == 0


def test_what_was_pushed_is_there_after_a_restart(start: Start, home: Path) -> None:
    node = start(home, "-c", home / "node.toml")
    assert lines(call("stream", "push", "s", "--create", *node.options, stdin=b"a\nb\n"))
    identity = node.ports["identity"]
    assert node.stop() == 0
    node = start(home, "-c", home / "node.toml")
    assert node.ports["identity"] == identity
    answer = call("stream", "pull", "s", "--format", "raw", *node.options)
    assert answer.stdout == b"a\nb\n"
    assert node.stop() == 0


def test_health_and_banner(start: Start, home: Path) -> None:
    node = start(home, "-c", home / "node.toml")
    with urllib.request.urlopen(f"http://{node.ports['http']}/readyz", timeout=60) as answer:
        assert (answer.status, answer.read()) == (200, b"ok\n")
    assert node.stop() == 0
    log = node.log.read_text()
    assert node.ports["identity"] in log
    assert f"http://{node.ports['http']}/" in log
    seed = (home / "data" / "identity.key").read_text().strip()
    assert seed not in log


def test_a_key_that_nobody_granted_is_refused(start: Start, home: Path, tmp_path: Path) -> None:
    node = start(home, "-c", home / "node.toml")
    stranger = tmp_path / "stranger.key"
    assert call("key", "new", stranger).returncode == 0
    answer = call("stream", "ls", *node.options, "--key", stranger)
    assert answer.returncode == 3, answer.stderr.decode()
    assert b"grant your key" in answer.stderr
    wrong = call("stream", "ls", *node.options, "--node-identity", "11" * 32)
    assert wrong.returncode == 3, wrong.stderr.decode()


def test_dev_lets_everybody_in_and_says_so(start: Start, tmp_path: Path) -> None:
    node = start(
        tmp_path, "--dev", "--data-dir", tmp_path / "dev", "--set", "ockam.listen=127.0.0.1:0"
    )
    assert "ockam" in node.ports
    node.wait_for("EVERYBODY")
    key = tmp_path / "any.key"
    assert call("key", "new", key).returncode == 0
    at = (
        *("--node", f"noise://{node.ports['noise']}"),
        *("--node-identity", node.ports["identity"]),
    )
    for who in ((), ("--key", key)):
        pushed = lines(call("stream", "push", "s", "--create", *at, *who, stdin=b"a\n"))
        assert pushed[0]["entries"] == 1
    assert node.stop() == 0
    assert not list(tmp_path.glob("ports-*"))
    logged = [
        json.loads(line) for line in node.log.read_text().splitlines() if line.startswith("{")
    ]
    by_event = {
        event: Counter(
            (line["transport"], line["remote"], line["peer"])
            for line in logged
            if line["event"] == event
        )
        for event in ("link_opened", "link_closed")
    }
    assert by_event["link_opened"] == by_event["link_closed"]
    assert len(by_event["link_opened"]) >= 2


def test_a_link_to_an_admin_session(start: Start, home: Path) -> None:
    node = start(home, "-c", home / "node.toml", "--set", "http.console=true")
    page = f"http://{node.ports['http']}"
    (link,) = lines(call("console", *node.options))
    assert link["seconds"] == 120
    url, _, ticket = link["url"].rpartition("/")
    assert url == f"{page}/#/console"
    (other,) = lines(call("console", *node.options, "--at", "https://edge.example.org/"))
    assert other["url"].startswith("https://edge.example.org/#/console/")
    wrong = call("console", *node.options, "--at", "edge.example.org")
    assert wrong.returncode == 2
    assert b"--at: expected http://HOST:PORT" in wrong.stderr
    request = urllib.request.Request(
        f"{page}/v1/session", json.dumps({"ticket": ticket}).encode(),
        {"Content-Type": "application/json", "Origin": page},
    )  # fmt: skip
    with urllib.request.urlopen(request) as answer:
        session = json.load(answer)
    assert session["principal"].startswith("noise:")
    node.stop()
    log = node.log.read_text()
    assert "console_begun" in log
    secrets = (ticket, session["token"], answer.headers["Set-Cookie"].partition("=")[2][:20])
    assert not any(one in log for one in secrets)


def test_a_link_to_a_session_that_the_page_does_not_have(start: Start, home: Path) -> None:
    node = start(home, "-c", home / "node.toml")
    refused = call("console", *node.options)
    assert refused.returncode == 1
    assert b"console = true" in refused.stderr
    assert b"next: set it in node.toml" in refused.stderr


def test_a_node_for_a_try_needs_nothing_and_is_found(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its usual ports may be taken, by another node for a try, too."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    first, second = start(tmp_path, "--dev"), start(tmp_path, "--dev")
    wanted = {"noise", *there("ockam", "streamr", "nextgraph"), "http"}
    assert wanted <= {*first.ports, *second.ports}
    assert {*first.ports.values()}.isdisjoint(second.ports.values())
    pushed = lines(call("pub", "s", "--create", stdin=b"a\n"))
    assert pushed[0]["entries"] == 1
    with connect_blocking() as client:
        assert [entry.data for entry in client.stream("s").pull()] == [b"a"]
        assert client.status()["identity"] == second.ports["identity"]
    second.wait_for("EVERYBODY")
    directory = Path(re.search(r"data +(/\S+)", second.log.read_text())[1])  # type: ignore[index]
    assert directory.is_dir()
    os.kill(second.process.pid, signal.SIGHUP)  # there is nothing that it could read again
    assert second.stop() == 0
    assert not directory.exists()
    with connect_blocking() as client:
        assert client.status()["identity"] == first.ports["identity"]  # which still runs
    assert first.stop() == 0
    assert call("stream", "ls").returncode == 2


SIGNALLED_EARLY = """
    import os, signal, sys, tempfile
    from rillnode.node import config
    from rillnode.node.cli import main

    make, load, loads = tempfile.mkdtemp, config.load_config, []

    def made(*args, **options):
        directory = make(*args, **options)
        if "rillnode-dev-" in directory:  # a store makes others
            os.kill(os.getpid(), signal.SIGTERM)
        return directory

    def loaded(*args):
        loads.append(load(*args))
        if len(loads) <= 2:
            os.kill(os.getpid(), [signal.SIGHUP, signal.SIGTERM][len(loads) - 1])
        return loads[-1]

    tempfile.mkdtemp, config.load_config = made, loaded
    code = main(sys.argv[1:])
    print(len(loads) > 1, flush=True)
    sys.exit(code)
"""
"""Sends itself SIGTERM when a node's directory was made, SIGHUP when a configuration was read,
and SIGTERM when it was read again."""


def signalled_early(*argv: str | Path, temporary: Path) -> "subprocess.CompletedProcess[bytes]":
    program = textwrap.dedent(SIGNALLED_EARLY)
    environ = {**os.environ, "TMPDIR": str(temporary)}
    return finished("-c", program, "run", "-q", *argv, env=environ, timeout=LIMIT_SECONDS)


def test_a_node_that_is_stopped_while_it_starts_leaves_nothing(tmp_path: Path) -> None:
    ended = signalled_early("--dev", temporary=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_node_that_is_reloaded_while_it_starts_reads_again(
    home: Path, tmp_path: Path, loop: str
) -> None:
    """It would have ended by a signal that systemd takes for an end in order."""
    options = ("--loop", loop, "--set", "noise.listen=127.0.0.1:0", "--set", "http.enabled=false")
    ended = signalled_early("-c", home / "node.toml", *options, temporary=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == b"True\n"


TAKEN_MEANWHILE = """
    import json, os, signal, socket, sys
    from rillnode.node.cli import main, run

    look, taken = run.with_free_ports, []

    def looked(config):
        found = look(config)
        if not taken:
            for table in found.listeners().values():
                taken.append(socket.create_server((table.address.host, table.address.port)))
        return found

    def shown(node, *args, **options):
        print(json.dumps([[one.getsockname()[1] for one in taken], node.addresses()]), flush=True)
        os.kill(os.getpid(), signal.SIGTERM)

    run.with_free_ports, run._show_banner = looked, shown
    sys.exit(main(sys.argv[1:]))
"""
"""Takes every port that was found to be free, tells which, and where the node listens, and ends."""


def test_a_node_for_a_try_starts_where_another_has_just_taken_its_ports(tmp_path: Path) -> None:
    program, environ = textwrap.dedent(TAKEN_MEANWHILE), {**os.environ, "TMPDIR": str(tmp_path)}
    ended = finished("-c", program, "run", "--dev", env=environ, timeout=LIMIT_SECONDS)
    assert ended.returncode == 0, ended.stderr
    taken, addresses = json.loads(ended.stdout)
    assert len(taken) == len(addresses) > 1
    assert not {int(one.rpartition(":")[2]) for one in addresses.values()} & {*taken}
    assert not list(tmp_path.iterdir())


def test_nobody_there_is_exit_code_3(home: Path) -> None:
    options = ("-c", home / "node.toml", "--node", f"noise://{free_address()}")
    argv = rillnode("stream", "ls", *options)
    answer = subprocess.run(argv, capture_output=True, timeout=LIMIT_SECONDS)
    assert (answer.returncode, answer.stdout) == (3, b"")
    assert b"next: `rillnode run` starts a node" in answer.stderr


def test_a_port_in_use_ends_run_with_a_way_out(home: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        for name in ("noise", "http"):
            other = "http" if name == "noise" else "noise"
            answer = call(
                "run", "-c", home / "node.toml", "--ports-file", tmp_path / "ports",
                "--set", f"{name}.listen={listen}", "--set", f"{other}.listen=127.0.0.1:0",
            )  # fmt: skip
            assert answer.returncode == 1, answer.stderr.decode()
            assert f"{name}.listen: {listen} is in use: stop".encode() in answer.stderr
            assert b"next: `--set LISTENER.listen=127.0.0.1:0` takes" in answer.stderr
            assert not (tmp_path / "ports").exists()


def test_tail_ends_when_its_reader_does_and_when_interrupted(start: Start, home: Path) -> None:
    node = start(home, "-c", home / "node.toml")
    lines(call("stream", "push", "s", "--create", *node.options, stdin=b"x\n" * 10_000))
    argv = ("stream", "tail", "s", "--from", "start", "--format", "raw", *node.options)
    with begun(*argv, stdout=PIPE, stderr=PIPE) as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        assert tail.stdout.readline() == b"x\n"
        tail.stdout.close()
        lines(call("stream", "push", "s", *node.options, stdin=b"x\n" * 10_000))
        assert tail.wait(LIMIT_SECONDS) == 0
        assert tail.stderr.read() == b""
    with begun(*argv, stdout=PIPE, stderr=PIPE) as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        assert tail.stdout.readline() == b"x\n"
        tail.send_signal(signal.SIGINT)
        assert tail.wait(LIMIT_SECONDS) == 130
        assert b"Traceback" not in tail.stderr.read()


def test_an_interrupted_push_says_what_is_stored(start: Start, home: Path) -> None:
    node = start(home, "-c", home / "node.toml")
    lines(call("stream", "create", "s", "--partitions", "2", *node.options))
    argv = ("stream", "push", "s", "--partition", "1", *node.options)
    with begun(*argv, stdin=PIPE, stdout=PIPE, stderr=PIPE) as push:
        assert push.stdin is not None
        assert push.stdout is not None
        assert push.stderr is not None
        push.stdin.write(b"x\n" * 1_234)
        push.stdin.flush()

        def stored() -> bool:
            shown = lines(call("stream", "show", "s", *node.options))
            return bool(shown[0]["partitions"][1]["entries"] == 1_234)

        wait_for(stored, push)
        push.send_signal(signal.SIGINT)
        out, err = push.stdout.read(), push.stderr.read()
        assert push.wait(LIMIT_SECONDS) == 130
    assert err.decode() == "1,234 entries were stored before the interrupt\n"
    assert json.loads(out) == {
        "stream": "s", "partition": 1, "entries": 1_234, "first_index": 0, "last_index": 1_233
    }  # fmt: skip


def test_an_interrupted_push_to_a_node_that_is_away_ends_soon(start: Start, home: Path) -> None:
    node = start(home, "-c", home / "node.toml")
    lines(call("stream", "create", "s", *node.options))
    argv = ("stream", "push", "s", *node.options)
    with begun(*argv, stdin=PIPE, stdout=PIPE, stderr=PIPE) as push:
        assert push.stdin is not None
        assert push.stdout is not None
        assert push.stderr is not None
        push.stdin.write(b"first\n")
        push.stdin.flush()
        wait_for(lambda: bool(call("stream", "pull", "s", *node.options).stdout), push)
        node.stop()
        assert push.stderr.readline().startswith(b"link lost (")
        push.stdin.write(b"second\n")
        push.stdin.flush()
        time.sleep(0.2)
        push.send_signal(signal.SIGINT)
        assert push.wait(LIMIT_SECONDS) == 130
        told = push.stderr.read().decode()
    assert "1 entry was stored before the interrupt; 1 entry was sent and not confirmed" in told
    assert "Traceback" not in told


def test_push_sends_lines_as_they_are_typed(start: Start, home: Path) -> None:
    node = start(home, "-c", home / "node.toml")
    lines(call("stream", "create", "s", *node.options))
    push = begun("stream", "push", "s", *node.options, stdin=PIPE, stdout=PIPE)
    try:
        assert push.stdin is not None
        assert push.stdout is not None
        push.stdin.write(b"first\n")
        push.stdin.flush()
        answer = call(
            "stream", "tail", "s", "--from", "start", "--count", "1", "--timeout", "20",
            "--format", "raw", *node.options,
        )  # fmt: skip
        assert answer.stdout == b"first\n", answer.stderr.decode()
        push.stdin.close()
        assert json.loads(push.stdout.read())["entries"] == 1
        assert push.wait(LIMIT_SECONDS) == 0
    finally:
        push.kill()
        push.wait()


@pytest.mark.parametrize(("ending", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_program_answers_what_is_sent_to_an_address(
    start: Start, home: Path, tmp_path: Path, ending: signal.Signals, code: int
) -> None:
    node = start(home, "-c", home / "node.toml")
    argv = ("route", "serve", "upper", "--calls-max", "2", *node.options, "--")
    program = "import os, sys; text = sys.stdin.read(); print(os.environ['RILLNODE_PRINCIPAL'][:6])"
    failing = "sys.exit(3) if text == 'fail' else print(text.upper(), end='')"
    log = tmp_path / "serving"
    with log.open("wb") as file:
        serving = begun(*argv, sys.executable, "-c", f"{program}; {failing}", stderr=file)
    try:
        wait_for(lambda: b"serving upper" in log.read_bytes(), serving)
        (answer,) = lines(call("route", "ask", "upper", "hello", *node.options))
        assert (answer["text"], answer["return_route"]) == ("noise:\nHELLO", "0#upper")
        refused = call("route", "ask", "upper", "fail", *node.options)
        assert refused.returncode == 1
        assert b"the program has ended with 3 [program.failed]" in refused.stderr
        taken = call("route", "serve", "upper", *node.options, "--", "cat")
        assert (taken.returncode, b"[address.taken]" in taken.stderr) == (1, True)
        assert call("route", "serve", "x", *node.options, "--", "no-such-program").returncode == 2
        serving.send_signal(ending)
        assert serving.wait(LIMIT_SECONDS) == code
    finally:
        serving.kill()
        serving.wait()
    gone = call("route", "ask", "upper", "hello", *node.options)
    assert b"[address.unknown]" in gone.stderr
    assert node.stop() == 0
