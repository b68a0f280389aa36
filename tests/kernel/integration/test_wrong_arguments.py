"""Whatever a call of the client is given, the error that says it is none has a code and a sentence.

Each call is made with arguments that are right but for one, which is of every other kind. What
comes of that is an error of the project's own, at once and in both faces; that names the argument
where it is of another type.
"""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from nodes import CLIENT, connect_to, node_config
from rillnode.codecs.errors import ArgumentError, RillnodeError
from rillnode.node.client import Client, connect, connect_blocking
from rillnode.node.client.blocking import BlockingConsumer, BlockingWorkQueue
from rillnode.node.client.consumer import Consumer
from rillnode.node.client.producer import NamedProducer
from rillnode.node.client.pusher import Pusher
from rillnode.node.client.stream import Stream
from rillnode.node.client.work import Job, WorkQueue
from rillnode.node.runtime import Node

NO_TEXT: Final = "\ud800"
"""A text without a form in UTF-8."""

WHOLE: Final[tuple[Any, ...]] = ("5", 2.5, True, [], b"5")
NUMBER: Final[tuple[Any, ...]] = ("5", [], True, float("nan"))
TEXT: Final = (5, b"x", None, NO_TEXT, ["x"])
LIST: Final = (5, "ab", b"ab")
TIME: Final = (5, "1h")
START: Final = (True, 2.5, "begin", None, [1], b"5")
CALLED: Final = (5, "x")
BYTES: Final = (5, "x", None, [1])
KEY: Final = (5, 2.5, [b"x"])
HEADERS: Final = (5, "x", [b"x"], {"n": 5})

Wrong = dict[str, tuple[Any, ...]]
"""By the name of an argument, what cannot be it."""

PUSH: Final[Wrong] = {"data": BYTES, "key": KEY, "headers": HEADERS, "partition": WHOLE}
READ: Final[Wrong] = {
    "start": START,
    "where": (5, b"x", NO_TEXT),
    "partitions": (*LIST, ["1"], [0.5]),
}

