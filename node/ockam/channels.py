"""Secure channels of a node: its key for them, their listener, what there is to see of them."""

from collections.abc import Iterable
from typing import Any

from rillnode.actors.core.links.connection import PeerContext
from rillnode.actors.engine.system import Cell
from rillnode.actors.ockam.channel import ChannelContext
from rillnode.actors.ockam.channel_listener import ADDRESSES, ChannelListener
from rillnode.actors.ports import Entropy
from rillnode.codecs.channel_key import KEY_BYTES, ChannelKey
from rillnode.node.config import Config
from rillnode.node.keys.files import read_channel_key, read_or_make_channel_key
from rillnode.node.ockam.config import KEY_FILE, channels_of


class Channels:
    """Does nothing where the configuration has no `[ockam]` table, or no channels in it.

    Args:
        config: of the node.
        entropy: where random bytes are from.
        key: another key than the one in the key file, which is not looked for then.

    Raises:
        ConfigError: the key's file cannot be used.
    """

    def __init__(self, config: Config, entropy: Entropy, key: ChannelKey | None = None) -> None:
        self._table = channels_of(config)
        self._context: ChannelContext | None = None
        if self._table is not None:
            # A configured key that is not there is a mistake, not a wish for another one.
            file = self._table.key_file
            self._key = key or (
                read_or_make_channel_key(config.data_dir / KEY_FILE, entropy(KEY_BYTES))
                if file is None
                else read_channel_key(file)
            )

    @property
    def key(self) -> str | None:
        """The public half of the node's key, hex; None where it has no channels."""
        return None if self._table is None else self._key.public_hex

    def start(self, peers: PeerContext) -> None:
        """Let peers open channels."""
        table = self._table
        if table is None:
            return
        context = self._context = ChannelContext(
            system=peers.system,
            router=peers.router,
            access=peers.access,
            entropy=peers.entropy,
            key=self._key,
            allow=frozenset(map(bytes.fromhex, table.allow)),
            handshake_seconds=table.handshake_seconds_max,
            idle_seconds=table.idle_seconds,
            channels_max=table.channels_max,
            channels_per_connection_max=table.channels_per_connection_max,
        )
        cell = peers.system.spawn(lambda: ChannelListener(context))
        for address in ADDRESSES:
            peers.router.register(address, cell)

    @property
    def open(self) -> Iterable[Cell]:
        """The channels that there are."""
        return () if self._context is None else self._context.open

    def status(self) -> dict[str, Any] | None:
        """The node's key, how many channels are open, and what became of the others."""
        context = self._context
        if context is None:
            return None
        return {"key": self.key, "open": len(context.open), "counters": dict(context.counters)}
