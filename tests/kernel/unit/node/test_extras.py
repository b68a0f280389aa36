"""The core runs without the libraries of plug-ins; a plug-in without its own names its extra."""

import json
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import PathDistribution, packages_distributions
from pathlib import Path
from typing import Any, Final

import pytest

from deleted_rooms import there
from rillnode.node.installed import ENGINES, PLUG_INS, install_command, installed

ROOT: Final = Path(__file__).parents[4]
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: Final[dict[str, list[str]]] = PROJECT["optional-dependencies"]

HIDING: Final = """
import sys
from importlib.machinery import PathFinder

hidden = set(sys.argv.pop(1).split(","))

class Hiding(PathFinder):
    '''Finds what is installed, but for some packages.'''

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in hidden else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Hiding
"""

CORE: Final = """
import asyncio
from pathlib import Path
import rillnode
from rillnode.node.cli import main
from rillnode.node.config import Config, HttpListener, NoiseListener

for name in rillnode.__all__:
    getattr(rillnode, name)

async def use():
    config = Config(
        name="a", data_dir=Path(sys.argv[1]), noise=NoiseListener(listen="127.0.0.1:0"),
        http=HttpListener(listen="127.0.0.1:0"),
    )
    async with rillnode.Node(config) as node:
        assert set(node.addresses()) == {"noise", "http"}
        stream = await node.stream("s")
        await stream.push(b"x")
        assert [entry.data for entry in await stream.pull()] == [b"x"]

asyncio.run(use())
assert main(["--help"]) == main(["run", "--help"]) == main(["route", "ask", "--help"]) == 0
assert main(["init", sys.argv[1] + "/new"]) == main(["config", "schema"]) == 0
print(sorted(hidden & set(sys.modules)))
"""


END: Final = "end of a run\n"
RUNS: Final = f"""
from rillnode.node.cli import main

for file in sys.argv[1:]:
    print(main(["run", "-c", file]))
    sys.stderr.write({END!r})
"""

SIMULATED: Final = f"""
from rillnode.node.cli import main

for text in (
    "", "[streamr]", "[ockam]\\n[store]\\nengine = 'shared'"
):
    with open(sys.argv[1], "w") as file:
        file.write("nodes = 2\\nmessages = 2\\nseconds = 1\\n" + text)
    print(main(["sim", "run", sys.argv[1], "--seed", "1"]))
    sys.stderr.write({END!r})
"""

TABLES_OF: Final = {
    "streamr": {"streamr": "[streamr]"},
    "nextgraph": {"nextgraph": "[nextgraph]"},
    "overlay": {"overlay": "[overlay]"},
    "telemetry": {"telemetry": "[telemetry]\nenabled = true"},
    "spark": {
        "spark": '[[sink.spark]]\nname = "b"\nstreams = ["*"]\ntable_dir = "t"',
        "tables": '[[sink.python]]\nname = "b"\nstreams = ["*"]\ntable_dir = "t"',
    },
}
LACKING: Final = {
    extra: table for room in there(*TABLES_OF) for extra, table in TABLES_OF[room].items()
}
"""Tables of plug-ins, by the extra that each needs."""


def package(requirement: str) -> str:
    return re.split(r"[\[<>=,~! ]", requirement)[0].lower()


@cache
def modules_of_extras() -> set[str]:
    """The modules of the packages that only extras install; most are called as their package."""
    packages = {package(one) for group in EXTRAS.values() for one in group} - {"rillnode"}
    return packages | {
        module
        for module, owners in packages_distributions().items()
        if packages & {owner.lower() for owner in owners}
    }


def without(hidden: set[str], program: str, *argv: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HIDING + program, ",".join(sorted(hidden)), *map(str, argv)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.needs("ockam", "spark")  # whose names the package itself has, too
def test_a_node_and_its_commands_need_nothing_of_a_plug_in_s(tmp_path: Path) -> None:
    done = without(modules_of_extras(), CORE, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_table_whose_plug_in_lacks_something_names_the_extra(tmp_path: Path) -> None:
    for number, table in enumerate(LACKING.values()):
        (tmp_path / f"{number}.toml").write_text(
            'name = "a"\n[noise]\nlisten = "127.0.0.1:0"\n[http]\nenabled = false\n' + table
        )
    done = without(modules_of_extras(), RUNS, *sorted(tmp_path.iterdir()))
    assert done.stdout.splitlines() == ["2"] * len(LACKING), done.stderr
    said = done.stderr.split(END)[:-1]
    for (extra, table), text in zip(LACKING.items(), said, strict=True):
        assert f"[{extra}]'`" in text, table
    assert "Traceback" not in done.stderr


IMPORTS: Final = """
from importlib import import_module

for name in sys.argv[1:]:
    try:
        import_module(f"rillnode.{name}")
    except ImportError as error:
        print(error)
"""


def test_a_client_that_lacks_something_names_the_extra() -> None:
    names = there("streamr", "nextgraph")
    lines = without(modules_of_extras(), IMPORTS, *names).stdout.splitlines()
    for name, line in zip(names, lines, strict=True):
        assert line.startswith(f"rillnode.{name} needs ")
        assert line.endswith(f"[{name}]'`")


@pytest.mark.needs("streamr")
def test_simulations_go_without_what_they_do_not_ask_for(tmp_path: Path) -> None:
    done = without(modules_of_extras(), SIMULATED, tmp_path / "scenario.toml")
    codes = [line for line in done.stdout.splitlines() if line.isdigit()]
    assert codes == ["0", "2", "0"], done.stderr
    (_, said, _, _) = done.stderr.split(END)
    assert "[streamr]: the plug-in 'streamr' needs " in said
    assert "[streamr]'`" in said


def test_each_plug_in_has_an_extra_of_its_name_and_all_has_all() -> None:
    named = {*installed(PLUG_INS), *installed(ENGINES), "postgres", "simulation"}
    assert named <= EXTRAS.keys()
    text = json.dumps(EXTRAS["all"])
    of_all = {one for group in re.findall(r"\[([\w,-]+)\]", text) for one in group.split(",")}
    assert of_all == EXTRAS.keys() - {"all", "testing"}  # which no node has a use for


@pytest.mark.parametrize(
    ("source", "command"),
    [
        (None, "pip install 'rillnode[a,b]'"),
        ('{"url": "file:///a%20clone", "dir_info": {}}', "pip install '/a clone[a,b]'"),
        (
            '{"url": "file:///clone", "dir_info": {"editable": true}}',
            "pip install -e '/clone[a,b]'",
        ),
        ('{"url": "file:///rillnode-1-py3-none-any.whl"}',
         "pip install '/rillnode-1-py3-none-any.whl[a,b]'"),
    ],
)  # fmt: skip
def test_a_package_is_installed_again_from_where_it_has_come(
    monkeypatch: pytest.MonkeyPatch, source: str | None, command: str
) -> None:
    def read_text(_: PathDistribution, __: str) -> str | None:
        return source

    monkeypatch.setattr(PathDistribution, "read_text", read_text)
    monkeypatch.setattr(PathDistribution, "name", "rillnode")
    assert install_command("a,b") == command
