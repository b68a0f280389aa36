"""A lean client of NATS: one connection, JetStream by its JSON interface."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator
from typing import Any, Final

from benchmarks.jobs import Endpoint, WorkJob

_READ_BYTES: Final = 262_144
_WINDOW: Final = 1_000
"""Messages unconfirmed where a job has no window."""

_ANSWERS: Final = "_INBOX.answers"
_MESSAGES: Final = "_INBOX.messages"

_CONFIRM: Final = b"3"
"""The subscription to answers to acknowledgements."""

Message = tuple[bytes, bytes]
"""Where to acknowledge, and the data; `_CONFIRM`: an acknowledgement was answered."""


class Nats:
    """One connection, of which every answer comes to one inbox, in order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._rest = b""
        self._confirms = 0

    @classmethod
    async def connect(cls, endpoint: Endpoint) -> "Nats":
        """Connect, over TLS where the endpoint has it."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", endpoint.port, limit=_READ_BYTES
        )
        await reader.readline()  # INFO comes in clear
        if endpoint.ca_file:
            context = ssl.create_default_context(cafile=endpoint.ca_file)
            await writer.start_tls(context, server_hostname="127.0.0.1")
        options = json.dumps({"verbose": False, "headers": True, "no_responders": True})
        writer.write(f"CONNECT {options}\r\nSUB {_ANSWERS} 1\r\nPING\r\n".encode())
        line = await reader.readline()
        if line != b"PONG\r\n":
            raise ConnectionError(f"NATS answered {line!r}")
        return cls(reader, writer)

    def send(self, data: bytes) -> None:
        """Send packed publications or subscriptions."""
        self._writer.write(data)

    async def answers(self) -> list[bytes]:
        """Wait for JSON answers; at least one. Nothing may be subscribed to.

        Raises:
            RuntimeError: one of them is an error.
        """
        found: list[bytes] = []
        while not found:
            data = await self._read()
            if b'"error"' in data:
                raise RuntimeError(f"NATS answered {data[:500]!r}")
            *lines, self._rest = (self._rest + data).split(b"\r\n")
            found = [line for line in lines if line.startswith(b"{")]
            if b"PING" in lines:
                self._writer.write(b"PONG\r\n")
        return found

    async def confirms(self) -> int:
        """Wait for answers; return how many have come."""
        return len(await self.answers())

    async def request(self, subject: str, document: dict[str, Any]) -> None:
        """Ask the JetStream interface, and wait for its consent."""
        self.send(publication(f"$JS.API.{subject}", json.dumps(document).encode()))
        await self.answers()

    async def create_stream(self, name: str, subjects: str) -> None:
        """Make a stream that is kept in files."""
        stream = {"name": name, "subjects": [subjects], "storage": "file", "retention": "limits"}
        await self.request(f"STREAM.CREATE.{name}", stream)

    async def push_all(self, publications: list[bytes]) -> None:
        """Push with a window of 1,000."""
        unconfirmed = 0
        for start in range(0, len(publications), _WINDOW // 4):
            some = publications[start : start + _WINDOW // 4]
            self.send(b"".join(some))
            unconfirmed += len(some)
            while unconfirmed > _WINDOW * 3 // 4:
                unconfirmed -= await self.confirms()
        while unconfirmed:
            unconfirmed -= await self.confirms()

    async def ordered(self, stream: str) -> AsyncGenerator[list[Message]]:
        """What a consumer of the ordered kind is sent: no acknowledgement, flow control."""
        options = {
            "ack_policy": "none", "deliver_policy": "all", "deliver_subject": _MESSAGES,
            "flow_control": True, "idle_heartbeat": 5_000_000_000, "max_deliver": 1,
            "mem_storage": True, "num_replicas": 1,
        }  # fmt: skip
        await self.request(f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": options})
        self.send(f"SUB {_MESSAGES} 2\r\n".encode())
        while True:
            yield await self._messages()

    async def fetched(
        self, stream: str, consumer: str, batch: int, count: int
    ) -> AsyncGenerator[list[Message]]:
        """What a durable consumer fetches in batches; each batch is acknowledged as a whole."""
        options = {"ack_policy": "all", "deliver_policy": "all", "durable_name": consumer}
        document = {"stream_name": stream, "config": options}
        await self.request(f"CONSUMER.DURABLE.CREATE.{stream}.{consumer}", document)
        self.send(f"SUB {_MESSAGES} 2\r\n".encode())
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        while count:
            due = min(batch, count)
            self.send(publication(subject, json.dumps({"batch": due}).encode(), _MESSAGES))
            count -= due
            while due:
                messages = await self._messages()
                due -= len(messages)
                if not due:
                    self.send(b"PUB %b 4\r\n+ACK\r\n" % messages[-1][0])
                yield messages

    async def create_worked(self, stream: str, consumer: str, in_flight: int) -> None:
        """Make a durable consumer whose messages are acknowledged one by one."""
        options = {
            "ack_policy": "explicit", "deliver_policy": "all", "durable_name": consumer,
            "max_ack_pending": max(1_000, in_flight),
        }  # fmt: skip
        document = {"stream_name": stream, "config": options}
        await self.request(f"CONSUMER.DURABLE.CREATE.{stream}.{consumer}", document)

    async def work(self, job: WorkJob, number: int, count: int) -> None:
        """Fetch so many messages and acknowledge each; fetch anew when half of them are."""
        inbox, answers = f"{_MESSAGES}.{number}", f"{_ANSWERS}.{number}"
        self.send(f"SUB {inbox} 2\r\nSUB {answers} 3\r\n".encode())
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{job.stream}.{job.queue}"
        word = b"PUB %b 4\r\n+ACK\r\n"
        if job.confirmed:
            word = b"PUB %%b %b 4\r\n+ACK\r\n" % answers.encode()
        in_flight, asked, done = job.in_flight, 0, 0
        while done < count:
            if asked < count and asked - done <= in_flight // 2:
                due = min(in_flight - (asked - done), count - asked)
                self.send(publication(subject, json.dumps({"batch": due}).encode(), inbox))
                asked += due
            messages = [reply for reply, _ in await self._messages() if reply != _CONFIRM]
            self.send(b"".join(word % reply for reply in messages))
            done += self._take_confirms() if job.confirmed else len(messages)

    def _take_confirms(self) -> int:
        """How many acknowledgements the server has answered since this was asked last."""
        confirms, self._confirms = self._confirms, 0
        return confirms

    async def _messages(self) -> list[Message]:
        """Wait for messages; at least one."""
        found: list[Message] = []
        while not found:
            data = self._rest + await self._read()
            at = 0
            while (end := data.find(b"\r\n", at)) >= 0:
                words = data[at:end].split(b" ")
                after = end + 2
                if words[0] in (b"MSG", b"HMSG"):
                    after += int(words[-1]) + 2
                    if after > len(data):
                        break
                    if words[0] == b"MSG" and words[2] == _CONFIRM:
                        self._confirms += 1
                        found.append((_CONFIRM, b""))
                    elif words[0] == b"MSG":
                        found.append((words[3], data[end + 2 : after - 2]))
                    elif len(words) == 6:  # flow control, which asks for an answer
                        self.send(b"PUB %b 0\r\n\r\n" % words[3])
                elif words[0] == b"PING":
                    self.send(b"PONG\r\n")
                at = after
            self._rest = data[at:]
        return found

    async def _read(self) -> bytes:
        data = await self._reader.read(_READ_BYTES)
        if not data or data.startswith(b"-ERR"):
            raise ConnectionError(f"NATS has closed the connection: {data[:200]!r}")
        return data


def publication(subject: str, data: bytes, reply: str = _ANSWERS) -> bytes:
    """Pack a message for a subject; the confirm comes to `reply`."""
    return b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), reply.encode(), len(data), data)
