"""Parts of every test of a plug-in: nodes that have it, their users, what a process holds."""

import asyncio
import gc
import os
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import msgspec

from rillnode.actors.engine.worker import Worker
from rillnode.codecs.entries import Entry
from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.keys import Identity
from rillnode.node.client.client import Client, connect
from rillnode.node.config import Config, GrantTable, HttpListener, NoiseListener, PlugInTable
from rillnode.node.plugin import PlugIn
from rillnode.node.plugins import plug_in_of
from rillnode.node.runtime import Node
from rillnode.node.testing.contract import base
from rillnode.node.testing.contract.base import Contract, until

USER: Final = Identity.from_seed(b"a user of the contract".ljust(32, b"."))
"""Whose clients stand beside those of the plug-in."""

TRY_SECONDS: Final = 5.0
"""How long one use may take, of several, of a node that something has failed in."""

LOST_SECONDS: Final = 1.0
"""How long what has lost its message to a planted failure may still be in use."""

KERNEL_LISTENERS: Final = frozenset(("noise", "http"))

_PAGE: Final = 1_000

Stored = dict[tuple[str, int], dict[int, bytes]]
"""Entries by stream and partition, and by index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """A running node, in this process or in another, as its users have it.

    Attributes:
        addresses: its listeners by name, as `host:port`.
        facts: what plug-ins tell of themselves, by name: `PlugIn.facts`.
        identity: its Ed25519 identity, hex.
        client: a native client that may do everything.
    """

    addresses: Mapping[str, str]
    facts: Mapping[str, str]
    identity: str
    client: Client


class PlugInSuite(Contract):
    """A subclass describes its plug-in by these attributes and methods; see `PlugInContract`."""

    seconds_max: ClassVar[float] = 300.0

    name: ClassVar[str]
    listeners: ClassVar[Sequence[str]] = ()
    actors: ClassVar[Sequence[type[Worker]]] = ()
    scenario: ClassVar[str] = ""
    wrong: ClassVar[Sequence[tuple[str, str]]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if not hasattr(cls, "name"):
            return  # it is a part of the suite
        for part in cls.__mro__:
            for name, test in vars(part).items():
                needed = getattr(test, "needed", "")
                if needed and not getattr(cls, needed) and getattr(cls, name) is test:
                    setattr(cls, name, None)  # what is none, pytest does not collect

    def tables(self, directory: Path) -> Sequence[PlugInTable]:
        """Valid tables that ask for the plug-in.

        Args:
            directory: for files of its own; it is the test's, and empty at first. A second call
                for the same directory returns the same.

        Returns:
            At least one. They listen on any free port of loopback.
        """
        raise NotImplementedError

    async def use(self, used: Used) -> None:
        """Do one useful thing as the plug-in's users do, and check what came of it.

        That is: connect to its listener with a client of its own (not `used.client`), have
        something stored or answered, check by what the node then has, and take the client down
        again, also when cancelled. It is done many times on one node, one after the other, and on
        nodes that were started anew on a store; so it uses the same streams each time, and counts
        on none to be empty. Meanwhile others may send what it has sent before.

        Raises:
            Exception: what is wrong.
        """
        raise NotImplementedError

    def config(self, directory: Path) -> Config:
        """The configuration of a node that has the plug-in; may be overridden, not its name."""
        return Config(
            name="contract",
            data_dir=directory / "data",
            noise=NoiseListener(listen="127.0.0.1:0"),
            http=HttpListener(enabled=False),
            grants=(GrantTable(who="*", streams="*", addresses="*", may=("admin",)),),
            tables=self.tables(directory),
        )

    @property
    def _kind(self) -> type[PlugIn]:
        """The class of the plug-in."""
        return plug_in_of(self.name)

    def _owns(self, module: str) -> bool:
        """Whether a module is the plug-in's: of its package, or of its rooms in rillnode."""
        package, *rest = module.split(".")
        if package != self._kind.__module__.partition(".")[0]:
            return False
        return package != "rillnode" or self.name in rest

    def _plug_in(self, node: Node) -> PlugIn:
        """The plug-in of a node."""
        found = node.observed.plug_in(self._kind)
        assert found is not None, f"the node's tables do not ask for {self.name}"
        return found

    def _node(self, directory: Path, **parts: Any) -> Node:
        """A node that has the plug-in, to be started."""
        directory.mkdir(parents=True, exist_ok=True)
        return Node(self.config(directory), **parts)


def without_tables(config: Config) -> Config:
    """A configuration without the tables of plug-ins."""
    return msgspec.structs.replace(config, tables=())


