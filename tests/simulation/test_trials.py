"""Scenarios of an application's own, tried with many seeds."""

import asyncio
import json
import os
import random
import secrets
import socket
import threading
import time
from ast import literal_eval
from collections.abc import Callable
from pathlib import Path

import pytest

from fake_client import Screen
from rillnode import Actor, Context, Message, Node, RequestError, RillnodeError, TransportError
from rillnode.codecs.errors import ConfigError
from rillnode.node.cli import main
from rillnode.node.simulated.history import EPOCH_MS
from rillnode.node.simulation.loop import SimulationStuck
from rillnode.node.simulation.trials import run_once, try_out
from rillnode.testing import InvariantBroken, Network, ScenarioBroken, check

ORDER_SERVICE = Path(__file__).parents[2] / "examples/order_service.py"


class Counter(Actor):
    """Counts in memory only: a kill takes it back to nothing."""

    def __init__(self) -> None:
        self.count = 0

    async def receive(self, message: Message, ctx: Context) -> bytes:
        self.count += 1
        return b"%d" % self.count


async def ask_for(network: Network, seconds: float) -> list[int]:
    """Ask the counter twice a second, whatever fails."""
    found: list[int] = []
    async with await network.client("a") as client:
        while network.now < seconds:
            try:
                answer = await client.ask("counter", b"", timeout_seconds=1.0)
                found.append(int(answer.payload))
            except RillnodeError:
                pass
            await asyncio.sleep(0.5)
    return found


async def counted(network: Network) -> None:
    """Says, wrongly, that a counter in memory never goes back."""
    await network.node("a", actors={"counter": Counter})
    async with network.faults("kill", "partition", "clock_jump", count=5, seconds=20.0):
        found = await ask_for(network, 20.0)
    assert found == sorted(found), "it went back"


def test_an_actor_is_there_again_after_a_kill() -> None:
    with Network() as network:

        async def scenario() -> list[int]:
            await network.node("a", actors={"counter": Counter})
            async with await network.client("a") as client:
                first = [int((await client.ask("counter", b"")).payload) for _ in range(2)]
                network.kill("a")
                network.restart("a")
                return [*first, int((await client.ask("counter", b"")).payload)]

        assert network.run(scenario()) == [1, 2, 1]


def test_what_breaks_is_shortened_to_the_fault_that_it_needs() -> None:
    seed = next(seed for seed in range(20) if run_once(counted, seed).violations)
    whole, short = run_once(counted, seed), try_out(counted, seed)
    assert len(whole.faults) == 5
    assert [fault.kind for fault in short.faults] == ["kill"]
    assert short.violations[0].rule == whole.violations[0].rule
    assert "it went back" in short.violations[0].text
    again = run_once(counted, seed, [fault.number for fault in short.faults])
    assert again == short


def test_a_test_is_told_the_seed_and_what_happened() -> None:
    with pytest.raises(ScenarioBroken, match=r"(?s)^seed \d+: test_trials.py:\d+: .*a: fault kill"):
        check(counted, range(20))


async def nothing(network: Network) -> None:
    """Nothing breaks."""
    await network.node("a")
    async with network.faults(count=4, seconds=10.0):
        await asyncio.sleep(10.0)


def test_a_seed_gives_the_same_run_again() -> None:
    check(nothing, range(3))
    first, second, other = run_once(nothing, 1), run_once(nothing, 1), run_once(nothing, 2)
    assert first == second
    assert first.faults != other.faults


def test_a_fault_that_is_left_out_changes_no_other() -> None:
    every = run_once(nothing, 5).faults
    assert run_once(nothing, 5, [0, 3]).faults == [every[0], every[3]]


@pytest.mark.parametrize("says", [False, AssertionError("three")])
def test_an_invariant_ends_the_run_at_once(says: object) -> None:
    network = Network()

    def at_most_two() -> bool:
        if network.now <= 2.0:
            return True
        if isinstance(says, Exception):
            raise says
        return False

    async def scenario() -> None:
        network.always(at_most_two)
        for _ in range(100):
            await asyncio.sleep(0.5)

    with network, pytest.raises(InvariantBroken) as broken:
        network.run(scenario())
    assert broken.value.rule == "at_most_two"
    assert network.now < 3.0


def test_an_invariant_is_looked_at_when_all_is_over() -> None:
    done: list[int] = []

    async def scenario() -> None:
        network.always(lambda: not done)
        done.append(1)

    with Network() as network, pytest.raises(InvariantBroken):
        network.run(scenario())


def test_what_asks_for_ever_comes_to_an_end() -> None:
    async def scenario(network: Network) -> None:
        network.seconds_max = 60.0
        while True:
            await asyncio.sleep(0.5)

    assert [one.rule for one in run_once(scenario, 0).violations] == ["no-progress"]


