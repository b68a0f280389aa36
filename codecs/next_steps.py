"""The next step for everything that can go wrong, as commands, pages and the log tell it.

Plug-ins bring theirs (`codecs.words`), for codes and events of their own: what is here stands.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final

from rillnode.codecs.errors import CodecError, RillnodeError
from rillnode.codecs.words import brought_words

_GRANT: Final = "grant your key: `rillnode key grant FILE` prints the [[grant]] for node.toml"
_ROUTE: Final = "check the route; `rillnode peer ls` shows which peers are in reach"
_WRITE: Final = "make room there, or name a directory that you may write to"
_PEER: Final = "the other side sent what cannot be read: compare the versions of both"

TRACEBACK: Final = "mend it where the traceback names code of yours, else report it"
"""The step for an event that only a mistake in a program can cause."""

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
    "client": "check what the client was given, and connect again",
    "config": "correct it, then `rillnode config check -c FILE`",
    "config.another": "name the configuration of the one that you mean with -c",
    "config.connection": "`rillnode init` makes a node.toml; or see `--node` in the help",
    "config.exists": "`rillnode run -c FILE` runs what is there; init takes another directory",
    "config.file": "check the path after -c",
    "config.unwritable": _WRITE,
    "config.node": "the node's banner shows both: --node noise://HOST:PORT --node-identity HEX",
    "config.none": "`rillnode init` makes a node.toml, `rillnode run -c FILE` takes one",
    "client.argument": "give the argument that is named a value such as is asked for",
    "client.time": "say it as `2026-01-31T12:00:00Z`, or how long ago, as `90s`",
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
    "context.environment": "set the variables to what the node's banner shows, or unset them",
    "context.unwritable": _WRITE,
    "copy": "name a target that holds nothing yet; what is copied from stays as it is",
    "copy.running": "end it with Ctrl-C or SIGTERM; a copy without --final lets it run",
    "entries": "push smaller entries",
    "entries.header_name": "name headers by texts",
    "entries.headers": "send fewer headers, or shorter ones",
    "entries.key": "choose a shorter key",
    "follow": "follow a pattern that stands for fewer streams",
    "follow.invalid": "correct the pattern, or begin from start, end or a position as it was",
    "group": "`rillnode index ls` shows who shares what; a name is a group's or one consumer's",
    "http": "send what the text says",
    "http.cross_site": "open the address by itself, or ask from a program",
    "http.host": "see `[http]` in the configuration: listen, token_file",
    "http.no_token": "see `[http]` in the configuration: listen, token_file",
    "http.token": "see `[http]` in the configuration: listen, token_file",
    "index": "`rillnode index ls STREAM` shows the saved positions",
    "input": "correct the line, or see `--format` and `--key-field`, over HTTP `key_field`",
    "key": "`rillnode key show FILE` checks a key file, `rillnode key new FILE` makes one",
    "key.unwritable": _WRITE,
    "link": "`rillnode run` starts a node; its banner says where it listens",
    "listen": "`--set LISTENER.listen=127.0.0.1:0` takes a free port; or change node.toml",
    "message": _ROUTE,
    "message.size": "send a smaller payload",
    "node.failed": "start the node again, what was confirmed is kept; its log tells what failed",
    "node": "wait until the node is ready: /readyz tells what it waits for",
    "noise": "check that a `noise` listener has this address, and the versions of both",
    "noise.unknown_identity": _GRANT,
    "noise.wrong_node": "`rillnode key show` on the node's identity.key prints its identity",
    "ockam": "name the other `dialect` in its [[peer]]",
    "once": "send each new thing under a key of its own",
    "once.size": "send it in parts, each under its own key",
    "output": "make room where stdout goes, or send it elsewhere",
    "peer": "`rillnode peer ls` shows the peer's address and why it is out of reach",
    "plugin": "install what is missing; in a clone of rillnode, `make setup`",
    "producer.fenced": "let only one process push by this name",
    "producer.name": "choose another name",
    "producer.order": "push again from the one after the producer's `last_sequence`",
    "producer.sequence": "numbers ascend from 0",
    "producer.stale": "continue after the producer's `last_sequence`",
    "program": "see what the program says where it runs",
    "pusher": "leave `in_flight` out, or give it a positive number",
    "queue": "`rillnode queue show STREAM QUEUE` tells how it stands",
    "queue.limit": "ask for what the text allows",
    "queue.name": "choose another name: one belongs to a consumer, a group or a queue",
    "queue.unknown": "`rillnode queue ls` lists those that there are",
    "quota": "`rillnode stream trim` and `stream rm` make room; [[quota]] on the node sets it",
    "quota.rate": "push again a little later, or less in each second",
    "request": "try again; `rillnode status` tells whether the node is busy",
    "route": _ROUTE,
    "route.busy": "look up less at once, or try again",
    "route.kept": "`rillnode actor show ROUTE` tells what it is",
    "route.refused": _GRANT,
    "serve": "serve fewer addresses over one link, or with fewer open calls",
    "serve.revoked": _GRANT,
    "serve.stopped": "serve it again, if still wanted",
    "store": "see the node's log; `rillnode status` tells whether the store takes writes",
    "store.full": "`df` tells what is left on the disk",
    "store.locked": "stop the other node, or name another directory with --data-dir",
    "store.trimmed": "ask again; if it stays so, start a node that has more of the log",
    "store.unreadable": "see the disk's log; `rillnode restore BACKUP` makes a store of a backup",
    "store.unreachable": "see whether the servers of [store] run, and the node reaches them",
    "store.unsynced": "have the servers of [store] sync what they confirm, as the text says",
    "stream": "`rillnode stream show NAME` shows a stream's partitions and limits",
    "stream.invalid": "choose a name, or a number, that the text allows",
    "stream.unknown": "add the grant, if one is named; `rillnode stream ls` lists what you may see",
    "stream.schema": "correct the entry, or its class",
    "subscription.stopped": "follow it again, if still wanted",
    "subscription": "close subscriptions that are not read, or make another link",
    "testing": "see the docstring of `rillnode.testing.Network`",
    "where": "`rillnode stream pull --help` tells what a condition is",
    "usage": "repeat the command with --yes if that is what you mean",
}
"""By code, or by what stands before its dot."""

EVENT_STEPS: Final = {
    "actor_stopped_by_failure": "the lines `actor_failed` before this one tell why",
    "bad_delivery": TRACEBACK,
    "completion_failed": TRACEBACK,
    "config_not_reloaded": "the node goes on as before; correct it, and send SIGHUP again",
    "connection_failed": TRACEBACK,
    "essential_actor_ended": "start the node again, what was confirmed is kept",
    "frame_damaged": "check the disks of the log's servers",
    "health_not_told": TRACEBACK,
    "loop_interrupted": TRACEBACK,
    "node_failed": "start the node again, what was confirmed is kept",
    "not_answered": TRACEBACK,
    "not_told": TRACEBACK,
    "not_written": TRACEBACK,
    "operation_failed": TRACEBACK,
    "plug_in_failed": TRACEBACK,
    "position_beyond_end": "begin at another index if the log is not the one that this is of",
    "read_failed": "check the disk and its log",
    "shard_failed": TRACEBACK,
    "shard_not_opened": "`rillnode status` tells why, and whether the node tries again",
    "snapshot_not_taken": "an earlier one is tried; check the disks of the log's servers",
    "stop_cut_short": "start it again, what was confirmed is kept",
    "store_failed": "the store is opened again by itself; if it stays so, check the disk",
    "store_not_writable": "writes are refused until it is; reads go on",
    "thread_ended": "start the node again, what was confirmed is kept",
    "views_differ": "report it; the node makes its view anew by itself",
    "words_not_read": "update or remove that package; until then its addresses are anybody's",
    "work_abandoned": "make the actor end when it is asked to: it caught its cancellation",
}
"""By the name of a log line's event, for those that need another step than their code has."""


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
    if not code:
        return ""
    for key in (code, code.partition(".")[0]):
        if step := NEXT_STEPS.get(key) or _brought_steps().get(key):
            return step
    return ""


def step_after(event: str, details: Mapping[str, object]) -> str:
    """The step for an event of the log: its own, or that of the code among its details."""
    if step := EVENT_STEPS.get(event) or _brought_event_steps().get(event):
        return step
    return step_of(str(details.get("code", "")))


def every_step() -> dict[str, str]:
    """The steps by code or family, with those that plug-ins bring, for who describes them."""
    return {**_brought_steps(), **NEXT_STEPS}


@cache
def _brought_steps() -> dict[str, str]:
    return {code: step for words in brought_words() for code, step in words.steps.items()}


@cache
def _brought_event_steps() -> dict[str, str]:
    return {event: step for words in brought_words() for event, step in words.event_steps.items()}
