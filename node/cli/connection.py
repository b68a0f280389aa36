"""Finds the node that a verb asks: options, environment, ./node.toml, context, `--dev` node."""

import argparse
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rillnode.codecs.errors import ConfigError
from rillnode.node.cli.parsing import Parser
from rillnode.node.cli.terminal import Terminal

if TYPE_CHECKING:
    from rillnode.codecs.keys import Identity
    from rillnode.node.client import Client
    from rillnode.node.config import Config, ListenAddress

CONFIG_FILE: Final = Path("node.toml")
_SCHEME: Final = "noise://"
_INTERRUPTED_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Target:
    """A node to talk to, and as whom; all as `connect` takes them."""

    url: str
    node_identity: str
    key: Path | None

    @property
    def identity(self) -> "Identity | None":
        """The key in the file.

        Raises:
            ConfigError: it cannot be read.
        """
        from rillnode.node.keys.files import read_key

        return None if self.key is None else read_key(self.key)


def add_connection_options(parser: Parser) -> None:
    """Let a verb take the options that name a node."""
    parser.set_defaults(asks_node=True)
    group = parser.add_argument_group("node")
    group.add_argument(
        "-c", "--config", type=Path, metavar="FILE",
        help="take address, identity and admin key from this node.toml (default: ./node.toml)",
    )  # fmt: skip
    group.add_argument(
        "--context", metavar="NAME", help="take them from what `rillnode context add` has saved"
    )
    group.add_argument("--node", metavar="URL", help="address of the node: noise://HOST:PORT")
    group.add_argument(
        "--key", type=Path, metavar="FILE",
        help="your key file; without one, a new key, for nodes that let everybody in",
    )  # fmt: skip
    group.add_argument(
        "--node-identity",
        metavar="HEX",
        help="node's public key (see its banner); separate several with commas",
    )


@asynccontextmanager
async def connected(
    args: argparse.Namespace, terminal: Terminal, *, reconnect: bool = True
) -> "AsyncGenerator[Client]":
    """Connect to the node that the options name, for the time of the block.

    Where it is not to `reconnect`, what is under way fails when the link ends; else people are
    told of a lost link, and when there is one again. An interrupt waits for nothing.

    Raises:
        ConfigError: the options do not name one.
        TransportError: it is out of reach.
    """
    import asyncio

    from rillnode.node.client import connect

    target = find_target(args, terminal)

    def lost(reason: str) -> None:
        if reconnect:
            terminal.message(f"link lost ({reason}), trying again")

    async with await connect(
        target.url,
        identity=target.identity,
        node_identity=target.node_identity,
        reconnect=reconnect,
        on_disconnect=lost,
        on_reconnect=lambda: terminal.message("link is back"),
    ) as client:
        try:
            yield client
        except asyncio.CancelledError:
            await client.close(timeout_seconds=_INTERRUPTED_SECONDS)
            raise


def config_file(named: Path | None) -> Path | None:
    """The configuration that was named, or else the one of this directory, if there is one."""
    return named or (CONFIG_FILE if CONFIG_FILE.is_file() else None)


def find_target(args: argparse.Namespace, terminal: Terminal) -> Target:
    """Work out which node to talk to.

    Raises:
        ConfigError: there is neither a configuration nor all that stands for one.
    """
    if args.config is not None and args.context is not None:
        raise ConfigError("config.connection", "-c and --context name two nodes: leave one out")
    url, identity, key = args.node, args.node_identity, args.key
    if url:
        _check_url(f"--node {url}", url)
    if identity:
        _check_identities(identity)
    if args.config or args.context or not (url and identity):
        found = _configured(args, terminal) or _found(args, terminal)
        if found is not None:
            url, identity, key = url or found.url, identity or found.identities, key or found.key
    if not url and not identity:
        text = (
            "no node named: there is no node.toml here, no context is selected, no node of "
            "`rillnode run --dev` runs, and neither -c nor --node was given"
        )
        raise ConfigError("config.connection", text)
    if not identity:
        raise ConfigError("config.node", f"--node {url} needs --node-identity beside it, or -c")
    if not url:
        raise ConfigError("config.node", "--node-identity needs --node beside it, or -c")
    _check_url(url, url)
    if args.key is not None and hasattr(args, "entry_key") and not args.key.exists():
        text = f"{args.key}: no such file; --key is your key file, --entry-key the key of an entry"
        raise ConfigError("key.file", text)
    return Target(url, identity, key)