def test_what_nobody_waits_for_is_seen_to_fail() -> None:
    async def program() -> None:
        raise ValueError("unseen")

    async def scenario(network: Network) -> None:
        network.start("other", program)
        await asyncio.sleep(1.0)

    (one,) = run_once(scenario, 0).violations
    assert one.rule == "unhandled-error"
    assert "unseen" in one.text


def test_a_program_that_was_killed_begins_anew() -> None:
    begun: list[float] = []

    async def program(network: Network) -> str:
        begun.append(network.now)
        await network.client("a")
        await asyncio.sleep(15.0)
        return "done"

    async def scenario(network: Network) -> None:
        await network.node("a")
        other = network.start("other", program, network)
        await asyncio.sleep(1.0)
        async with network.faults("kill_client", seconds=10.0, count=2):
            await asyncio.sleep(10.0)
        assert await other.wait() == "done"

    check(scenario, range(2))
    assert len(begun) > 2


def test_faults_strike_the_nodes_that_are_named() -> None:
    async def scenario(network: Network) -> None:
        for name in ("a", "b"):
            await network.node(name)
        async with network.faults("kill", "pause", nodes=["b"], count=8):
            await asyncio.sleep(30.0)

    assert {fault.host for fault in run_once(scenario, 3).faults} == {"b"}


def test_the_application_s_own_actors_fail() -> None:
    async def scenario(network: Network) -> None:
        await network.node("a", actors={"counter": Counter})
        async with network.faults("actor", count=1, seconds=10.0):
            found = await ask_for(network, 20.0)
        assert found == sorted(found), "it went back"

    trial = run_once(scenario, 0)
    assert [fault.kind for fault in trial.faults] == ["actor"]
    assert "it went back" in trial.violations[0].text


def test_faults_that_nobody_can_have_are_refused() -> None:
    with Network() as network:

        async def scenario(*kinds: str) -> None:
            async with network.faults(*kinds):  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
                raise AssertionError("never")

        with pytest.raises(ConfigError, match="nobody"):
            network.run(scenario("kill"))
        network.add_node("a")
        with pytest.raises(ConfigError, match="nobody"):
            network.run(scenario("kill_client"))
        with pytest.raises(ConfigError, match="share no log"):
            network.run(scenario("log_cut"))


def test_a_node_that_cannot_start_again_is_told() -> None:
    starts: list[int] = []

    async def on_start(_: object) -> None:
        starts.append(1)
        if len(starts) > 1:
            raise TransportError("peer.unreachable", "whatever it needs")

    async def scenario(network: Network) -> None:
        await network.node("a", on_start=on_start)
        async with network.faults("kill", seconds=5.0, count=1):
            await asyncio.sleep(5.0)

    (one,) = run_once(scenario, 0).violations
    assert one.rule == "no-progress"
    assert "a: not ready" in one.text
    assert len(starts) > 100, "it is started again and again, as by a service manager"


def test_a_stuck_scenario_says_so() -> None:
    async def scenario() -> None:
        await asyncio.Event().wait()

    with Network() as network, pytest.raises(SimulationStuck):
        network.run(scenario())


# What code may do there -----------------------------------------------------------------------


class Blocking(Actor):
    """Asks, and works off what blocks, on a thread."""

    blocking = True

    def receive(self, message: Message, ctx: Context) -> bytes:
        ctx.wait(asyncio.sleep(10.0))
        answer = ctx.wait(ctx.ask("counter", b""))
        ctx.reply(b"%d %d" % (answer.payload[0], ctx.random.randrange(1_000_000)))
        return b"late"


class Chance(Actor):
    """Tells what time and what chance it sees."""

    async def receive(self, message: Message, ctx: Context) -> bytes:
        seen = (ctx.now(), time.time(), ctx.random.random(), random.random(), os.urandom(4).hex())
        return repr((*seen, secrets.token_hex(4), await asyncio.to_thread(time.monotonic))).encode()


async def chances(network: Network) -> list[bytes]:
    actors = {"counter": Counter, "blocking": Blocking, "chance": Chance}
    await network.node("a", actors=actors)
    async with await network.client("a") as client:
        asked = [
            client.ask(address, b"", timeout_seconds=60.0)
            for address in ("blocking", "chance", "blocking")
        ]
        return [answer.payload for answer in await asyncio.gather(*asked)]


def test_time_chance_and_threads_are_those_of_the_run() -> None:
    def once(seed: int) -> tuple[list[bytes], str]:
        with Network(seed=seed) as network:
            found = network.run(chances(network))
            assert 20.0 < network.now < 21.0, "each blocking call takes ten seconds"
            return found, network.trace_hash

    assert once(1) == once(1) != once(2)
    now, wall, *_, monotonic = literal_eval(once(1)[0][1].decode())
    assert EPOCH_MS / 1_000 <= now == wall < EPOCH_MS / 1_000 + 1.0
    assert 0.0 < monotonic < 1.0


