"""A client of Streamr servers, for asyncio: publish, subscribe, resend, exchange keys."""

from rillnode.node.streamr_client.client import Client
from rillnode.node.streamr_client.connecting import connect
from rillnode.node.streamr_client.message import Message
from rillnode.node.streamr_client.resends import From, Last, Range, Resend
from rillnode.node.streamr_client.streams import Operation, Permission, StreamInfo
from rillnode.node.streamr_client.subscription import Subscription

__all__ = [
    "Client",
    "From",
    "Last",
    "Message",
    "Operation",
    "Permission",
    "Range",
    "Resend",
    "StreamInfo",
    "Subscription",
    "connect",
]