@dataclass(frozen=True, slots=True)
class _Place:
    """What was found of a node, before its key is read."""

    url: str
    identities: str
    key: Path | None


def _configured(args: argparse.Namespace, terminal: Terminal) -> _Place | None:
    """What a configuration says of its node, where the options or the directory have one."""
    from rillnode.node.config import load_config
    from rillnode.node.contexts import named

    elsewhere = args.node or args.context or named(terminal.environ)
    file: Path | None = args.config if elsewhere else config_file(args.config)
    if file is None:
        return None
    config = load_config(file, (), terminal.environ)
    url = args.node or _url(config.noise.address)
    return _Place(url, args.node_identity or _identities(config), config.admin_key_file)


def _found(args: argparse.Namespace, terminal: Terminal) -> _Place | None:
    """What the environment, a context or a node of `--dev` says of it."""
    from rillnode.node.contexts import find

    if args.node and not args.context:
        return None  # whose identity that of another node is not
    found = find(terminal.environ, name=args.context)
    if found is None:
        return None
    context = found.context
    key = None if context.key_file is None else Path(context.key_file)
    return _Place(context.url, context.node_identity, key)


def target_of(config: "Config") -> Target:
    """The node of a configuration, and its administrator.

    Raises:
        ConfigError: it does not say where the node is, or there are no keys.
    """
    url = _url(config.noise.address)
    return Target(url, _identities(config), config.admin_key_file)


def refuse_another(args: argparse.Namespace, terminal: Terminal, config: "Config") -> None:
    """Refuse options that name another node than a configuration, where a verb needs both.

    Raises:
        ConfigError: they do.
    """
    from rillnode.node.contexts import named

    found = args.context or (named(terminal.environ) and args.config is None)
    if not (args.node_identity or found) or not config.key_file.exists():
        return
    target = find_target(args, terminal)
    if set(_identities(config).split(",")).isdisjoint(target.node_identity.split(",")):
        text = f"{target.url} is another node than that of {config.data_dir}"
        raise ConfigError("config.another", text)


def _identities(config: "Config") -> str:
    from rillnode.node.keys.rotation import rotation_identities

    return ",".join(rotation_identities(config.key_file))


def _url(listen: "ListenAddress") -> str:
    if listen.port == 0:
        text = "noise.listen has port 0: name the port that the node took with --node"
        raise ConfigError("config.node", text)
    return f"{_SCHEME}{_reachable(listen)}"


def _reachable(listen: "ListenAddress") -> "ListenAddress":
    """The address to dial for an address that was listened on: every address means this machine."""
    from rillnode.node.config import ListenAddress

    try:
        address = ip_address(listen.host)
    except ValueError:
        return listen
    if not address.is_unspecified:
        return listen
    return ListenAddress("127.0.0.1" if address.version == 4 else "::1", listen.port)


def _check_identities(identities: str) -> None:
    from rillnode.codecs.keys import parse_identities

    try:
        parse_identities(identities)
    except ConfigError as error:
        raise ConfigError("config.node", f"--node-identity: {error.text}") from None


def _check_url(shown: str, url: str) -> None:
    from rillnode.node.config import parse_address

    try:
        if not url.startswith(_SCHEME) or parse_address(url.removeprefix(_SCHEME)).port == 0:
            raise ValueError
    except ValueError:
        raise ConfigError("config.node", f"{shown}: expected noise://HOST:PORT") from None
