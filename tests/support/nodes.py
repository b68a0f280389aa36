"""Nodes for tests: everything allowed, every port free, everything below one directory."""

from pathlib import Path

import msgspec

from rillnode.actors.core.access import VERBS
from rillnode.node.config import Config, GrantTable, HttpListener, NoiseListener
from rillnode.node.ockam.config import OckamListener
from rillnode.node.testing.contract.nodes import (
    CLIENT as CLIENT,
    connect_to as connect_to,
    store_with as store_with,
)
from rillnode.node.testing.contract.ports import free_address


def node_config(directory: Path, *grants: GrantTable, strict: bool = False) -> Config:
    """A node with the listeners `noise`, `ockam` and `http`; without grants, all are allowed."""
    everything = tuple(
        GrantTable(who=who, streams="*", may=VERBS)
        for who in ("anonymous", f"noise:{CLIENT.public_hex}")
    )
    return Config(
        name="test",
        data_dir=directory,
        noise=NoiseListener(listen="127.0.0.1:0"),
        http=HttpListener(listen="127.0.0.1:0"),
        grants=grants or everything,
        tables=[OckamListener(listen="127.0.0.1:0", strict=strict)],
    )


def at_own_ports(config: Config) -> Config:
    """The same node where it is found again: nobody else is given its ports while it is stopped."""
    ockam = config.table(OckamListener)
    assert ockam is not None
    return msgspec.structs.replace(
        config, noise=msgspec.structs.replace(config.noise, listen=free_address())
    ).having(msgspec.structs.replace(ockam, listen=free_address()))