def needs(ability: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Have a test collected only for plug-ins that declare an ability: an attribute's name."""

    def mark(test: Callable[..., Any]) -> Callable[..., Any]:
        setattr(test, "needed", ability)  # noqa: B010
        return test

    return mark


@asynccontextmanager
async def used(node: Node) -> AsyncGenerator[Used]:
    """A running node of this process, as its users have it."""
    async with await user_of(node.addresses()["noise"], node.identity) as client:
        yield Used(
            addresses=node.addresses(), facts=node.facts, identity=node.identity, client=client
        )


async def user_of(address: str, identity: str) -> Client:
    """A native client that may do everything."""
    return await connect(f"noise://{address}", identity=USER, node_identity=identity)


@asynccontextmanager
async def bystander(client: Client) -> AsyncGenerator[Callable[[], Awaitable[None]]]:
    """A stream of somebody else's, followed by him.

    Yields:
        A function that pushes an entry, and waits until it has come.
    """
    stream = await client.stream("contract/bystander")
    end = (await client.describe(stream.name)).partitions[0].next_index
    async with stream.batches(start=end) as batches:
        count = 0

        async def goes_on() -> None:
            nonlocal count
            count += 1
            data = b"%d" % count
            index = await stream.push(data)
            async with asyncio.timeout(base.SOON_SECONDS):
                (entry,) = await anext(batches)
            assert (entry.index, entry.data) == (index, data)

        yield goes_on


async def stored(client: Client) -> Stored:
    """Everything that streams have."""
    found: Stored = {}
    for info in await client.streams():
        stream = await client.stream(info.name)
        for partition in range(len(info.partitions)):
            entries: list[Entry] = []
            page = await stream.pull(0, _PAGE, partition=partition)
            while page:
                entries += page
                page = await stream.pull(page[-1].index + 1, _PAGE, partition=partition)
            found[info.name, partition] = {one.index: bytes(one.data) for one in entries}
    return found


def check_kept(before: Stored, after: Stored) -> None:
    """See that a node still has all that it had, but for what was trimmed since."""
    for place, entries in before.items():
        assert place in after, f"the stream {place[0]!r} is gone"
        first = min(after[place], default=0)
        lost = {index for index, data in entries.items() if after[place].get(index) != data}
        assert all(index < first for index in lost), f"entries of {place} are lost: {lost}"


async def until_ready(node: Node) -> None:
    """Wait until a node says that it is ready.

    Raises:
        AssertionError: it does not.
    """

    def wrong() -> list[str]:
        return [f"{one.name}: {one.reason}" for one in node.checks() if not one.ok]

    await until(lambda: not wrong(), lambda: f"the node is not ready: {wrong()}")


async def works_again(use: Callable[[Used], Awaitable[None]], node: Used) -> None:
    """Use a node until that works, as what was lost may have to be made anew.

    Raises:
        Exception: what is still wrong after a while.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + base.SOON_SECONDS
    while True:
        try:
            async with asyncio.timeout(min(TRY_SECONDS, base.SOON_SECONDS / 4)):
                await use(node)
        except (RillnodeError, OSError, EOFError, TimeoutError, AssertionError):
            if loop.time() > deadline:
                raise
            await asyncio.sleep(0.05)
        else:
            return


def tasks() -> set[str]:
    """The tasks of this loop, but for the one that asks."""
    return {str(one) for one in asyncio.all_tasks() - {asyncio.current_task()}}


async def check_no_tasks() -> None:
    """See that a node which has stopped has left no task.

    Raises:
        AssertionError: it has left some.
    """
    await until(lambda: not tasks(), lambda: f"tasks are left: {tasks()}")


class Held:
    """Counts what this process holds: threads, descriptors of files and sockets, and processes."""

    def __init__(self) -> None:
        self._before = _held()

    def check(self) -> None:
        """See that it holds no more than before.

        Raises:
            AssertionError: it still does after a while.
        """
        deadline = time.monotonic() + base.SOON_SECONDS
        while more := _held() - self._before:
            assert time.monotonic() < deadline, f"left behind: {more}"
            gc.collect()  # what nobody refers to is closed
            time.sleep(0.05)


def _held() -> Counter[str]:
    found = Counter(f"the thread {one.name}" for one in threading.enumerate())
    for name in os.listdir("/dev/fd") if Path("/dev/fd").is_dir() else ():
        try:
            target = os.readlink(f"/dev/fd/{name}")
        except OSError:
            continue  # it was that of this list
        # Numbers of sockets and pipes are others each time.
        found[f"a descriptor of {target.partition(':[')[0]}"] += 1
    for children in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # its thread has ended meanwhile
            found["a process"] += len(children.read_text().split())
    return found
