"""The processes of `asks`: who asks, who answers, and a node between them.

    python -m benchmarks.asks_load JOB

A job is JSON; its result is one line of JSON.
"""

import asyncio
import gc
import json
import os
import signal
import ssl
import sys
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import msgspec

import rillnode
from rillnode.node.config import Config, GrantTable, HttpListener, NoiseListener

try:
    from uvloop import new_event_loop
except ImportError:
    from asyncio import new_event_loop

PAYLOAD: Final = b"x" * 100
_WARM_UP: Final = 0.25
_IDENTITY: Final = rillnode.Identity.from_seed(b"who asks".ljust(32, b"."))
_ANSWER_SECONDS: Final = 30.0
_TOGETHER: Final = 256
"""Actors made at one time."""

Result = dict[str, float]


class Job(msgspec.Struct, kw_only=True, tag=True):
    """The job of a process."""

    def encoded(self) -> bytes:
        """As the command line has it."""
        return msgspec.json.encode(self)


class Ask(Job):
    """Ask for so long, with so many questions open at a time; `reach` says whom."""

    system: str
    window: int
    seconds: float
    reach: dict[str, str]


class Count(Job):
    """Make so many actors, and leave them alone."""

    system: str
    actors: int


class Part(Job):
    """Answer until SIGTERM, as the part `kind` of a system."""

    kind: str
    reach: dict[str, str]


Run = Ask | Count | Part


