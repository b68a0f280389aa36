"""A plug-in's life: it starts with its node, ends with it, and begins again on the same store."""

import asyncio
import inspect
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from rillnode.actors.apps.addresses import check_address
from rillnode.actors.core.router import Router
from rillnode.codecs.errors import RequestError, RillnodeError
from rillnode.node.config import Listener
from rillnode.node.installed import WORDS
from rillnode.node.plugin import PlugIn, Sample
from rillnode.node.runtime import Node
from rillnode.node.testing.contract.base import until
from rillnode.node.testing.contract.plug_ins.using import (
    KERNEL_LISTENERS,
    Held,
    PlugInSuite,
    bystander,
    check_kept,
    check_no_tasks,
    needs,
    stored,
    tasks,
    until_ready,
    used,
    without_tables,
)


class Planted(RuntimeError):
    """The error that a test lets a plug-in raise."""


@contextmanager
def made_below() -> Generator[set[bytes]]:
    """Addresses that whoever registers a prefix meanwhile makes: one of each."""
    found: set[bytes] = set()
    with ExitStack() as stack:
        for name in ("register_resolver", "register_stand_in"):
            plain: Callable[..., None] = getattr(Router, name)

            def register(
                self: Router, prefix: bytes, resolve: object, plain: Callable[..., None] = plain
            ) -> None:
                found.add(prefix + b"x")
                plain(self, prefix, resolve)

            stack.enter_context(patch.object(Router, name, register))
        yield found


def unreserved(addresses: Iterable[bytes]) -> list[str]:
    """Those that an application may take."""
    found: list[str] = []
    for address in sorted(one.decode() for one in addresses):
        with suppress(RequestError):
            check_address(address)
            found.append(address)
    return found


