"""What the command line imports before it knows what to do, and an interrupt meanwhile."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from rillnode.node.ockam.cli import LEVELS
from rillnode.node.ockam.client.channel import ChannelLevel

LIGHT = tuple(
    f"rillnode.{name}"
    for name in (
        "codecs.entry_points",
        "codecs.errors",
        "codecs.events",
        "codecs.next_steps",
        "codecs.times",
        "codecs.words",
        "exports",
        "node.installed",
    )
)
"""What command line modules may import at once, beside each other."""

MODULES_MAX = 240
"""Python's own included: some 220 now, and over 700 with all that a client is made of."""

COUNT = """
import io, json, sys
from rillnode.node.cli import main
sys.stdout = io.TextIOWrapper(io.BytesIO())
code = main(sys.argv[1:])
sys.__stdout__.write(json.dumps([code, sorted(sys.modules)]))
"""

INTERRUPT = """
import importlib.abc, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
at, sys.argv = sys.argv[1], ["rillnode", *sys.argv[2:]]
class Interrupting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == at:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from rillnode.node.cli import main
sys.exit(main())
"""


def python(program: str, *argv: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", program, *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    "argv",
    [
        ("--version",),
        ("--help",),
        pytest.param(("stream", "pull", "--help"), marks=pytest.mark.long),
        ("route", "serve", "--help"),
        pytest.param(("sim", "run", "--help"), marks=pytest.mark.long),
        ("completion", "bash"),
    ],
)
def test_a_help_text_imports_no_client_and_no_node(argv: tuple[str, ...]) -> None:
    code, modules = json.loads(python(COUNT, *argv).stdout)
    assert code == 0
    packages = {name.rpartition(".")[0] for name in modules} | {"rillnode"}
    heavy = [
        name
        for name in modules
        if name.startswith("rillnode.")
        and name not in packages
        and ".cli" not in name
        and name not in LIGHT
    ]
    assert heavy == []
    others = {
        "asyncio",
        "msgspec",
        "statistics",
        "nacl",
        "cryptography",
        "rocksdict",
        "aiohttp",
        "rich",
        "orjson",
        "pyarrow",
        "numpy",
    }
    assert others.isdisjoint(modules)
    assert len(modules) < MODULES_MAX


def test_the_levels_of_channels_are_those_that_there_are() -> None:
    assert get_args(ChannelLevel) == LEVELS


@pytest.mark.parametrize("module", ["rillnode.node.cli.command", "msgspec", "rillnode.node.config"])
def test_an_interrupt_during_imports_ends_without_a_trace(module: str) -> None:
    done = python(INTERRUPT, module, "stream", "ls", "--node", "noise://127.0.0.1:1", "-c", "x")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("--version > /dev/full", 1, "cannot write to stdout: No space left on device"),
        ("--version >&-", 1, "cannot write to stdout: Bad file descriptor"),
        ("context ls >&- <&-", 0, ""),
        ("pub s --node noise://127.0.0.1:1 --node-identity " + "aa" * 32 + " <&-", 3, "nothing"),
        ("--version 2>&-", 0, ""),
        ("frobnicate 2>&-", 2, ""),
    ],
)
def test_an_output_that_takes_nothing_and_an_input_that_is_closed(
    tmp_path: Path, command: str, code: int, said: str
) -> None:
    line = f"{sys.executable} -m rillnode {command}"
    home = {"XDG_CONFIG_HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(
        ["sh", "-c", line],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | home,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert said in done.stderr
