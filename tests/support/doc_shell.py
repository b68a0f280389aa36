"""The shell blocks of pages: on what stage they run, and why some do not.

A block is named by its page and its first line. What does not run is read all the same: by a shell,
by shellcheck where there is one, and by the parsers of the commands in it.
"""

import json
import re
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from doc_support import ROOT, Block, Runner, blocks, documents, running
from nats_support import NATS_SERVER, NO_NATS, running_nats

Name = tuple[str, str]

_INSTALLS = "it would change the environment that the tests run in; the extras are checked"
_MEASURES = "it installs servers as root and measures for a quarter of an hour"
_IS_TESTS = "it is tests, which run by themselves"
_CLUSTER = "it needs a Spark cluster; the job is tested on local-cluster"

NOT_RUN: Final[dict[Name, str]] = {
    ("README.md", "make demo"): "it is tests; test_demo.py runs the demo",
    ("README.md", "make setup"): _INSTALLS,
    ("benchmarks/README.md", "benchmarks/install-peers.sh"): _MEASURES,
    ("docs/explanation/performance.md", "benchmarks/install-peers.sh"): _MEASURES,
    (
        "docs/explanation/simulation.md",
        '.venv/bin/python -m pytest -m "long or not long" tests/simulation/test_planted_bugs.py',
    ): _IS_TESTS,
    (
        "docs/explanation/measurements.md",
        "python3.12 -m venv build/simulators",
    ): "it installs other simulators, for another Python, and measures",
    (
        "docs/how-to/container.md",
        "podman build --format docker -f configs/Containerfile -t rillnode .",
    ): "it needs podman and a registry; test_service_files.py reads the container file",
    (
        "docs/how-to/container.md",
        "docker compose -f configs/compose.yaml run --rm node init /data --name edge",
    ): "it needs a container engine; .ci/lint-deployment reads the file",
    (
        "docs/how-to/container.md",
        "helm install edge configs/chart -f values.yaml",
    ): "it needs a cluster; .ci/lint-deployment renders the chart",
    ("docs/how-to/monitoring.md", "pip install '.[telemetry]'"): _INSTALLS,
    (
        "docs/how-to/write-a-plugin.md",
        "pip install -e examples/plugin",
    ): "it would change the environment that the tests run in; test_plugin_package.py does so",
    (
        "docs/how-to/simulate.md",
        "rillnode sim run configs/sim-partition.toml --seed 1 --http 127.0.0.1:8090 --speed 1",
    ): "it stays until Ctrl-C; test_site.py and test_status_browser.py watch runs",
    (
        "docs/how-to/sizing.md",
        "pip install --no-compile --target build/core . && du -sm build/core",
    ): "it needs an index of packages; test_packaging.py adds the sizes up",
    ("docs/how-to/spark-application.md", "pip install '.[spark]'"): _INSTALLS,
    (
        "docs/how-to/spark-application.md",
        "spark-submit examples/spark_streams.py --url noise://edge:4100 --node-identity 77aa... \\",
    ): "it names a node elsewhere; test_applications.py submits the example",
    ("docs/how-to/spark-cluster.md", "pip install '.[spark]'"): _INSTALLS,
    ("docs/how-to/spark-cluster.md", "spark-submit --master spark://cluster:7077 \\"): _CLUSTER,
    ("docs/how-to/spark.md", "pip install '.[spark,spark-jre]'"): _INSTALLS,
    ("docs/how-to/spark.md", "pip install '.[tables]'"): _INSTALLS,
    ("docs/how-to/spark.md", "spark-submit --master spark://cluster:7077 \\"): _CLUSTER,
    (
        "docs/how-to/systemd.md",
        "python3 -m venv /opt/rillnode",
    ): "it changes the machine as root; test_service_files.py has systemd read the unit",
}

LONG: Final[dict[Name, str]] = {
    (
        "docs/explanation/measurements.md",
        "rillnode sim run configs/sim-overlay.toml --seeds 0..39 --html overlay.html",
    ): "forty runs of 64 nodes",
    (
        "docs/how-to/overlay.md",
        "rillnode sim run configs/sim-overlay.toml --seeds 0..9 --html overlay.html",
    ): "ten runs of 64 nodes",
    ("docs/how-to/overlay.md", "rillnode status | jq .overlay"): (
        "two nodes are started for it; tests of the command line show what it prints"
    ),
    **{
        (
            "docs/how-to/three-machines.md",
            f"rillnode store copy --from rocksdb --to jetstream {rest}",
        ): ("a node and a server are started for it; test_store_copy.py copies")
        for rest in ("-c three.toml", "-c three.toml --final")
    },
    ("docs/how-to/simulate.md", "rillnode sim run outage.toml --seeds 0..9"): (
        "ten runs; test_simulation_pages.py makes one of them"
    ),
    **{
        ("docs/how-to/silver-gold.md", first): "Spark is started"
        for first in (
            'python -c "from deltalake import DeltaTable; '
            "print(DeltaTable('data/tables/gold/minutes').to_pandas())\"",
            "rillnode pipeline report --hours 24 --html report.html",
            "rillnode sink pause bronze",
        )
    },
}