def test_a_kill_ends_an_actor_that_blocks() -> None:
    ended: list[str] = []

    def hang(message: Message, ctx: Context) -> None:
        try:
            ctx.wait(asyncio.sleep(1_000.0))
        finally:
            ended.append(ctx.address)

    async def scenario(network: Network) -> None:
        async def on_start(node: Node) -> None:
            await node.spawn(hang, address="hang", blocking=True)

        await network.node("a", on_start=on_start)
        async with await network.client("a") as client:
            await client.send("hang", b"")
            await asyncio.sleep(1.0)
            network.kill("a")
            assert ended == ["hang"]
            network.restart("a")
            assert (await client.ask("echo", b"there again")).payload == b"there again"

    check(scenario, range(1))


def sleep() -> None:
    time.sleep(0.001)


def begin_thread() -> None:
    threading.Thread(target=print).start()


def open_socket() -> None:
    socket.create_connection(("127.0.0.1", 9))


def listen() -> None:
    socket.create_server(("127.0.0.1", 0))


@pytest.mark.parametrize(
    ("function", "instead"),
    [
        (sleep, "asyncio.sleep"),
        (begin_thread, "blocking"),
        (open_socket, "client of rillnode"),
        (listen, "behind an address"),
    ],
)
@pytest.mark.parametrize("blocking", [False, True])
def test_what_would_leave_the_simulation_is_refused(
    function: Callable[[], None], instead: str, blocking: bool
) -> None:
    def receive(message: Message, ctx: Context) -> None:
        function()

    async def scenario(network: Network) -> None:
        async def on_start(node: Node) -> None:
            await node.spawn(receive, address="app", blocking=blocking)

        await network.node("a", on_start=on_start)
        async with await network.client("a") as client:
            with pytest.raises(RequestError, match="failed at this"):
                await client.ask("app", b"")

    (one,) = run_once(scenario, 0).violations
    assert one.rule == "not-simulated"
    assert "on a, which is simulated" in one.text
    assert instead in one.text


def test_others_sleep_and_start_threads_while_a_world_runs() -> None:
    done: list[float] = []
    began = threading.Event()

    def other() -> None:
        began.wait()
        time.sleep(0.001)
        inner = threading.Thread(target=lambda: done.append(time.monotonic()))
        inner.start()
        inner.join()

    async def scenario() -> None:
        began.set()
        for _ in range(10_000):
            if done:
                return
            await asyncio.sleep(1.0)
            await asyncio.to_thread(thread.join, 0.01)

    thread = threading.Thread(target=other)
    thread.start()
    with Network() as network:
        network.run(scenario())
    thread.join()
    assert done


# The command line -----------------------------------------------------------------------------


def sim(*args: object, tty: bool = False) -> tuple[int, str, str]:
    screen = Screen(tty=tty)
    code = main(["sim", "run", *map(str, args)], screen.terminal)
    return code, screen.out, screen.err


def test_the_order_service_loses_an_order_and_the_mended_one_does_not(tmp_path: Path) -> None:
    target, report = f"{ORDER_SERVICE}:scenario", tmp_path / "report.html"
    code, out, err = sim(target, "--seeds", "32..33", "--html", report)
    documents = [json.loads(line) for line in out.splitlines()]
    assert [one["seed"] for one in documents] == [32, 33]
    assert code == 1
    broken = [one for one in documents if one["violations"]][-1]
    assert "sold, and forgotten" in broken["violations"][0]["text"]
    assert f"next: {broken['repeat']}" in err
    assert broken["repeat"].split()[:4] == ["rillnode", "sim", "run", target]
    again = [sim(*broken["repeat"].split()[3:]) for _ in range(2)]
    assert again[0] == again[1]
    assert json.loads(again[0][1]) == broken
    assert "sold, and forgotten" in report.read_text("utf-8")
    numbers = ("--seed", broken["seed"])
    assert sim(f"{ORDER_SERVICE}:mended", *numbers)[0] == 0


def test_people_get_a_summary(tmp_path: Path) -> None:
    file = tmp_path / "app.py"
    file.write_text("async def scenario(network):\n    await network.node('a')\n")
    code, out, _ = sim(f"{file}:scenario", "--seeds", "0..2", tty=True)
    assert code == 0
    assert "failed_seeds" in out


@pytest.mark.parametrize(
    ("source", "name", "code"),
    [
        ("scenario = 1", "scenario", "scenario.function"),
        ("def scenario(network): ...", "scenario", "scenario.function"),
        ("import no_such_module_at_all", "scenario", "scenario.file"),
        (None, "scenario", "scenario.file"),
    ],
)
def test_what_is_no_scenario_is_refused(
    tmp_path: Path, source: str | None, name: str, code: str
) -> None:
    file = tmp_path / "other_app.py"
    if source is not None:
        file.write_text(source)
    returned, _, err = sim(f"{file}:{name}")
    assert returned == 2
    assert code in err