TABLE: Final[dict[str, tuple[dict[str, Any], Wrong]]] = {
    "Client.stream": ({"name": "s"}, {"name": (*TEXT[:2], ""), "partitions": WHOLE}),
    "Client.close": ({}, {"timeout_seconds": NUMBER}),
    "Client.open_streams": (
        {"names": ["s"]},
        {"names": (*LIST, [5], [NO_TEXT]), "partitions": WHOLE},
    ),
    "Client.describe": ({"name": "s"}, {"name": TEXT}),
    "Client.streams": ({}, {"prefix": TEXT}),
    "Client.iterate_streams": ({}, {"prefix": TEXT}),
    "Client.follow": (
        {"pattern": "s"},
        {"pattern": TEXT, "start": (5, "begin", None, [], {"s": {"0": 2**64}}, {"s": {"0": True}})},
    ),
    "Client.trim": (
        {"name": "s", "before": 0},
        {"name": TEXT, "partition": (*WHOLE[:2], -1), "before": (*WHOLE[:2], -1, 2**64)},
    ),
    "Client.remove": ({"name": "s"}, {"name": TEXT}),
    "Client.queues": ({}, {"stream": TEXT}),
    "Client.queue": ({"stream": "s", "queue": "q"}, {"stream": TEXT, "queue": TEXT}),
    "Client.take_back": (
        {"stream": "s", "queue": "q"},
        {"stream": TEXT, "queue": TEXT, "entries_max": WHOLE},
    ),
    "Client.get_index": (
        {"client_id": "c", "stream": "s"},
        {"client_id": TEXT, "stream": TEXT, "partition": (*WHOLE[:2], -1)},
    ),
    "Client.set_index": (
        {"client_id": "c", "stream": "s", "index": 0},
        {
            "client_id": TEXT,
            "stream": TEXT,
            "index": (*WHOLE[:2], -1, 2**64),
            "partition": (*WHOLE[:2], -1),
            "created_at": (*WHOLE[:2], -1, 2**64),
        },
    ),
    "Client.indexes": ({}, {"stream": TEXT}),
    "Client.groups": ({}, {"stream": TEXT}),
    "Client.run_sink": ({"name": "k", "run": True}, {"name": (NO_TEXT,)}),
    "Client.serve": (
        {"address": "a", "handler": print},
        {
            "address": TEXT,
            "handler": CALLED,
            "at": (5, b"x"),
            "calls_max": WHOLE,
            "lease_seconds": NUMBER,
        },
    ),
    "Client.about": (
        {"route": "about"},
        {"route": (5, None, NO_TEXT, ""), "timeout_seconds": NUMBER},
    ),
    "Client.routes": (
        {},
        {"pattern": TEXT, "kind": TEXT, "at": (5, None), "timeout_seconds": NUMBER},
    ),
    "Client.watch": ({"route": "about"}, {"route": (5, None, NO_TEXT, "")}),
    "Client.stop": (
        {"route": "none"},
        {"route": (5, None, NO_TEXT, ""), "timeout_seconds": NUMBER},
    ),
    "Client.ping": ({"peer": "p"}, {"peer": (NO_TEXT,), "timeout_seconds": NUMBER}),
    "Client.send": (
        {"route": "none", "payload": b""},
        {
            "route": (5, None, NO_TEXT, ""),
            "payload": ("x", 5),
            "return_address": (5, "x"),
        },
    ),
    "Client.ask": (
        {"route": "none", "payload": b""},
        {"route": (5, None, NO_TEXT, ""), "payload": ("x", 5), "timeout_seconds": NUMBER},
    ),
    "Client.mailbox": ({}, {"messages_max": (*WHOLE, 0)}),
    "Stream.push": ({"data": b"x"}, PUSH),
    "Stream.push_nowait": ({"data": b"x"}, PUSH),
    "Stream.push_many": (
        {"items": [b"x"]},
        {
            "items": (*LIST, ["x"], [5], [b"x", 5]),
            "keys": (*LIST, [], [5]),
            "headers": (*LIST, [], [5]),
            "partition": WHOLE,
        },
    ),
    "Stream.partition_of": ({"key": b"k"}, {"key": KEY}),
    "Stream.producer": ({"name": "p"}, {"name": TEXT, "partition": WHOLE}),
    "Stream.pusher": ({}, {"in_flight": (*WHOLE, 0)}),
    "Stream.pull": (
        {},
        {
            "index": (*WHOLE, 2**64),
            "limit": (*WHOLE, 2**70),
            "start": TIME,
            "until": ("5", 2.5, True),
            "where": (5, b"x", NO_TEXT),
            "partition": (*WHOLE, -1, 9),
        },
    ),
    "Stream.index_at": ({"time": timedelta(1)}, {"time": (*TIME, None), "partition": WHOLE}),
    "Stream.batches": ({}, READ),
    "Stream.tail": ({}, READ),
    "Stream.consumer": (
        {"name": "c"},
        {
            "name": (*TEXT, ""),
            "start": START,
            "partitions": READ["partitions"],
            "ack": ("later", 5, []),
            "max_in_flight": (*WHOLE, 0),
            "save_seconds": (*NUMBER, 0),
            "on_assigned": CALLED,
            "on_revoked": CALLED,
        },
    ),
    "Stream.work": (
        {"queue": "q"},
        {
            "queue": (*TEXT, ""),
            "attempts": (*WHOLE, 0, 2**70),
            "visibility_seconds": (*NUMBER, 0, -1),
            "in_flight": (*WHOLE, 0, -1, 2**70),
            "queue_in_flight": (*WHOLE, 0, -1, 2**70),
        },
    ),
    "Consumer.next": ({}, {"timeout": NUMBER}),
    "Consumer.batch": ({"n": 1}, {"n": (*WHOLE, 0), "timeout": NUMBER}),
    "Consumer.ack": ({}, {"entry": (5, None, "x")}),
    "WorkQueue.next": ({}, {"timeout": NUMBER}),
    "Job.retry": ({}, {"after": (*NUMBER, -1, 2**70, float("inf")), "reason": (5, None, b"x")}),
    "Job.reject": ({}, {"reason": (5, None, b"x")}),
    "Job.extend": ({"seconds": 1}, {"seconds": (*NUMBER, None, -1, float("inf"))}),
    "Pusher.push": ({"data": b"x"}, PUSH),
    "NamedProducer.push": (
        {"data": b"x"},
        {"data": BYTES, "sequence": (*WHOLE, -1), "key": KEY, "headers": HEADERS},
    ),
    "NamedProducer.push_nowait": (
        {"data": b"x"},
        {"data": BYTES, "sequence": (*WHOLE, -1), "key": KEY, "headers": HEADERS},
    ),
    "NamedProducer.push_all": (
        {"items": [b"x"], "sequence": 0},
        {
            "items": (*LIST, ["x"], [5], [b"x", 5]),
            "sequence": (*WHOLE, -1),
            "keys": (*LIST, [], [5]),
            "headers": (*LIST, [], [5]),
        },
    ),
}
"""By class and verb: arguments that are right, and for each what is not."""

