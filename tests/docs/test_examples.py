"""The small examples run against a real node."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from runpy import run_path
from unittest.mock import patch

import pytest

from deleted_rooms import rooms_in
from doc_support import ROOT, Runner, running
from forked import PIPE, Forked
from ockam_2024_peer import Ockam2024Peer
from ockam_peer import OckamPeer
from ockam_worker import LEVELS, Level, ebins
from rillnode.node.testing.contract.ports import free_address

EXAMPLES = ROOT / "examples"
KINDS = (".py", ".js", ".ipynb", ".exs", ".html")


def run(script: str, *arguments: str | Path) -> list[str]:
    """Run an example as a program in this process; an interpreter would take it a second."""
    argv = [script, *map(str, arguments)]
    with patch.object(sys, "argv", argv), redirect_stdout(StringIO()) as printed:
        run_path(str(EXAMPLES / script), run_name="__main__")
    return printed.getvalue().splitlines()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Runner]:
    with running(tmp_path) as runner:
        runner.command("rillnode init edge")
        runner.command("rillnode run -c edge/node.toml --ports-file edge/ports.json")
        yield runner


@pytest.mark.check
def test_the_page_names_every_example() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    files = {path.name for path in EXAMPLES.iterdir() if path.suffix in KINDS}
    assert set(re.findall(r"\]\(([\w.]+)\)", text)) == files


def test_embedded_node_keeps_entries_and_position(tmp_path: Path) -> None:
    for start in (0, 10):
        stored, *consumed = run("embed.py", tmp_path / "data")
        assert stored == f"stored {start} to {start + 9}"
        assert consumed == [f"{start + number}: reading {number}" for number in range(10)]


def test_published_readings_are_consumed_once(node: Runner, tmp_path: Path) -> None:
    reach = (tmp_path / "edge/ports.json", tmp_path / "edge/data/admin.key", "readings")
    total = sum(number / 2 for number in range(3, 2500, 10))
    for _ in range(2):
        published = run("publish.py", *reach, "--count", "2500")
        consumed = run("consume.py", *reach, "--idle-seconds", "1")
        again = run("consume.py", *reach, "--idle-seconds", "1")
        assert published == ["2500 readings are stored"]
        assert f"device 3: {total}" in consumed
        assert consumed[-1] == "2500 readings consumed"
        assert again == ["0 readings consumed"]


def test_a_printer_prints_what_is_sent_to_it(node: Runner, tmp_path: Path) -> None:
    reach = (tmp_path / "edge/ports.json", tmp_path / "edge/data/admin.key")
    with Forked(EXAMPLES / "printer.py", *reach, stdout=PIPE, text=True) as printer:
        try:
            assert printer.stdout is not None
            assert printer.stdout.readline() == "ready\n"
            node.command("rillnode route ask printer 'Dear Sir' -c edge/node.toml")
            with pytest.raises(AssertionError, match=r"printer\.page"):
                node.command(f"rillnode route ask printer {'x' * 2001} -c edge/node.toml")
        finally:
            printer.send_signal(signal.SIGINT)
        printed = printer.stdout.read()
    assert "Dear Sir" in printed
    assert printed.endswith("no more pages\n")


def test_an_asyncio_application_confirms_and_handles_each_line_once(tmp_path: Path) -> None:
    lines = ["kettle on", "kettle boils", "kettle off"]
    for start in (0, 3):  # each run goes on where the last one stopped
        printed = run("embed_asyncio.py", tmp_path / "data")
        handled = [line for line in printed if line.startswith("worker:")]
        confirmed = [line for line in printed if line.startswith("client:")]
        assert confirmed == [f"client: stored {start + number}" for number in range(3)]
        assert handled == [f"worker: {start + n} {line}" for n, line in enumerate(lines)]


def test_a_plain_script_stores_each_line_once(tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"line {number}\n" for number in range(2_500)))
    before = run("embed_script.py", tmp_path / "data", file)
    with file.open("a") as more:
        more.write("the last\n")
    after = run("embed_script.py", tmp_path / "data", file)
    assert before == ["0 lines were stored before, 2500 were added"]
    assert after == ["2500 lines were stored before, 1 were added"]


def test_a_fastapi_application_keeps_orders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from httpx import ASGITransport, AsyncClient

    import embed_fastapi

    async def order(start: int) -> None:
        app = embed_fastapi.app
        transport = ASGITransport(app)
        async with (
            embed_fastapi.lifespan(app),
            AsyncClient(transport=transport, base_url="http://shop") as client,
        ):
            for number, item in enumerate(("tea", "milk"), start):
                answer = await client.post("/orders", json={"item": item})
                assert (answer.status_code, answer.json()) == (201, {"number": number})
            assert (await client.post("/orders", json={"count": 1})).status_code == 422
            listed = await client.get("/orders", params={"start": start, "limit": 1})
            assert listed.json() == [{"number": start, "item": "tea", "count": 1}]

    monkeypatch.setenv("DATA", str(tmp_path / "data"))
    for start in (0, 2):
        asyncio.run(order(start))


def test_an_ockam_peer_is_greeted(tmp_path: Path) -> None:
    async def greeted(address: str) -> list[bytes]:
        async with await OckamPeer.connect(address) as peer:
            return [(await peer.ask("greeter", name)).payload for name in (b"Ada", b"Bob")]

    with Forked(EXAMPLES / "greeter.py", tmp_path, stdout=PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip().removeprefix("1#").removesuffix(";greeter")
            answers = asyncio.run(greeted(address))
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    assert answers == [b"hello, Ada, number 1", b"hello, Bob, number 2"]


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(path.name, marks=[pytest.mark.needs(one) for one in rooms_in(path.name)])
        for path in sorted(EXAMPLES.glob("*.py"))
        if "argv)" in path.read_text()
    ],
)
def test_an_example_without_arguments_says_how_to_call_it(script: str) -> None:
    with pytest.raises(SystemExit, match=f"{script} "):
        run(script)


@pytest.mark.needs("released Ockam nodes")
def test_an_elixir_node_is_greeted_and_greets(tmp_path: Path) -> None:
    """Every release that is there; by hand the same messages are sent above."""
    listen = free_address().rpartition(":")[2]
    with Forked(EXAMPLES / "greeter.py", tmp_path, stdout=PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().removesuffix(";greeter\n").rpartition(":")[2]
            for nth, level in enumerate(LEVELS):
                paths = [path for ebin in ebins(level) for path in ("-pa", str(ebin))]
                script, names = EXAMPLES / "greeter.exs", ("Ada", "Bob")
                elixir: list[str | Path] = ["elixir", *paths, script, port, *names]
                with subprocess.Popen(
                    elixir,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=os.environ | {"LISTEN": listen},
                ) as greeting:
                    try:
                        assert greeting.stdout is not None
                        lines = [greeting.stdout.readline() for _ in range(3)]
                        numbered = enumerate(names, 2 * nth + 1)
                        said = [f"hello, {name}, number {number}\n" for number, name in numbered]
                        assert lines == [*said, "listening\n"]
                        answer = asyncio.run(asked(f"127.0.0.1:{listen}", level))
                        assert answer == b"hello from Elixir, Eve"
                    finally:
                        greeting.kill()
        finally:
            process.terminate()


async def asked(address: str, level: Level) -> bytes:
    peer_of = OckamPeer if level.dialect == "u16" else Ockam2024Peer
    async with await peer_of.connect(address) as peer:
        return (await peer.ask("greeter", b"Eve")).payload


def test_an_application_of_thespians_says_on_a_node_what_it_said_before(tmp_path: Path) -> None:
    before = ["{'pieces': 5}", "{'given': 2}", "{'given': 3}", "{'pieces': 2}"]
    assert run("thespian_app.py") == before
    assert run("thespian_app.py", tmp_path / "data") == before


@pytest.mark.long
def test_replicas_are_replaced_one_by_one_and_no_call_fails(tmp_path: Path) -> None:
    *replaced, first, second = run("replicas.py", tmp_path)
    assert replaced == ["replaced one, which ended with 0"] * 3
    for line, version in ((first, "v1"), (second, "v2")):
        assert re.fullmatch(rf"[1-9]\d* calls were answered '{version} 24'", line)


@pytest.mark.check
@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("embed*.py")), ids=lambda path: path.name)
def test_embedding_takes_less_than_60_lines(script: Path) -> None:
    assert len(script.read_text().splitlines()) < 60