class Timer:
    """Latencies between the end of the warm-up and the end of a run."""

    def __init__(self, seconds: float) -> None:
        self._begin = time.perf_counter() + seconds * _WARM_UP
        self._end = self._begin + seconds
        self._latencies: list[float] = []

    def running(self) -> bool:
        """Whether there is still time."""
        return time.perf_counter() < self._end

    def answered(self, at: float) -> None:
        """Count an answer to a question that was asked then."""
        now = time.perf_counter()
        if self._begin <= now < self._end:
            self._latencies.append(now - at)

    def result(self) -> Result:
        """Rate and latencies."""
        ordered = sorted(self._latencies)
        if not ordered:
            raise SystemExit("nothing was answered in time")
        return {
            "asks_per_second": len(ordered) / (self._end - self._begin),
            "p50_ms": ordered[len(ordered) // 2] * 1e3,
            "p99_ms": ordered[len(ordered) * 99 // 100] * 1e3,
        }


async def asked(job: Ask, ask: Callable[[], Awaitable[object]]) -> Result:
    """As many callers as the window is wide, each of which waits for its answer."""
    timer = Timer(job.seconds)

    async def caller() -> None:
        while timer.running():
            at = time.perf_counter()
            await ask()
            timer.answered(at)

    await asyncio.gather(*(caller() for _ in range(job.window)))
    return timer.result()


def asked_in_order(job: Ask, ask: Callable[[], Any], wait: Callable[[Any], object]) -> Result:
    """For those whose answers are futures that block: the oldest is waited for."""
    timer = Timer(job.seconds)
    opened: deque[tuple[Any, float]] = deque()
    while timer.running():
        while len(opened) < job.window:
            opened.append((ask(), time.perf_counter()))
        future, at = opened.popleft()
        wait(future)
        timer.answered(at)
    for future, _ in opened:
        wait(future)
    return timer.result()


# rillnode --------------------------------------------------------------------------------------


class Echo(rillnode.Actor):
    """Answers with what it is asked."""

    def receive(self, message: rillnode.Message, ctx: rillnode.Context) -> bytes:
        """A plain method, for there is nothing to wait for."""
        return message.payload


def config_of(directory: str, **changes: Any) -> Config:
    """Of a node that nobody else uses."""
    off: dict[str, Any] = {
        "noise": NoiseListener(enabled=False),
        "http": HttpListener(enabled=False),
    }
    return Config(name="asks", data_dir=Path(directory) / "data", **(off | changes))


async def node(part: Part) -> None:
    """A node with an actor, to which its client may send, and serve beside it."""
    who = f"noise:{_IDENTITY.public_hex}"
    config = config_of(
        part.reach["directory"],
        noise=NoiseListener(listen="127.0.0.1:0"),
        grants=(GrantTable(who=who, addresses="*", may=("send", "serve")),),
    )
    async with rillnode.Node(config) as running:
        await running.spawn(Echo, address="actor", allow=[who])
        url = f"noise://{running.addresses()['noise']}"
        await ready(part, {"url": url, "identity": running.identity})


async def served(part: Part) -> None:
    """A client that answers at an address."""
    async with (
        await connected(part.reach) as client,
        await client.serve("served", lambda message: message.payload),
    ):
        await ready(part, {})


async def connected(reach: dict[str, str]) -> rillnode.Client:
    """A client over the node's encrypted link."""
    return await rillnode.connect(reach["url"], identity=_IDENTITY, node_identity=reach["identity"])


async def ask_rillnode(job: Ask) -> Result:
    """Over a link."""
    async with await connected(job.reach) as client:
        address = job.reach["address"]
        return await asked(job, lambda: client.ask(address, PAYLOAD))


async def ask_in_process(job: Ask) -> Result:
    """Of the node's own application."""
    async with rillnode.Node(config_of(job.reach["directory"])) as running:
        ref = await running.spawn(Echo, address="actor")
        return await asked(job, lambda: ref.ask(PAYLOAD))


class Resting(Echo):
    """Would end when nobody has asked it for so long, and be made again when somebody does."""

    idle_seconds = 3_600.0

    def __init__(self, name: str) -> None:
        self.name = name


async def count_rillnode(job: Count) -> Result:
    """Virtual actors, made by a message each."""
    with tempfile.TemporaryDirectory() as directory:
        async with rillnode.Node(config_of(directory)) as running:
            running.on_demand("twin/", Resting)
            ask = running.client.ask
            await ask("twin/0", PAYLOAD)  # what the first one of all makes is not an actor's
            before, begun = rss_bytes(), time.perf_counter()
            for start in range(1, job.actors, _TOGETHER):
                some = range(start, min(start + _TOGETHER, job.actors))
                await asyncio.gather(*(ask(f"twin/{number}", PAYLOAD) for number in some))
            seconds = time.perf_counter() - begun
            taken = (rss_bytes() - before) / job.actors
    return {"made_per_second": job.actors / seconds, "idle_bytes": taken}


# NATS ------------------------------------------------------------------------------------------


async def nats_client(reach: dict[str, str]) -> Any:
    """NATS's own Python client, over TLS."""
    from nats.aio.client import Client

    client = Client()
    context = ssl.create_default_context(cafile=reach["ca_file"])
    await client.connect(f"tls://127.0.0.1:{reach['port']}", tls=context)
    return client


async def nats_answers(part: Part) -> None:
    """A subscriber that answers."""
    client = await nats_client(part.reach)

    async def answer(message: Any) -> None:
        await message.respond(message.data)

    await client.subscribe("echo", cb=answer)
    await client.flush()
    await ready(part, {})
    await client.close()


async def ask_nats(job: Ask) -> Result:
    """Request and reply."""
    client = await nats_client(job.reach)
    try:
        return await asked(job, lambda: client.request("echo", PAYLOAD, timeout=_ANSWER_SECONDS))
    finally:
        await client.close()


# Ray and pykka ---------------------------------------------------------------------------------


def ask_ray(job: Ask) -> Result:
    """Calls of an actor, which is a process; its links are not encrypted."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray: Any = import_module("ray")

    class RayEcho:
        def receive(self, payload: bytes) -> bytes:
            return payload

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    try:
        actor: Any = ray.remote(RayEcho).remote()
        ray.get(actor.receive.remote(PAYLOAD))
        return asked_in_order(job, lambda: actor.receive.remote(PAYLOAD), ray.get)
    finally:
        ray.shutdown()


def pykka_echo() -> Any:
    """The class of pykka's actor."""
    base: Any = import_module("pykka").ThreadingActor

    class PykkaEcho(base):  # type: ignore[misc]
        def on_receive(self, message: Any) -> Any:
            return message

    return PykkaEcho


def ask_pykka(job: Ask) -> Result:
    """An actor on a thread of this process."""
    ref = pykka_echo().start()
    try:
        return asked_in_order(
            job,
            lambda: ref.ask(PAYLOAD, block=False),
            lambda future: future.get(timeout=_ANSWER_SECONDS),
        )
    finally:
        ref.stop()


def count_pykka(job: Count) -> Result:
    """Actors that have answered once."""
    kind = pykka_echo()
    before, begun = rss_bytes(), time.perf_counter()
    refs = [kind.start() for _ in range(job.actors)]
    for ref in refs:
        ref.ask(PAYLOAD)
    seconds = time.perf_counter() - begun
    taken = (rss_bytes() - before) / job.actors
    for ref in refs:
        ref.stop()
    return {"made_per_second": job.actors / seconds, "idle_bytes": taken}


# All -------------------------------------------------------------------------------------------


async def ready(part: Part, reach: dict[str, str]) -> None:
    """Say that it can be asked, and wait for SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    file = Path(part.reach["ready"])
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(reach))
    partial.rename(file)
    await stop.wait()


def rss_bytes() -> int:
    """Resident memory of this process now."""
    gc.collect()
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Do the job of the command line."""
    job: Run = msgspec.json.decode(sys.argv[1], type=Run)
    blocking: dict[str, Callable[[Any], Result]] = {
        "ray": ask_ray, "pykka": ask_pykka, "count pykka": count_pykka,
    }  # fmt: skip
    awaited: dict[str, Callable[[Any], Awaitable[Result | None]]] = {
        "rillnode": ask_rillnode, "in process": ask_in_process, "nats": ask_nats,
        "count rillnode": count_rillnode,
        "part node": node, "part rillnode": served, "part nats": nats_answers,
    }  # fmt: skip
    match job:
        case Ask():
            name = job.system
        case Count():
            name = f"count {job.system}"
        case Part():
            name = f"part {job.kind}"
    if name in blocking:
        print(json.dumps(blocking[name](job)))
        return

    async def run() -> Result | None:
        return await awaited[name](job)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        print(json.dumps(runner.run(run())))


if __name__ == "__main__":
    main()
