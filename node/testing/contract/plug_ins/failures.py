"""Tests that failures and hostile bytes cost others nothing, and nothing for good."""

import asyncio
import gc
import logging
import socket
import tracemalloc
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Final, get_args

from rillnode.actors.engine.faults import Fault, When
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log.memory import Faults
from rillnode.codecs.errors import RillnodeError
from rillnode.node.testing.contract.base import until
from rillnode.node.testing.contract.nodes import store_with
from rillnode.node.testing.contract.plug_ins.using import (
    LOST_SECONDS,
    PlugInSuite,
    Used,
    bystander,
    needs,
    until_ready,
    used,
    works_again,
)
from rillnode.node.testing.failing import fail, message_types

ENDLESS_BYTES: Final = 32 * 1_048_576
"""What is sent of a message that never ends."""

PIECE_BYTES: Final = 262_144
"""What is sent of it at a time."""

ENDLESS: Final = 4
"""Connections that send as much at once."""

HELD_BYTES_MAX: Final = 80 * 1_048_576
"""What a node may hold of these 128 MiB: messages of 16 MiB, and some beside them."""

KEPT_BYTES_MAX: Final = 4 * 1_048_576
"""What may be left of it when they are gone."""


class Failures(PlugInSuite):
    """Actors that fail, a store that does, and hostile bytes."""

    @needs("actors")
    async def test_an_actor_that_fails_loses_its_message_and_nothing_else(
        self, tmp_path: Path
    ) -> None:
        hits: Counter[type[Worker]] = Counter()
        whens: tuple[When, ...] = get_args(When)
        cases: list[tuple[type[Worker], type | None, When]] = [
            (kind, message, when)
            for kind in self.actors
            for message in _messages(kind)
            for when in whens
        ]
        turn = 0
        while cases:
            turn += 1
            async with AsyncExitStack() as stack:
                node = await stack.enter_async_context(self._node(tmp_path / str(turn)))
                one = await stack.enter_async_context(used(node))
                goes_on = await stack.enter_async_context(bystander(one.client))
                await self.use(one)
                struck: Counter[type[Worker]] = Counter()
                while cases:
                    kind, message, when = cases[-1]
                    if struck[kind] + 1 >= kind.restarts_max:
                        break  # one more, and it would be given up
                    cases.pop()
                    with fail(kind, message, when=when) as fault:
                        await self._use_in_vain(one, fault)
                    struck[kind] += fault.hits
                    hits[kind] += fault.hits
                    await goes_on()
                    if fault.hits:
                        await works_again(self.use, one)
                        await until_ready(node)
        unused = [kind.__name__ for kind in self.actors if not hits[kind]]
        assert not unused, f"`use` brings no message to {unused}"

    async def _use_in_vain(self, one: Used, fault: Fault) -> None:
        """Use a node while something may fail, and wait no longer for what then does not come."""
        using = asyncio.ensure_future(self.use(one))
        try:
            with suppress(AssertionError):
                await until(lambda: using.done() or fault.hits)
            await asyncio.wait([using], timeout=LOST_SECONDS)
        finally:
            using.cancel()
            (said,) = await asyncio.gather(using, return_exceptions=True)
        if not fault.hits and isinstance(said, BaseException):
            raise said

    async def test_a_store_that_takes_no_writes_for_a_while_costs_nothing_for_good(
        self, tmp_path: Path
    ) -> None:
        disk = Faults()
        async with self._node(tmp_path, make_store=store_with(disk)) as node, used(node) as one:
            await self.use(one)
            stream = await one.client.stream("contract/full")
            disk.capacity_bytes = 0
            with suppress(RillnodeError):
                await stream.push(b"x")
            await until(lambda: not node.observed.health.writable, "the store takes no writes")
            using = asyncio.ensure_future(self.use(one))
            await asyncio.wait([using], timeout=LOST_SECONDS)
            using.cancel()
            await asyncio.gather(using, return_exceptions=True)
            disk.capacity_bytes = None
            await until(lambda: node.observed.health.writable, "the store takes writes again")
            await works_again(self.use, one)
            await until_ready(node)
            async with bystander(one.client) as goes_on:
                await goes_on()

    @needs("listeners")
    async def test_hostile_bytes_disturb_nobody(self, tmp_path: Path) -> None:
        async with self._node(tmp_path) as node, used(node) as one:
            said = await self._said(one)
            before = _links(node.status())
            async with bystander(one.client) as goes_on:
                for name in self.listeners:
                    attacks = [
                        asyncio.ensure_future(_attack(one.addresses[name], data, stays=stays))
                        for data, stays in hostile(said[name])
                    ]
                    for _ in range(10):
                        await goes_on()
                        await self.use(one)
                    for attack in attacks:
                        attack.cancel()
                    await asyncio.gather(*attacks, return_exceptions=True)
                    await until_ready(node)
                    await goes_on()
                    await self.use(one)
            await until(lambda: _links(node.status()) <= before, "links of who is gone")

    @needs("listeners")
    async def test_messages_without_an_end_are_bounded(self, tmp_path: Path) -> None:
        async with self._node(tmp_path) as node, used(node) as one:
            said = await self._said(one)
            for name in self.listeners:
                begun = said[name][: len(said[name]) // 2]
                data = memoryview(begun.ljust(ENDLESS_BYTES, b"7"))
                await self.use(one)
                logging.disable()  # whoever keeps records of errors keeps what they were raised in
                tracemalloc.start()
                try:
                    before, _ = tracemalloc.get_traced_memory()
                    sent = list[int]()
                    address, told = one.addresses[name], sent.append
                    attacks = [
                        asyncio.ensure_future(_attack(address, data, stays=True, sent=told))
                        for _ in range(ENDLESS)
                    ]
                    # As long as it takes more: what copies all of it with each piece is slow.
                    taken, most = -1, 0
                    while taken < len(sent) and most - before < HELD_BYTES_MAX:
                        taken = len(sent)
                        await asyncio.wait(attacks, timeout=LOST_SECONDS)
                        _, most = tracemalloc.get_traced_memory()
                    for attack in attacks:
                        attack.cancel()
                    await asyncio.gather(*attacks, return_exceptions=True)
                    del attacks
                    assert most - before < HELD_BYTES_MAX, f"{name}: {most - before:,} bytes"

                    def kept(before: int = before) -> bool:
                        gc.collect()
                        return tracemalloc.get_traced_memory()[0] - before < KEPT_BYTES_MAX

                    await until(kept, f"{name} keeps what was sent by who is gone")
                finally:
                    tracemalloc.stop()
                    logging.disable(logging.NOTSET)
                await until_ready(node)
                await works_again(self.use, one)

    async def _said(self, one: Used) -> dict[str, bytes]:
        """What the plug-in's users send first, by listener."""
        async with AsyncExitStack() as stack:
            heard = {
                name: await stack.enter_async_context(overheard(one.addresses[name]))
                for name in self.listeners
            }
            through = {name: address for name, (address, _) in heard.items()}
            await self.use(replace(one, addresses={**one.addresses, **through}))
            return {name: bytes(data) for name, (_, data) in heard.items()}


def hostile(said: bytes) -> Iterator[tuple[bytes, bool]]:
    """What is sent to a listener, and whether whoever sent it stays for more.

    Args:
        said: what one of its users sends.
    """
    random = Random(7)
    yield b"", True
    yield b"", False
    for _ in range(10):
        yield random.randbytes(random.randrange(1, 4_000)), False
        flipped = bytearray(said or b"\0")
        flipped[random.randrange(len(flipped))] ^= 1 << random.randrange(8)
        yield bytes(flipped), False
        yield said[: random.randrange(len(said) + 1)], False
    yield said[: len(said) // 2], True
    yield said, False
    yield said + said, False
    yield b"\xff" * 100_000, False
    yield bytes(100_000), False
    yield b"GET / HTTP/1.1\r\nHost: x\r\n", True


async def _attack(
    address: str,
    data: bytes | memoryview,
    *,
    stays: bool,
    sent: Callable[[int], object] = lambda _: None,
) -> None:
    """Send something, then the end, or nothing more; `sent` is told of each piece."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    with socket.socket() as sock, suppress(OSError):
        sock.setblocking(False)
        await loop.sock_connect(sock, (host, int(port)))
        for at in range(0, len(data), PIECE_BYTES):
            piece = data[at : at + PIECE_BYTES]
            await loop.sock_sendall(sock, piece)
            sent(len(piece))
        if not stays:
            sock.shutdown(socket.SHUT_WR)
        while await loop.sock_recv(sock, 65_536):
            pass
        if stays:
            await asyncio.Event().wait()


@asynccontextmanager
async def overheard(address: str) -> AsyncGenerator[tuple[str, bytearray]]:
    """An address that leads to another, and what the first connection sends to it."""
    host, _, port = address.rpartition(":")
    sent = bytearray()
    copying: set[asyncio.Task[None]] = set()
    first = True

    async def copy(
        source: asyncio.StreamReader, sink: asyncio.StreamWriter, kept: bytearray | None
    ) -> None:
        with suppress(OSError):
            while data := await source.read(65_536):
                if kept is not None:
                    kept += data
                sink.write(data)
                await sink.drain()
        sink.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal first
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        for one in (
            copy(reader, far_writer, sent if first else None), copy(far_reader, writer, None),
        ):  # fmt: skip
            task = asyncio.ensure_future(one)
            copying.add(task)
            task.add_done_callback(copying.discard)
        first = False

    server = await asyncio.start_server(accept, host, 0)
    try:
        yield f"{host}:{server.sockets[0].getsockname()[1]}", sent
    finally:
        server.close()
        for task in copying:
            task.cancel()
        await asyncio.gather(*copying, return_exceptions=True)


def _messages(kind: type[Worker]) -> tuple[type | None, ...]:
    """What an actor is made to fail at: each message that it takes, and any that comes first."""
    return (None, *(message_types(kind) or ()))


def _links(status: Mapping[str, Mapping[str, Mapping[str, int]]]) -> int:
    return sum(one["links"] for one in status["listeners"].values())
