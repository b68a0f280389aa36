"""A suite for clients of a node, of any protocol: what was confirmed, and what ends how.

A node listens behind a proxy, which cuts links at any byte; it is stopped, started and killed.
"""

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import ClassVar, Final, Generic, ParamSpec, TypeVar, cast

import pytest

from rillnode.actors.core.access import VERBS
from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.keys import Identity
from rillnode.node.config import load_config
from rillnode.node.keys.files import write_key
from rillnode.node.runtime import Node
from rillnode.node.testing.contract.base import Contract, until
from rillnode.node.testing.contract.nodes import CLIENT
from rillnode.node.testing.contract.ports import free_port
from rillnode.node.testing.contract.proxy import Proxy

STREAM: Final = "contract"
"""The stream of one partition that all is about."""

START_SECONDS: Final = 120.0
OUTCOME_SECONDS: Final = 30.0

_CUTS_MAX: Final = 16
"""How often links are cut before something more is confirmed: where a machine is slow, none might
live for as long as a push takes."""

_NODE: Final = Identity.from_seed(b"a node of the contract".ljust(32, b"."))

C = TypeVar("C")
T = TypeVar("T")
P = ParamSpec("P")


def item(number: int, size: int = 0) -> bytes:
    """The entry of a number: JSON as short as it can be, filled up to about a size in bytes."""
    text = json.dumps({"n": number, "pad": "x" * size}, separators=(",", ":"))
    return text.encode()


def number_of(data: bytes) -> int:
    """The number of an entry.

    Raises:
        AssertionError: it is not what was pushed.
    """
    found = json.loads(data)
    assert found.keys() == {"n", "pad"}
    assert set(found["pad"]) <= {"x"}
    return int(found["n"])


@dataclass(frozen=True)
class Place:
    """The address of a node, and the key to use it with.

    Attributes:
        address: of the listener, as `127.0.0.1:PORT`.
        node_identity: the node's identity, hex.
        identity: a key that may do everything to streams at the node.
        directory: an empty one, for what a client keeps.
        noise: of the node's `noise` listener: `rillnode.connect` reads there what a client that
            only pushes cannot.
    """

    address: str
    node_identity: str
    identity: Identity
    directory: Path
    noise: str


