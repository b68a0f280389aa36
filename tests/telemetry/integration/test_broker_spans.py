"""Spans of what Streamr's and NextGraph's clients publish and are sent."""

import asyncio
from pathlib import Path
from typing import Final

from nextgraph_document import ACCESS, ALICE, BRANCH, INNER, REPO, TOPIC, commit
from nodes import node_config
from rillnode import nextgraph
from rillnode.codecs.streamr.ethereum import EthereumKey
from rillnode.node.config import GrantTable
from rillnode.node.nextgraph.config import NextgraphListener
from rillnode.node.runtime import Node
from rillnode.node.streamr.client.client import Client
from rillnode.node.streamr.client.endpoints import endpoints_of
from rillnode.node.streamr.config import StreamrListener
from span_support import Kept, told
from streamr_keys_support import rsa_key

SECONDS: Final = 60.0
BODY: Final = b"body"


async def test_streamr_subscribers_are_sent_a_delivery(tmp_path: Path) -> None:
    grants = (GrantTable(who="eth:*", streams="*", may=("create",)),)
    config = node_config(tmp_path, *grants).having(StreamrListener(listen="127.0.0.1:0"))
    kept = Kept()
    async with asyncio.timeout(SECONDS), Node(config, given={"telemetry": kept.tracer}) as node:
        endpoints = endpoints_of(f"ws://{node.addresses()['streamr']}")
        client = Client(endpoints, key=EthereumKey(bytes([1]) * 32), make_rsa_key=rsa_key)
        async with client:
            await client.open()
            await client.create_stream("s")
            async with await client.subscribe("s") as messages:
                await client.publish("s", {"n": 1})
                assert (await anext(messages)).content == {"n": 1}
        push, deliver = kept.one("push s"), kept.one("deliver s")
        assert told(push)["batch.message_count"] == told(deliver)["batch.message_count"] == 1
        assert told(deliver)["destination.partition.id"] == "0"
        assert not [name for name in node.status()["actors"] if "Traced" in name]


async def test_followers_of_a_topic_are_sent_a_delivery(tmp_path: Path) -> None:
    listener = NextgraphListener(listen="127.0.0.1:0", registration="open")
    config = node_config(tmp_path).having(listener)
    made = commit(BODY)
    kept = Kept()
    async with asyncio.timeout(SECONDS), Node(config, given={"telemetry": kept.tracer}) as node:
        url = f"ws://{node.addresses()['nextgraph']}"
        broker = bytes.fromhex(node.facts["nextgraph_peer_id"])
        async with (
            await nextgraph.connect(url, user=ALICE, broker=broker) as laptop,
            await nextgraph.connect(url, user=ALICE, broker=broker) as phone,
        ):
            await laptop.pin(REPO, ACCESS, publish=[TOPIC])
            # Nobody but the publisher follows: nothing is delivered.
            await laptop.publish(INNER, TOPIC, BRANCH, made)
            (push,) = [name for name in kept.names if name.startswith("push ")]
            deliver = push.replace("push", "deliver", 1)
            assert kept.all(deliver) == []
            await phone.pin(REPO, ACCESS, publish=[TOPIC])
            after = commit(BODY, [made.reference.id])
            async with await phone.subscribe(INNER, REPO, TOPIC.public_key) as events:
                await laptop.publish(INNER, TOPIC, BRANCH, after)
                await anext(events)
            span = told(kept.one(deliver))
            assert span["batch.message_count"] == 1
            assert span["message.body.size"] > len(BODY)
        assert not [name for name in node.status()["actors"] if "Traced" in name]