NOT_CHECKED: Final = {
    "Client.closes",  # what is no user's
    "Client.stream.schema",  # `stream.schema`, see test_typed_streams
    "Client.run_sink.run", "Client.serve.group", "Stream.consumer.group", "Stream.work.by_key",
    "Consumer.still",  # the blocking face's own
}  # fmt: skip
"""What is true or false may be anything, as everywhere in Python."""

CONNECT: Final[dict[str, tuple[Any, ...]]] = {
    "url": (5, b"noise://127.0.0.1:1"),
    "key_file": (5, [b"x"]),
    "identity": ("x", b"x", 5),
    "node_identity": (5, b"x"),
    "on_disconnect": CALLED,
    "on_reconnect": CALLED,
}
"""Of `connect`, what cannot be its arguments; those of the command line find no node instead."""

CLASSES: Final = (Client, Stream, Consumer, WorkQueue, Job, Pusher, NamedProducer)


def verbs() -> Iterator[tuple[str, str]]:
    """Every public call of the client, and its arguments."""
    for one in CLASSES:
        for name, verb in inspect.getmembers(one, inspect.isfunction):
            if not name.startswith("_"):
                for argument in list(inspect.signature(verb).parameters)[1:]:
                    yield f"{one.__name__}.{name}", argument


def test_every_argument_of_every_call_is_tried() -> None:
    tried = {(verb, argument) for verb, (_, wrong) in TABLE.items() for argument in wrong}
    missing = {
        (verb, argument)
        for verb, argument in verbs()
        if verb not in NOT_CHECKED and f"{verb}.{argument}" not in NOT_CHECKED
    }
    assert missing - tried == set()


