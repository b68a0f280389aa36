"""Exit codes, and the next step for everything that can go wrong."""

from enum import IntEnum
from typing import Final

from rillnode.codecs.errors import (
    CodecError,
    ConfigError,
    NodeFailed,
    RillnodeError,
    TransportError,
)


class Exit(IntEnum):
    """Exit codes of every command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NODE_FAILED = 4
    INTERRUPTED = 130


_GRANT: Final = "grant your key: `rillnode key grant FILE` prints the [[grant]] for node.toml"
_ROUTE: Final = "check the route; `rillnode peer ls` shows which peers are in reach"
_PEER: Final = "the other side sent what cannot be read: compare the versions of both"

NEXT_STEPS: Final = {
    "actor": "see the node's log: it tells which actor failed, and why",
    "address": _ROUTE,
    "address.unknown": "add the grant, if one is named; else check the route: `rillnode peer ls`",
    "address.invalid": "choose another address",
    "address.reserved": "choose another address",
    "address.taken": "choose another address, or serve it with --group everywhere",
    "append.many": "send fewer in each request",
    "backup": "see `rillnode backup --help`",
    "backup.elsewhere": "log in to the node's machine, or copy its backup from there",
    "backup.failed": "make room or choose another place; what was there before is as it was",
    "backup.harmed": "`rillnode verify BACKUP` tells which of your backups are whole",
    "backup.none": "name the directory that `rillnode backup` has made",
    "backup.nothing": "check -c and --data-dir; `rillnode run` makes the store at its first start",
    "backup.occupied": "name a directory that is not there yet",
    "backup.unsupported": "`rillnode config show` tells which store the node has",
    "backup.version": "restore it with the version of rillnode that made it, or a newer one",
    "bench": "`rillnode doctor` tells what a node would suffer from here",
    "call": "ask again, if it may be done twice",
    "channel": "open another channel; `rillnode key show --channel FILE` prints a listener's key",
    "client": "check what the client was given, and connect again",
    "config": "correct it, then `rillnode config check -c FILE`",
    "config.connection": "`rillnode init` makes a node.toml; or see `--node` in the help",
    "config.exists": "`rillnode run -c FILE` runs what is there; init takes another directory",
    "config.file": "check the path after -c",
    "config.none": "`rillnode init` makes a node.toml, `rillnode run -c FILE` takes one",
    "client.nowhere": "`rillnode run --dev` starts one for a try, `rillnode context add` names one",
    "console": "`rillnode console` makes a link to a new session",
    "console.anonymous": "name your key with --key; `rillnode key new FILE` makes one",
    "console.busy": "wait a minute",
    "console.off": "set it in node.toml, and start the node again",
    "console.proxy": "set tls_cert and tls_key in [http], or open the page without the proxy",
    "console.typed": "type the name as it is written on the page",
    "consumer": "open a consumer with values that it takes, and leave it after its last entry",
    "consumer.foreign": "acknowledge what this consumer has handed out, as it was",
    "context": "`rillnode context ls` lists what is saved, `context add` saves a node",
    "copy": "name a target that holds nothing yet; what is copied from stays as it is",
    "copy.running": "end it with Ctrl-C or SIGTERM; a copy without --final lets it run",
    "entries": "push smaller entries",
    "entries.many": "send them in several requests",
    "export": "give the sink a new directory: it exports what the node still has",
    "file": "stop the other process, or give each a directory of its own",
    "files": "copy the directory again from where the sink writes it",
    "follow": "follow a pattern that stands for fewer streams",
    "group": "`rillnode index ls` shows who shares what; a name is a group's or one consumer's",
    "gateway": "send what the text says; /openapi.json has all that can be sent",
    "gateway.busy": "close tails that nobody reads, or see `[gateway] tails_max`",
    "gateway.key": "`rillnode apikey new NAME` makes a key, [[gateway.apikey]] has its hash",
    "gateway.right": "a [[grant]] names the principal, and what it may do",
    "gateway.ticket": "POST /tickets makes another",
    "http": "send what the text says",
    "http.cross_site": "open the address by itself, or ask from a program",
    "http.host": "see `[http]` in the configuration: listen, token_file",
    "http.no_token": "see `[http]` in the configuration: listen, token_file",
    "http.token": "see `[http]` in the configuration: listen, token_file",
    "hub": "ask again; `rillnode peer ping NAME` tells whether the hub is in reach",
    "index": "`rillnode index ls STREAM` shows the saved positions",
    "input": "correct the line, or see `--format` and `--key-field` in the help",
    "job": "let `rillnode run` start the job: it writes its configuration",
    "key": "`rillnode key show FILE` checks a key file, `rillnode key new FILE` makes one",
    "landing": "let only one job land entries in a table: `rillnode sink ls` lists the node's",
    "link": "`rillnode run` starts a node; its banner says where it listens",
    "listen": "`--set LISTENER.listen=127.0.0.1:0` takes a free port; or change node.toml",
    "login": "check that the address is the server's: what it asks to be signed is no login",
    "message": _ROUTE,
    "message.size": "send a smaller payload",
    "nextgraph": "`rillnode nextgraph show` prints the broker's id, `nextgraph invite` invites",
    "node.failed": "start the node again, what was confirmed is kept; its log tells what failed",
    "node": "wait until the node is ready: /readyz tells what it waits for",
    "noise": "check that a `noise` listener has this address, and the versions of both",
    "noise.unknown_identity": _GRANT,
    "noise.wrong_node": "`rillnode key show` on the node's identity.key prints its identity",
    "ockam": "name the other `dialect` in its [[peer]]",
    "once": "send each new thing under a key of its own",
    "once.size": "send it in parts, each under a key of its own",
    "output": "make room where stdout goes, or send it elsewhere",
    "peer": "`rillnode peer ls` shows the peer's address and why it is out of reach",
    "pipeline.busy": "`rillnode sink pause NAME`, or stop the node; then try again",
    "pipeline.exists": "name a directory that is not there yet",
    "pipeline.write": "name a directory that you may write to",
    "pipeline": "see what the job has logged; `rillnode sink show NAME` has its last error",
    "plugin": "install what is missing; in a clone of rillnode, `make setup`",
    "producer.fenced": "let only one process push by this name",
    "producer.name": "choose another name",
    "producer.sequence": "numbers go up from 0",
    "producer.stale": "go on behind the producer's `last_sequence`",
    "program": "see what the program says where it runs",
    "pusher": "leave `in_flight` out, or give it a positive number",
    "queue": "`rillnode queue show STREAM QUEUE` tells how it stands",
    "quota": "`rillnode stream trim` and `stream rm` make room; [[quota]] on the node sets it",
    "quota.rate": "push again a little later, or less in each second",
    "request": "try again; `rillnode status` tells whether the node is busy",
    "resend": "ask for at least one message",
    "rest": "correct the request, or try again where the server is busy",
    "route": _ROUTE,
    "route.busy": "look up less at once, or try again",
    "route.kept": "`rillnode actor show ROUTE` tells what it is",
    "route.refused": _GRANT,
    "scenario": "docs/reference/simulation.md has every key of a scenario",
    "scenario.file": "check the path; configs/ of a checkout has scenarios to begin with",
    "scenario.function": "name it as `app.py:scenario`; it takes a `rillnode.testing.Network`",
    "serve": "serve fewer addresses over one link, or with fewer open calls",
    "serve.revoked": _GRANT,
    "serve.stopped": "serve anew, if that is still wanted",
    "session": "log in with a key or an API key that the node knows",
    "sim": "choose another file",
    "sim.faults": "leave --faults out: `faults` of what the run writes has all, with numbers",
    "sim.http": "leave --http out, or take a scenario with nodes, such as configs/sim-small.toml",
    "sim.plots": "install matplotlib, or leave --html out",
    "sink": "`rillnode sink ls` lists the node's sinks, `sink show NAME` tells how one is",
    "sink.install": "`rillnode doctor -c FILE` tells what else Spark needs",
    "sink.none": "a [[sink.spark]] in node.toml makes one",
    "spark": "see `rillnode pipeline --help`, and `rillnode doctor` for what Spark needs",
    "store": "see the node's log; `rillnode status` tells whether the store takes writes",
    "store.full": "`df` tells what is left on the disk",
    "store.locked": "stop the other node, or name another directory with --data-dir",
    "store.unsynced": "`rillnode doctor -c FILE` asks every server of [store] by itself",
    "store.unreachable": "`rillnode doctor -c FILE` asks every server of [store] by itself",
    "stream": "`rillnode stream show NAME` shows a stream's partitions and limits",
    "stream.unknown": "add the grant, if one is named; `rillnode stream ls` lists what you may see",
    "stream.schema": "mend the entry, or the class that it is to be of",
    "streamr": "the stream's owner grants permissions; a [[grant]] lets a user make streams",
    "subscription.stopped": "follow anew, if that is still wanted",
    "subscription": "close subscriptions that are not read, or make another link",
    "table": "`rillnode table show NAME` has a table's schema, its history and its rejects",
    "table.function": "mend the function, and resume the sink",
    "table.infer": "let the sink land some entries first: `rillnode sink ls` tells how far it is",
    "table.module": "set PYTHONPATH to where the module lies, or install it, and resume the sink",
    "table.pair": "stop the node, remove the table and its rejects, and start it",
    "testing": "see the docstring of `rillnode.testing.Network`",
    "where": "`rillnode stream pull --help` tells what a condition is",
    "view": "mend its `sql` or `slot`; `rillnode config check` tells what is wrong with them",
    "view.changed": "remove the view's directory, or give it another one",
    "usage": "repeat the command with --yes if that is what you mean",
}
"""By code, or by what stands before its dot."""


def exit_code(error: RillnodeError, *, asks_node: bool) -> Exit:
    """The code that a command ends with; a node that cannot listen is no node out of reach."""
    if isinstance(error, ConfigError):
        return Exit.USAGE
    if isinstance(error, NodeFailed):
        return Exit.NODE_FAILED
    if isinstance(error, TransportError) and asks_node:
        return Exit.UNREACHABLE
    return Exit.FAILED


def next_step(error: RillnodeError, command: str) -> str:
    """What the user can do about an error."""
    if step := step_of(error.code):
        return step
    if isinstance(error, CodecError):
        return _PEER
    if error.retryable:
        return "try again"
    return f"`{command} --help`"


def step_of(code: str) -> str:
    """The step for a code, or else for its family; nothing where there is none."""
    return NEXT_STEPS.get(code) or NEXT_STEPS.get(code.partition(".")[0], "")
