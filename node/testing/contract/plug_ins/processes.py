"""A plug-in in processes: nodes that are killed, and simulated runs that are the same again."""

import asyncio
import io
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from rillnode.node.cli import main
from rillnode.node.testing.contract import base
from rillnode.node.testing.contract.plug_ins.declared import toml_of
from rillnode.node.testing.contract.plug_ins.using import (
    PlugInSuite,
    Used,
    check_kept,
    needs,
    stored,
    user_of,
)

START_SECONDS = 60.0


class Processes(PlugInSuite):
    """Tests of nodes in processes of their own."""

    async def test_what_was_stored_before_a_kill_is_there_after_it(self, tmp_path: Path) -> None:
        file = tmp_path / "node.toml"
        file.write_text(toml_of(self.config(tmp_path)))
        async with process_of(file) as one:
            await self.use(one)
            before = await stored(one.client)
        async with process_of(file) as one:
            check_kept(before, await stored(one.client))
            await self.use(one)

    @needs("scenario")
    def test_a_simulated_run_is_the_same_again(self, tmp_path: Path) -> None:
        file = tmp_path / "simulated.toml"
        file.write_text(self.scenario)
        verb = ("sim", "run", str(file), "--seed", "3", "--json")
        assert _trace_hash(_said_here(verb)) == _trace_hash(_said_elsewhere(verb))


@asynccontextmanager
async def process_of(file: Path) -> AsyncGenerator[Used]:
    """A node in a process of its own, which is killed at the end."""
    ports, log = file.with_name("ports.json"), file.with_name("log.txt")
    ports.unlink(missing_ok=True)
    command = (sys.executable, "-m", "rillnode", "run", "-c", file, "--ports-file", ports)
    with log.open("ab") as told:
        process = subprocess.Popen(
            [*map(str, command)], stdin=subprocess.DEVNULL, stdout=told, stderr=told
        )
    try:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + START_SECONDS
        while not ports.exists():
            assert process.poll() is None, log.read_text()[-3_000:]
            assert loop.time() < deadline, log.read_text()[-3_000:]
            await asyncio.sleep(0.05)
        found: dict[str, Any] = json.loads(ports.read_text())
        client = await user_of(found["noise"], found["identity"])
        addresses = {name: text for name, text in found.items() if ":" in str(text)}
        try:
            yield Used(addresses=addresses, facts=found, identity=found["identity"], client=client)
        finally:
            process.kill()
            await client.close(timeout_seconds=base.SOON_SECONDS)
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)


def _said_here(verb: Sequence[str]) -> str:
    """What a verb prints that is carried out in this process."""
    shown = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with redirect_stdout(shown):
        code = main(verb)
    shown.seek(0)
    said = shown.read()
    assert code == 0, said
    return said


def _said_elsewhere(verb: Sequence[str]) -> str:
    """What it prints in a process where texts have other hashes than here."""
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    done = subprocess.run(
        [sys.executable, "-m", "rillnode", *verb],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _trace_hash(said: str) -> str:
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    assert found["trace_hash"]
    return str(found["trace_hash"])
