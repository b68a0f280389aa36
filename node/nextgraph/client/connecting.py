"""Ways to a broker: as a client, or as anybody who fetches a wallet or an object."""

import os
import ssl
from collections.abc import Sequence
from typing import Final

import aiohttp

import rillnode
from rillnode.actors.ports import Entropy
from rillnode.codecs.errors import CodecError
from rillnode.codecs.keys import SEED_BYTES, Identity
from rillnode.codecs.nextgraph.blocks import Block
from rillnode.codecs.nextgraph.client_dialogue import ClientDialogue, ClientLogin
from rillnode.codecs.nextgraph.external import (
    Blocks,
    ExportedWallet,
    ExtObjectGet,
    ExtRequest,
    ExtResponse,
    WalletGetExport,
)
from rillnode.codecs.nextgraph.start import ClientInfo, ClientType, Registration
from rillnode.codecs.nextgraph.types import KEY_BYTES, OverlayId
from rillnode.node.nextgraph.client.client import Client
from rillnode.node.nextgraph.client.connection import refusal
from rillnode.node.nextgraph.client.wire import ask_external

_WAIT_SECONDS: Final = 660.0
"""How long a device waits at a rendezvous: a minute more than a rillnode lets it."""

_ASK_SECONDS: Final = 60.0


async def connect(
    url: str,
    *,
    broker: bytes,
    user: Identity,
    client: Identity | None = None,
    invitation: bytes | None = None,
    register: bool = True,
    tls: ssl.SSLContext | None = None,
    entropy: Entropy | None = None,
) -> Client:
    """Connect to a NextGraph broker: `ws://host:port` is a rillnode's `nextgraph` listener.

    Args:
        url: of the WebSocket.
        broker: the broker's peer id, 32 bytes; another one is refused.
        user: who it speaks for.
        client: the program's own key; None: a new one.
        invitation: the code to be registered with.
        register: wish to be registered if the user is not, with or without a code.
        tls: how brokers are verified; None: by the system's authorities.
        entropy: makes the keys of the connection; None: the machine does.

    Raises:
        HandshakeError: the broker lets the user not in (`nextgraph.invitation_required`,
            `nextgraph.access_denied`, `nextgraph.expired`), or is another one.
        TransportError: it is not reached.
        CodecError: `key.point`, its peer id is no key.
    """
    entropy = entropy or os.urandom
    wish = Registration(invitation) if register else None
    login = ClientLogin(
        user=user,
        client=client or Identity.from_seed(entropy(SEED_BYTES)),
        info=ClientInfo(ClientType.NODE_SERVICE, "{}", rillnode.__version__, 0, 0),
        registration=wish,
    )
    one = Client(broker, entropy)
    await one.open(url, login, tls)
    return one


async def fetch_wallet(
    url: str,
    *,
    broker: bytes,
    rendezvous: bytes,
    waits: bool = False,
    tls: ssl.SSLContext | None = None,
    entropy: Entropy | None = None,
) -> bytes:
    """Fetch a wallet that another device left with `Client.leave_wallet`; it can be once.

    Args:
        url: of the WebSocket.
        broker: the broker's peer id.
        rendezvous: what the other device left it under.
        waits: wait until the other device hands it over.
        tls: see `connect`.
        entropy: see `connect`.

    Raises:
        RequestError: `nextgraph.not_found`; `nextgraph.export_wallet_time_out`, nobody has come.
        HandshakeError, TransportError, CodecError: as `connect`.
    """
    content = WalletGetExport(rendezvous, waits)
    seconds = _WAIT_SECONDS if waits else _ASK_SECONDS
    answer = await _ask(url, broker, content, seconds, tls, entropy)
    if not isinstance(answer.content, ExportedWallet):
        raise CodecError("nextgraph.answer", "the broker has answered without a wallet")
    return answer.content.wallet


async def fetch_objects(
    url: str,
    *,
    broker: bytes,
    overlay: OverlayId,
    ids: Sequence[bytes],
    files: bool = False,
    tls: ssl.SSLContext | None = None,
    entropy: Entropy | None = None,
) -> list[Block]:
    """Read objects of an outer overlay that is exposed, without being a user of the broker.

    Those that the broker has: what is missing is found out by joining them.

    Args:
        url: of the WebSocket.
        broker: the broker's peer id.
        overlay: the outer overlay.
        ids: roots of the objects.
        files: and the files that commits among them name.
        tls: see `connect`.
        entropy: see `connect`.

    Raises:
        RequestError: `nextgraph.overlay_not_found`; `nextgraph.not_found`, there is none of them.
        HandshakeError, TransportError, CodecError: as `connect`.
    """
    content = ExtObjectGet(overlay, list(ids), files)
    answer = await _ask(url, broker, content, _ASK_SECONDS, tls, entropy)
    if not isinstance(answer.content, Blocks):
        raise CodecError("nextgraph.answer", "the broker has answered without blocks")
    return answer.content.blocks


async def _ask(
    url: str,
    broker: bytes,
    content: WalletGetExport | ExtObjectGet,
    seconds: float,
    tls: ssl.SSLContext | None,
    entropy: Entropy | None,
) -> ExtResponse:
    entropy = entropy or os.urandom
    peer = Identity.from_seed(entropy(SEED_BYTES))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls or True)) as http:
        request = ExtRequest(0, content)
        dialogue = ClientDialogue(peer, broker, request, ephemeral=entropy(KEY_BYTES))
        answer = await ask_external(http, url, dialogue, seconds=seconds)
    if answer.result:
        raise refusal(answer.result)
    return answer