async def outcome(call: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """What comes of a call; an iteration is asked for what is first."""
    made = call(**arguments)
    if hasattr(made, "__aenter__") and call.__name__ in ("consumer", "work"):
        async with made:
            return made
    if hasattr(made, "__anext__"):
        try:
            return await asyncio.wait_for(anext(made), 1.0)
        finally:
            await made.aclose()
    return await made if inspect.isawaitable(made) else made


def wrong_calls(one: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """What is to be refused of a class: as people would write it, the verb, its arguments."""
    for verb, (right, wrong) in TABLE.items():
        name, _, call = verb.partition(".")
        for argument, values in wrong.items() if name == one else ():
            for value in values:
                yield f"{verb}({argument}={value!r})", call, {**right, argument: value}


def fault_of(error: Exception) -> str:
    """What is wrong with an error; empty: it has a code of the project's own, and says enough."""
    if not isinstance(error, RillnodeError):
        return f"raw {error!r}"
    if error.code.startswith("codec.") or not error.text:
        return f"{error.code}: {error.text}"
    return ""


async def test_what_cannot_be_an_argument_is_refused(tmp_path: Path) -> None:
    found: list[str] = []
    async with Node(node_config(tmp_path)) as node, await connect_to(node) as client:
        stream = await client.stream("s")
        await stream.push_many([b"%d" % number for number in range(9)])
        async with stream.work("jobs") as queue, stream.consumer("reader") as consumer:
            job = await queue.next(timeout=10.0)
            things = (
                client, stream, consumer, queue, job, stream.pusher(),
                await stream.producer("named"),
            )  # fmt: skip
            for thing in things:
                for said, verb, arguments in wrong_calls(type(thing).__name__):
                    try:
                        async with asyncio.timeout(5.0):
                            got = await outcome(getattr(thing, verb), arguments)
                    except Exception as error:
                        if fault := fault_of(error):
                            found.append(f"{said}: {fault}")
                    else:
                        found.append(f"{said}: accepted, {got!r}")
    assert not found, "\n".join(found)


async def test_blocking_calls_refuse_it_as_well(tmp_path: Path) -> None:
    async with Node(node_config(tmp_path)) as node:
        address = f"noise://{node.addresses()['noise']}"
        found = await asyncio.to_thread(blocking_faults, address, node.identity)
    assert not found, "\n".join(found)


def blocking_faults(address: str, identity: str) -> list[str]:
    found: list[str] = []
    with connect_blocking(address, identity=CLIENT, node_identity=identity) as client:
        stream = client.stream("s")
        stream.push_many([b"%d" % number for number in range(9)])
        with stream.work("jobs") as queue, stream.consumer("reader") as consumer:
            things = {
                Client: client, Stream: stream, Consumer: consumer, WorkQueue: queue,
                Job: queue.next(timeout=10.0), Pusher: stream.pusher(),
                NamedProducer: stream.producer("named"),
            }  # fmt: skip
            for one, thing in things.items():
                for said, verb, arguments in wrong_calls(one.__name__):
                    if not hasattr(thing, verb) or not takes(getattr(thing, verb), arguments):
                        continue
                    try:
                        got = blocking_outcome(getattr(thing, verb)(**arguments))
                    except Exception as error:
                        if fault := fault_of(error):
                            found.append(f"{said}: {fault}")
                    else:
                        found.append(f"{said}: accepted, {got!r}")
    return found


def takes(verb: Callable[..., Any], arguments: dict[str, Any]) -> bool:
    """Whether a blocking verb has all of these arguments."""
    try:
        inspect.signature(verb).bind(**arguments)
    except TypeError:
        return False
    return True


def blocking_outcome(made: Any) -> Any:
    """What comes of a call, as of `outcome`."""
    if type(made) in (BlockingConsumer, BlockingWorkQueue):
        with made:
            return made
    return next(made) if hasattr(made, "__next__") else made


NAMED: Final[tuple[tuple[str, dict[str, Any], str], ...]] = (
    ("pusher", {"in_flight": 2.5}, "in_flight"),
    ("pull", {"index": 2**64}, "index"),
    ("pull", {"start": "1h"}, "a time"),
    ("consumer", {"name": "c", "max_in_flight": 1.5}, "max_in_flight"),
    ("tail", {"start": True}, "start"),
    ("work", {"queue": "q", "queue_in_flight": "5"}, "queue_in_flight"),
    ("producer", {"name": NO_TEXT}, "name"),
)


async def test_the_error_names_the_argument_and_is_pythons_own_as_well(tmp_path: Path) -> None:
    async with Node(node_config(tmp_path)) as node, await connect_to(node) as client:
        stream = await client.stream("s")
        for verb, arguments, named in NAMED:
            with pytest.raises(ArgumentError, match=f"^{named} ") as caught:
                await outcome(getattr(stream, verb), arguments)
            assert caught.value.code == "client.argument"
            assert isinstance(caught.value, TypeError)
            assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("argument", CONNECT)
async def test_what_cannot_be_an_argument_of_connect_is_refused(argument: str) -> None:
    right: dict[str, Any] = {"url": "noise://127.0.0.1:1", "node_identity": "00" * 32}
    for value in CONNECT[argument]:
        given = {**right, argument: value}
        with pytest.raises(ArgumentError, match=f"^{argument} "):
            await connect(**given)
        with pytest.raises(ArgumentError, match=f"^{argument} "):
            await asyncio.to_thread(connect_blocking, **given)
