"""The page over simulated nodes: what it tells, and that to watch changes nothing."""

import json
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from fake_client import Screen
from rillnode.codecs.errors import ConfigError, TransportError
from rillnode.node.cli import main
from rillnode.node.config import parse_address
from rillnode.node.simulation.results import Result
from rillnode.node.simulation.run import Run
from rillnode.node.simulation.scenario import Scenario, parse_scenario
from rillnode.node.simulation.site import ServedRun, Watch, served

LOOPBACK = parse_address("127.0.0.1:0")
SCRIPT = files("rillnode.node").joinpath("page", "life.js").read_text(encoding="utf-8")
SHOWN = {*re.findall(r'"(\w+)"', " ".join(re.findall(r"show: \[(.*?)\]", SCRIPT)))}
"""The documents that the page follows, of simulated nodes as of others."""

SCENARIO = """
nodes = 3
messages = 30
seconds = 12.0

[clients]
callers = 1

[[fault]]
kind = "partition"
nodes = ["n1"]
at_seconds = 2.0
seconds = 4.0

[[fault]]
kind = "kill"
nodes = ["n2"]
at_seconds = 7.0
seconds = 2.0
"""


def scenario() -> Scenario:
    return parse_scenario(SCENARIO, Path("watched.toml"))


def get(page: ServedRun, path: str) -> Any:
    with urllib.request.urlopen(page.url.rstrip("/") + path, timeout=60) as answer:
        return json.loads(answer.read())


def refusal(page: ServedRun, path: str) -> tuple[int, str]:
    with pytest.raises(urllib.error.HTTPError) as caught:
        get(page, path)
    with caught.value as error:
        return error.code, json.loads(error.read())["code"]


class Looking(threading.Thread):
    """Looks again and again in a thread of its own, once at least, until it is `over`.

    Attributes:
        looks: how many it has ended.
    """

    def __init__(self, look: Callable[[], object], *, once: bool = False) -> None:
        super().__init__(daemon=True)
        self.over = once
        self.looks = 0
        self._look = look
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            while not (self.looks and self.over):
                self._look()
                self.looks += 1
        except BaseException as error:
            self._error = error

    def end(self, page: ServedRun) -> None:
        """Answer what it still asks, and raise what it raised."""
        self.over = True
        while self.is_alive():
            page.answer(0.05)
        if self._error is not None:
            raise self._error


def wait_for_looks(run: Run, page: ServedRun, looking: Looking) -> None:
    """Let no half second of the faults' time pass without a look, however busy the machine is."""
    jump, due = run.world.scheduler.on_jump, 0.0
    assert jump is not None

    def look_first(then: float) -> None:
        nonlocal due
        jump(then)
        if due <= then < run.scenario.seconds:
            due = then + 0.5
            enough = looking.looks + 2  # one may have begun before
            while looking.is_alive() and looking.looks < enough:
                page.answer(0.01)

    run.world.scheduler.on_jump = look_first


def watched(run: Run, look: Callable[[ServedRun], object]) -> Result:
    """Run while a thread looks; then look once more, at what has stayed.

    Args:
        run: it must not have begun.
        look: what the thread does.
    """
    with served(run, LOOPBACK, None) as page:
        looking = Looking(lambda: look(page))
        wait_for_looks(run, page, looking)
        looking.start()
        result = page.run()
        looking.end(page)
        final = Looking(lambda: check_end(page, result), once=True)
        final.start()
        final.end(page)
    return result


