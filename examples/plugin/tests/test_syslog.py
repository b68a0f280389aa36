"""A node that takes syslog messages."""

import asyncio
import json
import socket
from collections.abc import Sequence
from pathlib import Path
from secrets import token_hex

import pytest

from rillnode.node.cli import main
from rillnode.node.config import PlugInTable, parse_config
from rillnode.node.runtime import Node
from rillnode.testing.contract import PlugInContract, Used
from rillnode_syslog.config import SyslogTable
from rillnode_syslog.messages import MESSAGE_BYTES_MAX, Frames, SyslogError, record_of
from rillnode_syslog.plugin import PushingActor

LINE = b'<165>1 2026-10-11T22:14:15.003Z host app 111 ID47 [e@1 k="a\\]b"] An application event'


def test_a_message_is_read() -> None:
    assert record_of(LINE) == {
        "facility": 20,
        "severity": 5,
        "time": "2026-10-11T22:14:15.003Z",
        "host": "host",
        "app": "app",
        "process": "111",
        "id": "ID47",
        "data": '[e@1 k="a\\]b"]',
        "text": "An application event",
    }
    assert record_of(b"<0>1 - - - - - -") == {"facility": 0, "severity": 0, "text": ""}


@pytest.mark.parametrize("line", [b"", b"hello", b"<192>1 - - - - - -", b"<1>2 - - - - - -"])
def test_what_is_none_is_refused(line: bytes) -> None:
    with pytest.raises(SyslogError):
        record_of(line)


@pytest.mark.parametrize("size", [1, 3, 1_000])
def test_frames_come_in_pieces(size: int) -> None:
    stream = b"%d %s" % (len(LINE), LINE) + LINE + b"\n" + b"%d %s" % (len(LINE), LINE)
    frames, found = Frames(), list[bytes]()
    for start in range(0, len(stream), size):
        found += frames.take(stream[start : start + size])
    assert found == [LINE] * 3


@pytest.mark.parametrize("data", [b"9999999 ", b"99999 ", b"12x4567 ", b"x" * 70_000])
def test_a_stream_without_end_is_cut_off(data: bytes) -> None:
    with pytest.raises(SyslogError):
        list(Frames().take(data))
    assert MESSAGE_BYTES_MAX < 99_999


def config(directory: Path) -> str:
    return f"""
        name = "a"
        data_dir = "{directory}"
        noise.listen = "127.0.0.1:0"
        http.enabled = false
        [syslog]
        listen = "127.0.0.1:0"
        stream = "logs"
    """


def test_a_node_stores_what_comes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def run() -> list[bytes]:
        async with Node(parse_config(config(tmp_path), tmp_path / "node.toml")) as node:
            host, port = node.addresses()["syslog"].split(":")
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
                udp.sendto(LINE, (host, int(port)))
                udp.sendto(b"no syslog", (host, int(port)))
            stream = await node.stream("logs")
            async with asyncio.timeout(10):
                first = await anext(stream.tail(start="start"))
                sent = await asyncio.to_thread(main, ["syslog", "send", f"{host}:{port}", "hello"])
                second = await anext(stream.tail(start=1))
                # Who follows a stream may hear of an entry before who pushed it.
                while (counters := node.status()["syslog"]["counters"]).get("stored", 0) < 2:
                    await asyncio.sleep(0.01)
            assert (sent, counters) == (0, {"stored": 2, "malformed": 1})
            assert all(check.ok for check in node.checks())
            return [first.data, second.data]

    texts = [json.loads(data)["text"] for data in asyncio.run(run())]
    assert texts == ["An application event", "hello"]


class TestSyslog(PlugInContract):
    """What every plug-in has to keep to."""

    name = "syslog"
    listeners = ("syslog",)
    actors = (PushingActor,)
    wrong = (("[syslog]\nlisten = 'somewhere'", "config.value"),)

    def tables(self, directory: Path) -> Sequence[PlugInTable]:
        return (SyslogTable(listen="127.0.0.1:0"),)

    async def use(self, used: Used) -> None:
        text = token_hex(8)
        host, _, port = used.addresses["syslog"].rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"<14>1 - - - - - - {text}\n".encode())
        writer.close()
        stream = await used.client.stream("syslog")
        while text not in str(await stream.pull(-1)):
            await asyncio.sleep(0.01)
