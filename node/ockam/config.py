"""The tables of Ockam: its listener with secure channels, and hub services."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Final, Self

from msgspec import Meta, Struct
from msgspec.structs import replace

from rillnode.actors.ockam.names import SERVICE_NAMES, ServiceName
from rillnode.codecs.limits import HANDSHAKE_SECONDS_MAX
from rillnode.codecs.ockam.limits import (
    CHANNEL_IDLE_SECONDS,
    CHANNELS_MAX,
    CHANNELS_PER_CONNECTION_MAX,
)
from rillnode.node.config.kinds import Count, HostPort, KeyHex, Seconds, SecondsOrNever
from rillnode.node.config.listener_tables import LinkListener
from rillnode.node.config.plug_in_table import PlugInTable
from rillnode.node.config.problem import Problem
from rillnode.node.config.tables import Config

KEY_FILE: Final = "ockam.key"
"""Of secure channels, in the node's `data_dir`, where the configuration names no other."""


class ChannelTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Secure channels that peers open to this node, at `SC_listener`, over any route.

    The principal of a channel's messages is `ockam:` and its key, 64 hexadecimal digits.

    Attributes:
        enabled: Whether peers may open secure channels.
        key_file: The node's X25519 key for channels, in hexadecimal. Default: `ockam.key` in
            `data_dir`.
        allow: Public X25519 keys that may open a channel; empty means every key may.
        handshake_seconds_max: Time a peer has to finish the handshake.
        idle_seconds: A channel without a message for this time, or up to twice as long, is closed.
        channels_max: Channels open at one time.
        channels_per_connection_max: Channels open at one time over one connection.
    """

    enabled: bool = True
    key_file: Annotated[Path | None, Meta(examples=["data/ockam.key"])] = None
    allow: Annotated[
        tuple[KeyHex, ...], Meta(title="a list of keys, 64 hexadecimal digits each")
    ] = ()
    handshake_seconds_max: Seconds = HANDSHAKE_SECONDS_MAX
    idle_seconds: Seconds = CHANNEL_IDLE_SECONDS
    channels_max: Count = CHANNELS_MAX
    channels_per_connection_max: Count = CHANNELS_PER_CONNECTION_MAX


class OckamListener(
    LinkListener, PlugInTable, frozen=True, forbid_unknown_fields=True, kw_only=True
):
    """Ockam TCP, for unmodified Ockam nodes. Off unless the table is present.

    Attributes:
        strict: Refuse what only nodes of 2021 took in u16 frames: other versions, bytes after the
            message, padded numbers.
        allow_plain: Allow an address other than loopback, although messages travel in clear.
        idle_close_seconds: After this time without receiving, the node closes; 0 means never.
        channel: The table `[ockam.channel]`: secure channels.
    """

    table: ClassVar[str] = "ockam"
    plug_in: ClassVar[str] = "ockam"
    tried: ClassVar[bool] = True

    listen: HostPort = "127.0.0.1:4000"
    strict: bool = False
    allow_plain: bool = False
    idle_close_seconds: SecondsOrNever = 0.0
    channel: ChannelTable = ChannelTable()

    @property
    def asks(self) -> bool:
        """Whether there are a listener or channels; these may come over other listeners, too."""
        return self.enabled or self.channel.enabled

    @property
    def in_clear(self) -> bool:
        """Whether nobody has said that messages may travel in clear beyond loopback."""
        return not self.allow_plain

    @classmethod
    def problems(cls, config: Config) -> Iterator[Problem]:
        """What is wrong with the key of channels."""
        path = channel_key_file(config)
        if path is not None and path in (config.key_file, config.admin_key_file):
            text = f"{path} is a key of another kind: name a file of its own"
            yield Problem(("ockam", "channel", "key_file"), "config.conflict", text)

    def in_effect(self, config: Config) -> Self:
        """The table with the file of the channels' key."""
        path = self.channel.key_file or config.data_dir / KEY_FILE
        return replace(self, channel=replace(self.channel, key_file=path))

    def key_files(self, config: Config) -> Mapping[str, Path]:
        """The file of the channels' key."""
        path = channel_key_file(config)
        return {} if path is None else {"channel key": path}


class ServicesTable(PlugInTable, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Services of an Ockam hub besides streams, for every peer that may connect.

    Off unless this table or `[ockam]` is present; a new `node.toml` has it. None of them gives
    access to streams.

    Attributes:
        enabled: The services that the node has; an empty list turns all off.
    """

    table: ClassVar[str] = "services"
    plug_in: ClassVar[str] = "ockam"
    written: ClassVar[bool] = True
    tried: ClassVar[bool] = True

    enabled: Annotated[
        tuple[ServiceName, ...], Meta(title=f"a list of {', '.join(SERVICE_NAMES)}")
    ] = SERVICE_NAMES

    @property
    def asks(self) -> bool:
        """Whether there are any."""
        return bool(self.enabled)

    @classmethod
    def problems(cls, config: Config) -> Iterator[Problem]:
        """What is wrong with the list."""
        for table in config.each(cls):
            if len({*table.enabled}) < len(table.enabled):
                yield Problem(("services", "enabled"), "config.conflict", "names a service twice")


def channels_of(config: Config) -> ChannelTable | None:
    """The table of secure channels, where there are any."""
    table = config.table(OckamListener)
    return table.channel if table is not None and table.channel.enabled else None


def channel_key_file(config: Config) -> Path | None:
    """The file of the node's key for secure channels, where there are any."""
    table = channels_of(config)
    return None if table is None else table.key_file or config.data_dir / KEY_FILE