def test_to_watch_changes_nothing_and_partitions_and_dead_nodes_are_seen() -> None:
    plain = Run(scenario(), 4).run()
    pictures: list[dict[str, Any]] = []
    states: list[str] = []

    def look(page: ServedRun) -> None:
        network = get(page, "/v1/network")
        pictures.append(network)
        if len(pictures) > 1:
            states.append(get(page, "/v1/overview?node=n2")["state"])
        for name in sorted({"overview", "history", *SHOWN}):
            try:
                get(page, f"/v1/{name}?node=n1")
            except urllib.error.HTTPError as error:
                if error.code != 503:  # it has not started yet
                    raise

    result = watched(Run(scenario(), 4), look)
    assert result.violations == []
    assert {"streams", "tables"} < SHOWN
    assert result.trace_hash == plain.trace_hash
    assert result.virtual_seconds == plain.virtual_seconds
    parted = [one for one in pictures if one["cut"]]
    assert parted
    groups = {host["name"]: host["group"] for host in parted[0]["hosts"]}
    assert (groups["n1"], groups["n0"]) == (1, 0)
    assert {"kind": "partition", "host": "n1", "other": parted[0]["faults"][0]["other"]} in (
        parted[0]["faults"]
    )
    down = [
        host["state"]
        for one in pictures
        for host in one["hosts"]
        if (host["name"], host["state"]) == ("n2", "killed")
    ]
    assert down
    assert {"killed", "ready"} <= set(states)


def check_end(page: ServedRun, result: Result) -> None:
    """How a run has ended is still there."""
    network = get(page, "/v1/network")
    assert (network["running"], network["trace_hash"]) == (False, result.trace_hash)
    assert network["links"]
    overview = get(page, "/v1/overview?node=n1")
    assert overview["state"] == "over"
    assert overview["simulation"] == {"node": "n1", "nodes": ["n0", "n1", "n2"]}
    streams = get(page, "/v1/streams?node=n1")["streams"]
    (stream,) = [one for one in streams if one["name"] == "events-n1"]
    entries = get(page, f"/v1/streams/{stream['name']}/entries?node=n1&limit=5")["entries"]
    assert len(entries) == 5
    assert get(page, f"/v1/streams/{stream['name']}?node=n1")["next_index"] == stream["next_index"]
    assert refusal(page, "/v1/overview?node=n9") == (404, "http.path")
    assert refusal(page, "/v1/streams/none/entries?node=n1") == (404, "stream.unknown")
    assert refusal(page, "/nowhere") == (404, "http.path")


def test_the_address_must_be_of_this_machine_and_free() -> None:
    run = Run(scenario(), 1)
    everywhere = served(run, parse_address("0.0.0.0:0"), None)
    with pytest.raises(ConfigError, match="not of this machine"), everywhere:
        pass
    with served(run, LOOPBACK, None) as page:
        taken = parse_address(page.url.removeprefix("http://").rstrip("/"))
        second = served(Run(scenario(), 2), taken, None)
        with pytest.raises(TransportError, match="in use"), second:
            pass


def test_a_watch_answers_what_was_asked_and_holds_the_speed() -> None:
    watch = Watch(10.0)
    asked = [watch.ask(lambda: 7), watch.ask(lambda: 1 // 0)]
    begun = time.monotonic()
    for moment in (5.0, 5.5, 7.0):
        watch.jump(moment)
    assert 0.2 <= time.monotonic() - begun < 60
    assert asked[0].result(0) == 7
    with pytest.raises(ZeroDivisionError):
        asked[1].result(0)


@pytest.mark.parametrize(
    ("scenario", "options", "text"),
    [
        ("sim-churn", ("--seeds", "0..1", "--http", "127.0.0.1:0"), "take --seed instead"),
        ("sim-churn", ("--http", "0.0.0.0:0"), "not of this machine"),
        ("sim-propagation", ("--http", "127.0.0.1:0"), "has none"),
        ("sim-churn", ("--http", "8090"), "host:port"),
        ("sim-churn", ("--http", "127.0.0.1:0", "--speed", "0"), "over 0"),
    ],
)
def test_what_cannot_be_watched_is_a_mistake_in_the_command(
    scenario: str, options: tuple[str, ...], text: str
) -> None:
    file = Path(__file__).parents[2] / "configs" / f"{scenario}.toml"
    screen = Screen()
    assert main(["sim", "run", str(file), *options], screen.terminal) == 2
    assert text in screen.err