class ClientSite:
    """A node that keeps its data and its place over stops and kills, and a proxy before it.

    Args:
        directory: for all of it.
        listener: the table of its listener.
        settings: the text of a configuration that follows that table's address.

    Attributes:
        address: where the listener is.
        proxy: leads there.
        node: the node, while it runs in this process.
    """

    def __init__(self, directory: Path, listener: str, settings: str) -> None:
        self._directory = directory
        self.address = f"127.0.0.1:{free_port()}"
        self._noise = self.address if listener == "noise" else f"127.0.0.1:{free_port()}"
        self._config = directory / "node.toml"
        self._ports = directory / "ports.json"
        self._process: subprocess.Popen[bytes] | None = None
        self.proxy = Proxy(self.address)
        self.node: Node | None = None
        write_key(directory / "node.key", _NODE)
        noise = "" if listener == "noise" else f'[noise]\nlisten = "{self._noise}"\n'
        self._config.write_text(
            f'name = "contract"\ndata_dir = "{directory / "data"}"\n'
            f'[identity]\nkey_file = "{directory / "node.key"}"\n'
            f"[http]\nenabled = false\n{noise}"
            f'[[grant]]\nwho = "noise:{CLIENT.public_hex}"\nstreams = "*"\n'
            f"may = {json.dumps(VERBS)}\n"
            f'[{listener}]\nlisten = "{self.address}"\n{settings}'
        )

    def place(self, address: str | None = None) -> Place:
        """Where the node is found: through the proxy, or elsewhere."""
        kept = self._directory / f"client-{len(list(self._directory.iterdir()))}"
        kept.mkdir()
        address = address or self.proxy.address
        return Place(address, _NODE.public_hex, CLIENT, kept, self._noise)

    async def start(self) -> None:
        """Start the node in this process."""
        self.node = Node(load_config(self._config))
        await self.node.start()

    async def stop(self) -> None:
        """Stop it in order; harmless when repeated."""
        node, self.node = self.node, None
        if node is not None:
            await node.stop()

    async def start_process(self) -> None:
        """Start the node in a process of its own, which can be killed."""
        self._ports.unlink(missing_ok=True)
        arguments = ("run", "-c", str(self._config), "--ports-file", str(self._ports))
        with (self._directory / "node.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rillnode", *arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._directory,
            )  # fmt: skip
        async with asyncio.timeout(START_SECONDS):
            while not self._ports.exists():
                assert self._process.poll() is None, (self._directory / "node.log").read_text()
                await asyncio.sleep(0.02)

    def kill(self) -> None:
        """End the process as a crash would; harmless when repeated."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait(START_SECONDS)


class ClientContract(Contract, Generic[C]):
    """The promises of a client that pushes and reads; abilities of some have suites below.

    Attributes:
        listener: the table of the node's listener that it connects to.
        settings: text of the node's configuration that follows in this table: its settings,
            then further tables, such as grants.
        reconnects: whether it makes a lost link again by itself.
        repeats: whether it is a `RepeatingClientContract`.
        burst: how many entries of how many bytes are pushed at once, to be more than any buffer.
    """

    seconds_max: ClassVar[float] = 240.0
    listener: ClassVar[str] = "noise"
    settings: ClassVar[str] = ""
    reconnects: ClassVar[bool] = True
    repeats: ClassVar[bool] = False
    burst: ClassVar[tuple[int, int]] = (128, 65_536)

    async def connect(self, place: Place) -> C:
        """A client that is ready to push to the stream `contract`, which it makes if need be.

        Raises:
            RillnodeError: the node is not reached, with a code that says so.
        """
        raise NotImplementedError

    async def push(self, client: C, data: bytes) -> None:
        """Push an entry, which is JSON text as short as it can be; return once it is confirmed.

        Raises:
            RillnodeError: it is not confirmed: it may be stored or not.
        """
        raise NotImplementedError

    async def read(self, client: C, first: int) -> list[bytes]:
        """All entries from an index on, in order.

        Raises:
            RillnodeError: they cannot be read now.
        """
        raise NotImplementedError

    async def close(self, client: C) -> None:
        """End it; harmless when repeated, and while calls still wait.

        It waits for a node that is away for a second or so at most.
        """
        raise NotImplementedError

    # What the tests are made of --------------------------------------------------------------

    @staticmethod
    async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call that blocks, on a thread of its own: a client's may all wait at a time.

        (`asyncio.to_thread` has a few, which the node of a test needs, too.)
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if not done.done():
                if error is None:
                    done.set_result(cast(T, result))
                else:
                    done.set_exception(error)

        def run() -> None:
            result, error = None, None
            try:
                result = call(*args, **kwargs)
            except BaseException as raised:
                error = raised
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(settle, result, error)

        threading.Thread(target=run, daemon=True).start()
        return await done

    @asynccontextmanager
    async def site(self, directory: Path) -> AsyncGenerator[ClientSite]:
        """A proxy, and a node that is not started yet."""
        site = ClientSite(directory, self.listener, self.settings)
        async with site.proxy:
            try:
                yield site
            finally:
                site.kill()
                await site.stop()

    @asynccontextmanager
    async def connected(self, site: ClientSite, address: str | None = None) -> AsyncGenerator[C]:
        """A client, through the proxy unless it is told another address; closed at the end."""
        client = await _in_time(self.connect(site.place(address)))
        try:
            yield client
        finally:
            await _in_time(self.close(client))

    async def _numbers(self, site: ClientSite, first: int = 0) -> list[int]:
        """What is stored, as a client that has done nothing else reads it."""
        async with self.connected(site) as client:
            return [number_of(data) for data in await _in_time(self.read(client, first))]

    def _hold(self, pushed: int, confirmed: Sequence[int], stored: Sequence[int]) -> None:
        """What is stored after cuts and kills is what must be.

        Args:
            pushed: so many numbers were pushed, one after the other.
            confirmed: those of them that were confirmed.
            stored: what there is now.
        """
        assert set(stored) <= set(range(pushed)), "something else is stored than was pushed"
        assert set(confirmed) <= set(stored), "what was confirmed is lost"
        firsts = [stored.index(number) for number in confirmed]
        assert firsts == sorted(firsts), "what was confirmed is stored in another order"
        if self.repeats:
            assert max(Counter(stored).values()) == 1, "what was sent again is stored twice"

    async def _push_on(
        self, site: ClientSite, count: int, confirmed: list[int], begun: asyncio.Event
    ) -> None:
        """Push numbers one after the other, and note which are confirmed."""
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(self.connected(site))
            begun.set()
            for number in range(count):
                if await _outcome(self.push(client, item(number))) is None:
                    confirmed.append(number)
                elif not self.reconnects:
                    await stack.aclose()
                    client = await self._again(site, stack)

    async def _again(self, site: ClientSite, stack: AsyncExitStack) -> C:
        """Another client, as soon as the node is reached."""
        found: list[C] = []

        async def is_reached() -> bool:
            with suppress(RillnodeError):
                found.append(await stack.enter_async_context(self.connected(site)))
            return bool(found)

        await until(is_reached, "the node is not reached again")
        return found[0]

    # Promises --------------------------------------------------------------------------------

    async def test_what_is_pushed_is_read_in_order_from_any_index(self, tmp_path: Path) -> None:
        async with self.site(tmp_path) as site:
            await site.start()
            async with self.connected(site) as client:
                for number in range(20):
                    await self.push(client, item(number))
                for first in (0, 7, 19):
                    read = [number_of(data) for data in await self.read(client, first)]
                    assert read == list(range(first, 20))
                assert await self.read(client, 20) == []
            assert await self._numbers(site, 3) == list(range(3, 20))

    async def test_what_was_confirmed_is_there_after_the_node_was_killed(
        self, tmp_path: Path
    ) -> None:
        confirmed: list[int] = []
        begun = asyncio.Event()
        async with self.site(tmp_path) as site:
            await site.start_process()
            pushing = asyncio.ensure_future(self._push_on(site, 30, confirmed, begun))
            await until(lambda: len(confirmed) >= 10 or pushing.done(), "nothing is confirmed")
            site.kill()
            await site.start()
            await pushing
            assert not self.repeats or confirmed == list(range(30))
            self._hold(30, confirmed, await self._numbers(site))

    async def test_each_push_has_one_outcome_however_its_link_is_cut(self, tmp_path: Path) -> None:
        chance = Random(7)
        confirmed: list[int] = []
        begun = asyncio.Event()
        async with self.site(tmp_path) as site:
            await site.start()
            pushing = asyncio.ensure_future(self._push_on(site, 60, confirmed, begun))
            await begun.wait()
            cuts = seen = 0
            while not pushing.done():
                if len(confirmed) > seen:
                    cuts, seen = 0, len(confirmed)
                if cuts < _CUTS_MAX:
                    cuts += 1
                    site.proxy.cut_after(chance.choice((1, 50, 300, 1_000, 3_000)))
                await asyncio.wait((pushing,), timeout=0.1)
            site.proxy.cut_after(None)
            await pushing
            assert not self.repeats or confirmed == list(range(60))
            self._hold(60, confirmed, await self._numbers(site))

    async def test_many_pushes_at_once_are_held_back_and_none_is_lost(self, tmp_path: Path) -> None:
        count, size = self.burst
        async with self.site(tmp_path) as site:
            await site.start()
            async with self.connected(site) as client:
                pushes = (self.push(client, item(number, size)) for number in range(count))
                await asyncio.gather(*pushes)
            assert sorted(await self._numbers(site)) == list(range(count))

    async def test_closing_ends_what_waits_with_a_code(self, tmp_path: Path) -> None:
        async with self.site(tmp_path) as site:
            await site.start()
            async with self.connected(site) as client:
                await self.push(client, item(0))
                await site.proxy.take_away()
                waiting = [
                    asyncio.ensure_future(_outcome(self.push(client, item(number))))
                    for number in range(1, 4)
                ]
                await asyncio.sleep(0.05)
                await _in_time(self.close(client))
                for error in await asyncio.gather(*waiting):
                    assert error is not None, "a push is confirmed without a node"
                    assert error.code
            await site.proxy.bring_back()
            self._hold(4, [0], await self._numbers(site))

    async def test_a_closed_client_refuses_with_a_code(self, tmp_path: Path) -> None:
        async with self.site(tmp_path) as site:
            await site.start()
            async with self.connected(site) as client:
                await self.push(client, item(0))
                await self.close(client)
                await self.close(client)
                for ask in (partial(self.push, client, item(1)), partial(self.read, client, 0)):
                    with pytest.raises(RillnodeError) as refused:
                        await _in_time(ask())
                    assert refused.value.code
            assert await self._numbers(site) == [0]

    async def test_a_closed_client_leaves_no_task_thread_or_connection(
        self, tmp_path: Path
    ) -> None:
        tasks, threads = asyncio.all_tasks(), set(threading.enumerate())
        async with self.site(tmp_path) as site:
            await site.start()
            async with self.connected(site) as client:
                await self.push(client, item(0))
                await self.read(client, 0)
                site.proxy.cut()
                await _outcome(self.push(client, item(1)))
            await until(lambda: site.proxy.connections == 0, "a connection is left")
        await asyncio.get_running_loop().shutdown_default_executor()  # the node's
        await until(lambda: asyncio.all_tasks() <= tasks, "a task is left")
        await until(lambda: set(threading.enumerate()) <= threads, "a thread is left")

    async def test_a_node_that_is_not_there_is_told_with_a_code(self, tmp_path: Path) -> None:
        async with self.site(tmp_path) as site:
            nowhere = site.place(f"127.0.0.1:{free_port()}")
            with pytest.raises(RillnodeError) as unreached:
                await _in_time(self.connect(nowhere))
            assert unreached.value.code


class CancellableClientContract(ClientContract[C]):
    """The further promises of a client whose calls may be cancelled."""

    async def test_cancelled_calls_leave_the_client_usable(self, tmp_path: Path) -> None:
        async with self.site(tmp_path) as site:
            await site.start()
            confirmed: list[int] = []
            async with self.connected(site) as client:
                for turns in range(12):
                    data = item(2 * turns)
                    for ask in (partial(self.push, client, data), partial(self.read, client, 0)):
                        task = asyncio.ensure_future(ask())
                        for _ in range(turns):
                            await asyncio.sleep(0)
                        task.cancel()
                        await asyncio.wait((task,), timeout=OUTCOME_SECONDS)
                        assert task.done()
                    await _in_time(self.push(client, item(2 * turns + 1)))
                    confirmed.append(2 * turns + 1)
            stored = await self._numbers(site)
            self._hold(24, confirmed, stored)
            assert max(Counter(stored).values()) == 1, "a cancelled push is stored twice"


class RepeatingClientContract(ClientContract[C]):
    """The further promises of a client that sends again, with numbers, what had no answer.

    The tests with cut links and killed nodes ask more of it: each push is confirmed, and stored
    once.
    """

    repeats: ClassVar[bool] = True

    async def test_each_push_is_confirmed_and_stored_once_over_stops_of_the_node(
        self, tmp_path: Path
    ) -> None:
        async with self.site(tmp_path) as site:
            await site.start()
            async with self.connected(site) as client:
                pushes: list[asyncio.Future[None]] = []
                for turn in range(3):
                    for number in range(10 * turn, 10 * turn + 10):
                        pushes.append(asyncio.ensure_future(self.push(client, item(number))))
                        await asyncio.sleep(0)
                    await site.stop()
                    site.proxy.cut()
                    await site.start()
                await _in_time(asyncio.gather(*pushes))
            assert sorted(await self._numbers(site)) == list(range(30))


class FollowingClientContract(ClientContract[C]):
    """The further promises of a client that follows a stream, over lost links."""

    def follow(self, client: C) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Follow the stream from its first entry on: its entries in order, those to come too.

        Left, it reads no further.
        """
        raise NotImplementedError

    async def test_a_follower_gets_each_entry_once_and_in_order_over_cuts_and_stops(
        self, tmp_path: Path
    ) -> None:
        chance = Random(11)
        async with self.site(tmp_path) as site:
            await site.start()
            # What is pushed is lost nowhere: it is about who follows.
            async with (
                self.connected(site, site.address) as pusher,
                self.connected(site) as client,
            ):
                await self.push(pusher, item(0))
                async with self.follow(client) as entries:
                    seen = await _taken(entries, 1)
                    stored = 1
                    for turn in range(6):
                        if turn % 3 == 2:
                            await site.stop()
                            await site.start()
                        else:
                            site.proxy.cut_after(chance.choice((1, 200, 2_000)))
                        while stored < 5 * turn + 6:
                            await _outcome(self.push(pusher, item(stored)))
                            stored += 1
                    site.proxy.cut_after(None)
                    numbers = await self._numbers(site)
                    seen += await _taken(entries, len(numbers) - 1)
                assert seen == numbers

    async def test_a_slow_follower_gets_all_of_a_burst_and_holds_up_nobody(
        self, tmp_path: Path
    ) -> None:
        count, size = self.burst
        async with self.site(tmp_path) as site:
            await site.start()
            async with self.connected(site) as client:
                await self.push(client, item(0))
                async with self.follow(client) as entries:
                    assert await _taken(entries, 1) == [0]
                    for number in range(1, count):  # by the very link that nobody reads from
                        await _in_time(self.push(client, item(number, size)))
                    assert await _taken(entries, count - 1) == list(range(1, count))

    async def test_closing_the_client_ends_who_follows(self, tmp_path: Path) -> None:
        async with self.site(tmp_path) as site:
            await site.start()
            async with self.connected(site) as client:
                await self.push(client, item(0))
                async with self.follow(client) as entries:
                    assert await _taken(entries, 1) == [0]
                    waiting = asyncio.ensure_future(_end_of(entries))
                    await asyncio.sleep(0.05)
                    await _in_time(self.close(client))
                    assert (await _in_time(waiting)) != ""


async def _in_time(asked: Awaitable[T]) -> T:
    async with asyncio.timeout(OUTCOME_SECONDS):
        return await asked


async def _outcome(asked: Awaitable[object]) -> RillnodeError | None:
    """The error that something comes to; None: it was done."""
    try:
        await _in_time(asked)
    except RillnodeError as error:
        return error
    return None


async def _taken(entries: AsyncIterator[bytes], count: int) -> list[int]:
    return [number_of(await _in_time(anext(entries))) for _ in range(count)]


async def _end_of(entries: AsyncIterator[bytes]) -> str | None:
    """With what code an iteration ends that has nothing left; None: it just ends."""
    try:
        data = await anext(entries)
    except StopAsyncIteration:
        return None
    except RillnodeError as error:
        return error.code
    raise AssertionError(f"it goes on with {data!r:.80}")