class Life(PlugInSuite):
    """It starts, works and stops, and so again; what fails at the start leaves nothing."""

    async def test_a_node_with_it_starts_is_used_and_has_what_is_declared(
        self, tmp_path: Path
    ) -> None:
        async with self._node(tmp_path) as node, used(node) as one:
            await until_ready(node)
            await node.observed.system.settle()
            before = self._handled(node)
            await self.use(one)
            await until_ready(node)
            assert {*one.addresses} - KERNEL_LISTENERS == {*self.listeners}
            brought = {*(self._handled(node) - before)}
            declared = {f"{kind.__module__}.{kind.__qualname__}" for kind in self.actors}
            assert brought <= declared, f"not in `actors`: {brought - declared}"
            assert bool(self._kind.simulated) == bool(self.scenario), "see `scenario`"

    def _handled(self, node: Node) -> Counter[str]:
        """How many messages the plug-in's own actors have had, by class."""
        stats = node.observed.system.stats().items()
        return Counter({name: one.handled for name, one in stats if self._owns(name)})

    def test_a_node_that_has_stopped_leaves_nothing(self, tmp_path: Path) -> None:
        async def life() -> None:
            async with self._node(tmp_path) as node, used(node) as one:
                await self.use(one)
            await check_no_tasks()

        asyncio.run(life())  # what is made once for all lives stays
        held = Held()
        asyncio.run(life())
        held.check()

    async def test_users_that_are_gone_leave_nothing(self, tmp_path: Path) -> None:
        async with self._node(tmp_path) as node, used(node) as one:
            for _ in range(3):
                await self.use(one)
            held, before = Held(), len(tasks())
            cells, links = self._cells(node), self._links(node)
            for _ in range(5):
                await self.use(one)
            await until(lambda: self._cells(node) <= cells, "actors of users that are gone")
            await until(lambda: self._links(node) <= links, "links of users that are gone")
            await until(lambda: len(tasks()) <= before, "tasks of users that are gone")
            await asyncio.to_thread(held.check)

    def _cells(self, node: Node) -> int:
        stats = node.observed.system.stats().items()
        return sum(one.cells for name, one in stats if self._owns(name))

    def _links(self, node: Node) -> int:
        return sum(node.observed.parts.links[name].link_count for name in self.listeners)

    async def test_a_node_that_was_stopped_is_started_again(self, tmp_path: Path) -> None:
        node = self._node(tmp_path)
        await self._live(node)
        before = await self._live(node)
        async with self._node(tmp_path) as other, used(other) as one:
            check_kept(before, await stored(one.client))
            await self.use(one)
            check_kept(before, await stored(one.client))

    async def _live(self, node: Node) -> Any:
        await node.start()
        try:
            async with used(node) as one:
                await self.use(one)
                return await stored(one.client)
        finally:
            await node.stop()

    async def test_two_nodes_of_a_process_share_nothing(self, tmp_path: Path) -> None:
        async with self._node(tmp_path / "a") as a, self._node(tmp_path / "b") as b:
            plug_in = self._plug_in(b)
            async with used(a) as one, used(b) as other:
                before = await stored(other.client)
                shown = _counted(plug_in)
                await self.use(one)
                assert await stored(other.client) == before
                assert _counted(plug_in) == shown
            await a.stop()
            async with used(b) as other:
                await self.use(other)
                await until_ready(b)

    async def test_no_application_takes_an_address_that_it_has(self, tmp_path: Path) -> None:
        with made_below() as addresses:
            async with self._node(tmp_path) as node, used(node) as one:
                addresses |= {*node.observed.router.table}
                await self.use(one)
                addresses |= {*node.observed.router.table}
        not_named = unreserved(addresses)
        assert not not_named, f"not among `addresses` of the words in {WORDS}: {not_named}"

    @needs("listeners")
    def test_a_port_that_is_taken_is_told_and_nothing_stays_half_open(self, tmp_path: Path) -> None:
        asyncio.run(self._starts_once(self._node(tmp_path)))
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            for table in self.config(tmp_path).tables:
                if not (isinstance(table, Listener) and table.enabled):
                    continue
                with _taken_port(kind) as port:
                    held = Held()
                    other = msgspec.structs.replace(table, listen=f"127.0.0.1:{port}")
                    config = self.config(tmp_path)
                    node = Node(
                        msgspec.structs.replace(
                            config,
                            tables=[other if one == table else one for one in config.tables],
                        )
                    )
                    error = asyncio.run(self._starts_not(node))
                    held.check()
                if kind is socket.SOCK_DGRAM and error is None:
                    continue  # it needs no such port
                assert isinstance(error, RillnodeError), repr(error)
                assert error.code.startswith("listen.")
                assert f"127.0.0.1:{port}" in str(error)
                assert node.observed.state == "stopped"

    async def _starts_once(self, node: Node) -> None:
        async with node:
            await until_ready(node)

    async def _starts_not(self, node: Node) -> BaseException | None:
        try:
            await node.start()
        except Exception as error:
            return error
        else:
            await node.stop()
            return None
        finally:
            await check_no_tasks()

    @pytest.mark.parametrize("method", ["start", "serve"])
    @pytest.mark.parametrize("when", ["before", "after"])
    def test_a_start_that_fails_keeps_the_node_from_starting_and_leaves_nothing(
        self, tmp_path: Path, method: str, when: str
    ) -> None:
        node = self._node(tmp_path)
        asyncio.run(self._starts_once(self._node(tmp_path)))
        held = Held()
        with failing(self._kind, method, when):
            assert isinstance(asyncio.run(self._starts_not(node)), Planted)
        held.check()
        assert node.observed.state == "stopped"

        async def again() -> None:
            async with node, used(node) as one:
                await self.use(one)

        asyncio.run(again())

    @pytest.mark.parametrize("method", ["changed", "on_health", "finish", "close"])
    async def test_what_it_raises_later_costs_nobody_else_anything(
        self, tmp_path: Path, method: str
    ) -> None:
        with failing(self._kind, method, "after"):
            async with self._node(tmp_path) as node, used(node) as one:
                async with bystander(one.client) as goes_on:
                    await goes_on()
                before = await stored(one.client)
        assert node.observed.state == "stopped"
        async with self._node(tmp_path) as node, used(node) as one:
            check_kept(before, await stored(one.client))
            await self.use(one)

    async def test_the_same_configuration_again_changes_nothing(self, tmp_path: Path) -> None:
        async with self._node(tmp_path) as node, used(node) as one:
            plug_in, config = self._plug_in(node), node.config
            await self.use(one)
            assert plug_in.reload(config, config) == config
            node.reload(self.config(tmp_path))
            assert node.config == config
            await self.use(one)
            await until_ready(node)

    async def test_a_configuration_without_its_tables_is_taken_over_without_an_error(
        self, tmp_path: Path
    ) -> None:
        async with self._node(tmp_path) as node, used(node) as one:
            node.reload(without_tables(node.config))
            async with bystander(one.client) as goes_on:
                await goes_on()
            await until_ready(node)


@contextmanager
def failing(kind: type[PlugIn], method: str, when: str) -> Generator[None]:
    """Let a method of all plug-ins of a class raise `Planted`, before or after what it does."""
    plain: Callable[..., Any] = getattr(kind, method)

    @wraps(plain)
    def raising(*args: Any) -> Any:
        if when == "before":
            raise Planted(method)
        done = plain(*args)
        if inspect.isawaitable(done):
            return _then_raise(done, method)
        raise Planted(method)

    with patch.object(kind, method, raising):
        yield


async def _then_raise(done: Awaitable[object], method: str) -> None:
    await done
    raise Planted(method)


@contextmanager
def _taken_port(kind: socket.SocketKind) -> Generator[int]:
    """A port of 127.0.0.1 that somebody else has."""
    with socket.socket(socket.AF_INET, kind) as taken:
        taken.bind(("127.0.0.1", 0))
        if kind is socket.SOCK_STREAM:
            taken.listen()
        yield taken.getsockname()[1]


def _counted(plug_in: PlugIn) -> tuple[dict[str, list[Sample]], bytes]:
    """What a plug-in has counted: other samples may change while nobody uses its node."""
    counters = {one.name for one in plug_in.metrics if one.kind == "counter"}
    samples = {name: [*values] for name, values in plug_in.samples().items() if name in counters}
    return samples, msgspec.json.encode(plug_in.counters())
