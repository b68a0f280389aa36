"""A running node takes another configuration, or says why not."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from command_line import begun
from nodes import CLIENT, connect_to, node_config
from rillnode.actors.core.access import Verb
from rillnode.codecs.errors import ConfigError, RequestError, RillnodeError
from rillnode.node.config import Config, GrantTable, HttpListener, QuotaTable, StreamTable
from rillnode.node.runtime import Node

SECONDS = 120.0
WHO = f"noise:{CLIENT.public_hex}"


def granting(config: Config, *may: Verb) -> Config:
    grants = (GrantTable(who=WHO, streams="*", may=may),) if may else ()
    return msgspec.structs.replace(config, grants=grants)


async def test_grants_change_while_links_are_open(tmp_path: Path) -> None:
    config = granting(node_config(tmp_path), "create", "push", "pull", "subscribe")
    async with Node(config) as node, await connect_to(node) as client:
        stream = await client.stream("s")
        assert await stream.push(b"0") == 0
        node.reload(granting(config, "pull"))
        with pytest.raises(RequestError):
            await stream.push(b"1")
        assert len(await stream.pull(0, 10)) == 1
        node.reload(granting(config, "pull", "push"))
        assert await stream.push(b"1") == 1


async def test_who_lost_everything_gets_no_more_of_what_it_subscribed_to(tmp_path: Path) -> None:
    config = granting(node_config(tmp_path), "admin")
    async with Node(config) as node:
        client = await connect_to(node)
        inside = await node.stream("s")
        stream = await client.stream("s")
        following = aiter(stream.tail(start=0))
        await inside.push(b"before")
        assert (await anext(following)).data == b"before"
        node.reload(granting(config))
        await inside.push(b"after")
        with pytest.raises((RillnodeError, TimeoutError)):
            await asyncio.wait_for(anext(following), 1.0)
        with pytest.raises(RillnodeError):
            await connect_to(node)
        await client.close()


async def test_quotas_count_streams_from_before(tmp_path: Path) -> None:
    config = node_config(tmp_path)
    async with Node(config) as node, await connect_to(node) as client:
        await client.stream("a")
        quotas = (QuotaTable(who=WHO, streams_max=1),)
        node.reload(msgspec.structs.replace(config, quotas=quotas))
        refusal: RequestError | None = None
        while refusal is None:
            # The streams that are there are counted in the background.
            try:
                await client.stream("b")
                await client.remove("b")
            except RequestError as error:
                refusal = error
        assert refusal.code == "quota.streams"
        node.reload(config)
        await client.stream("c")


async def test_retention_of_streams_changes(tmp_path: Path) -> None:
    config = node_config(tmp_path)
    async with Node(config) as node:
        await node.stream("s")
        streams = (StreamTable(name="s", retain_entries_max=3),)
        node.reload(msgspec.structs.replace(config, streams=streams))
        end = asyncio.get_running_loop().time() + SECONDS
        while (await node.client.describe("s")).retention.entries_max != 3:
            assert asyncio.get_running_loop().time() < end
            await asyncio.sleep(0.02)


async def test_what_needs_a_restart_is_named_and_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = node_config(tmp_path)
    async with Node(config) as node:
        address = node.addresses()["http"]
        http = HttpListener(listen="127.0.0.1:1", enabled=False)
        with caplog.at_level(logging.INFO, "rillnode.node.reloading"):
            node.reload(msgspec.structs.replace(config, http=http, grants=()))
        assert node.addresses()["http"] == address
        assert (node.config.http, node.config.grants) == (config.http, ())
    told = {record.msg: vars(record) for record in caplog.records}
    assert told["restart_needed"]["tables"] == "http"
    assert told["config_reloaded"]["changed"] == "grant"


async def test_a_wrong_configuration_changes_nothing(tmp_path: Path) -> None:
    config = node_config(tmp_path)
    async with Node(config) as node:
        wrong = (StreamTable(name="s"), StreamTable(name="s"))
        with pytest.raises(ConfigError):
            node.reload(msgspec.structs.replace(config, streams=wrong, grants=()))
        assert node.config == config


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 2 * SECONDS
    while not condition():
        assert time.monotonic() < end, "this took too long"
        time.sleep(0.05)


def test_sighup_reads_the_file_again(tmp_path: Path) -> None:
    file, log = tmp_path / "node.toml", tmp_path / "log"
    text = 'name = "a"\n[noise]\nlisten = "127.0.0.1:0"\n[http]\nenabled = false\n'
    file.write_text(text)
    with log.open("wb") as output:
        node = begun("run", "-c", file, stdout=output, stderr=output, cwd=tmp_path)
    try:
        wait_for(lambda: '"node_ready"' in log.read_text() and "identity  " in log.read_text())
        file.write_text(text + "nonsense = 1\n")
        os.kill(node.pid, signal.SIGHUP)
        wait_for(lambda: '"config_not_reloaded"' in log.read_text())
        assert "unknown key" in log.read_text()
        file.write_text(text + f'[[grant]]\nwho = "{WHO}"\nstreams = "*"\nmay = ["admin"]\n')
        os.kill(node.pid, signal.SIGHUP)
        wait_for(lambda: '"config_reloaded"' in log.read_text())
        assert '"changed": "grant"' in log.read_text()
        node.send_signal(signal.SIGTERM)
        assert node.wait(SECONDS) == 0
    finally:
        node.kill()
        node.wait()
