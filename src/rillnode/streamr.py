"""Streamr for Python applications: a client of a rillnode, or of any other Streamr server.

from rillnode import streamr

async with await streamr.connect("ws://127.0.0.1:8890", private_key=KEY) as client:
    await client.publish("sensors", {"celsius": 21.5}, partition=0)
"""

from rillnode.node.installed import needs_extra

try:
    from rillnode.codecs.streamr.encryption import GroupKey
    from rillnode.codecs.streamr.ethereum import EthereumKey
    from rillnode.codecs.streamr.stream_message import MessageId
    from rillnode.node.streamr.client import (
        Client,
        From,
        Last,
        Message,
        Operation,
        Permission,
        Range,
        Resend,
        StreamInfo,
        Subscription,
        connect,
    )
except ModuleNotFoundError as error:
    raise needs_extra("streamr", error) from error

__all__ = [
    "Client",
    "EthereumKey",
    "From",
    "GroupKey",
    "Last",
    "Message",
    "MessageId",
    "Operation",
    "Permission",
    "Range",
    "Resend",
    "StreamInfo",
    "Subscription",
    "connect",
]