def name_of(page: str, block: Block) -> Name:
    """The name of a block; comments that follow a command do not belong to it."""
    return page, block.text.splitlines()[0].partition("  ")[0]


def shell_blocks() -> dict[Name, Block]:
    """Every shell block there is."""
    pages = [(str(page.relative_to(ROOT)), blocks(page)) for page in documents()]
    return {
        name_of(page, block): block
        for page, found in pages
        for block in found
        if block.language == "sh"
    }


# What pages take for granted ------------------------------------------------------------------

_EVERYTHING = '\n[[grant]]\nwho = "noise:*"\nstreams = "*"\nmay = ["create", "push", "pull"]\n'
_HUB_SECONDS = 60.0


def _add_tables(file: Path, text: str) -> None:
    """Put tables into a configuration, in place of those of `init`, which only have defaults."""
    added = set(re.findall(r"^\[\w+\]$", text, re.MULTILINE))
    lines = [line for line in file.read_text().splitlines() if line not in added]
    file.write_text("\n".join(lines) + text)


def _start(runner: Runner, tables: str) -> dict[str, str]:
    """Run a node with these tables beside those of `init`; returns its ports file."""
    runner.command("rillnode init .")
    _add_tables(runner.directory / "node.toml", tables)
    runner.command("rillnode run --ports-file ports.json")
    found: dict[str, str] = json.loads((runner.directory / "ports.json").read_text())
    return found


def _hub(runner: Runner, stack: ExitStack, tables: str) -> dict[str, str]:
    """Another node, which is there until the page ends."""
    directory = runner.directory / "another"
    directory.mkdir()
    return _start(stack.enter_context(running(directory)), tables)


def _with_hub(runner: Runner, stack: ExitStack) -> None:
    ports = _hub(runner, stack, '\n[ockam]\nlisten = "127.0.0.1:0"\n')
    peer = f'\n[[peer]]\nname = "hub"\nockam = "{ports["ockam"]}"\ndialect = "2024"\n'
    _start(runner, f'\n[ockam]\nlisten = "127.0.0.1:0"\n{peer}')


def _with_tracker(runner: Runner, stack: ExitStack) -> None:
    ports = _hub(
        runner, stack, f'\n[tracker]\nenabled = true\n\n[overlay]\nstreams = ["s*"]\n{_EVERYTHING}'
    )
    _start(
        runner,
        '\n[[stream]]\nname = "sensors"\n\n[overlay]\nstreams = ["s*"]\ntrackers = ["tracker"]\n'
        f'\n[[peer]]\nname = "tracker"\nnoise = "{ports["noise"]}"\n'
        f'identity = "{ports["identity"]}"\n',
    )


def _with_configuration(runner: Runner, _: ExitStack) -> None:
    runner.command("rillnode init .")


def _with_two_stores(runner: Runner, stack: ExitStack) -> None:
    if NATS_SERVER is None:
        pytest.skip(NO_NATS)
    server = stack.enter_context(running_nats(runner.directory / "nats"))
    _start(runner, "")
    three = runner.directory / "three.toml"
    three.write_text((runner.directory / "node.toml").read_text())
    _add_tables(
        three,
        f'\n[store]\nengine = "jetstream"\nservers = ["{server.url}"]\n'
        f'monitors = ["{server.monitor}"]\nreplicas = 1\n',
    )
    for number in range(3):
        runner.command(f"echo {number} | rillnode stream push readings --create")


def _with_tables(runner: Runner, _: ExitStack) -> None:
    _start(
        runner,
        '\n[[sink.spark]]\nname = "bronze"\nstreams = ["sensors*"]\ntrigger_seconds = 1.0\n'
        'table_dir = "data/tables/bronze"\nsilver_dir = "data/tables/silver"\n'
        'gold_dir = "data/tables/gold"\n',
    )
    runner.command("""echo '{"temperature": 21.5}' | rillnode stream push sensors --create""")
    deadline = time.monotonic() + 10 * _HUB_SECONDS
    log = runner.directory / "data/tables/gold/minutes/_delta_log"
    while len(list(log.glob("*.json"))) < 2:
        assert time.monotonic() < deadline, (runner.directory / "data/sinks/bronze.log").read_text()
        time.sleep(1.0)


STAGES: Final[dict[str, Callable[[Runner, ExitStack], None]]] = {
    "docs/how-to/monitoring.md": _with_configuration,
    "docs/how-to/overlay.md": _with_tracker,
    "docs/how-to/peers.md": _with_hub,
    "docs/how-to/secure-channels.md": _with_hub,
    "docs/how-to/silver-gold.md": _with_tables,
    "docs/how-to/three-machines.md": _with_two_stores,
}
"""What is there before the first block of a page, in its directory."""
