"""Finds every error code of the source, with what is said and who raises it.

A code is a string constant such as `stream.unknown` of a family (`stream`) of which some code is
given to an error class. The text that belongs to it is the argument, or the item of the tuple,
that follows it.
"""

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Final

LAYERS: Final = ("codecs", "transports", "actors", "node")
_ROOT: Final = Path(__file__).parents[1]
_CODE: Final = re.compile(r"([a-z]+)\.[a-z_]+")
_WORTH_PARSING: Final = re.compile(r'"[a-z]+\.[a-z_]+"|class \w+\(\w*Error\)')
_BASE: Final = "RillnodeError"
_Function = ast.FunctionDef | ast.AsyncFunctionDef

# Constants that look like codes and are names of files, tables, fields, or counters.
_OTHERS: Final = {
    "backup.json",
    "ethereum.key",
    "gateway.apikey",
    "job.json",
    "job.lock",
    "last.seq",
    "last.ts",
    "nextgraph.key",
    "node.toml",
    "ockam.key",
    "sink.spark",
    "streamr.apikey",
    "telemetry.enabled",
}
# Families whose codes reach their error class by way of a variable.
_INDIRECT: Final = {"address", "listen", "peer"}
TEXTS_MAX: Final = 2

# What is not said where the code stands, or in too many ways.
_MEANINGS: Final = {
    "where.depth": "a condition is nested too deep",
    "where.length": "a condition has too many characters",
    "where.syntax": "a condition cannot be parsed; the text says where, and what is expected",
    "actor.allow": "`allow` names what is no principal; the text says what one looks like",
    "actor.busy": "too much waits for the actor: try again",
    "actor.failed": "the asked actor failed, or was restarted: the log says why",
    "actor.stopped": "the actor has ended, or ended before it came to the message",
    "actor.unsupported": "what this system does not do of Thespian's, or on other threads",
    "actor.would_block": "the asker would wait for itself: on the loop's thread or in a handler",
    "address.unknown": "no worker of the node has the next address of the route",
    "address.invalid": "a text that no address of an application can be",
    "address.reserved": "the node keeps addresses of this form for itself",
    "address.taken": "another client serves the address, or keeps it for its lease",
    "console.off": "admin sessions are off",
    "backup.harmed": "a file of the backup is missing, or is not what its checksum says",
    "block.id": "a block is not the one that its id names",
    "call.lost": "whoever had the call is gone, or has stopped; it may have been done",
    "channel.early": "a message came before the handshake was over, and was dropped",
    "channel.other_connection": "a channel's message came over another connection, and was dropped",
    "channel.too_large": "a message does not fit the link when it is sealed, and was dropped",
    "key.unwritable": "a key file cannot be written",
    "plugin.broken": "a plug-in cannot be imported; the text says which and why",
    "plugin.extra": "a plug-in needs an extra that is not installed; the text names it",
    "plugin.missing": "no installed package has the plug-in that a table asks for",
    "plugin.taken": "two installed packages have a plug-in or a table of the same name",
    "codec.cbor": "CBOR with an item of another kind, or of no definite length",
    "codec.envelope": "bytes that are no envelope of Ockam's",
    "codec.field": "a field has a value that its protocol does not allow",
    "codec.limit": "something is longer, larger, deeper or more than its limit",
    "codec.protocol": "a message of no known protocol",
    "codec.trailing": "bytes follow a message that is complete",
    "codec.truncated": "the bytes end inside a value, or a length says more than there is",
    "codec.varint": "a number that is too long, too large, or not in its shortest form",
    "commit.header": "a commit's header is missing, cannot be read, or is another one",
    "client.argument": "a call was given what cannot be one of its arguments",
    "client.key": "a client was given no key, or not in its environment",
    "client.time": "a time to read from has no zone, is below zero, or is not of a known form",
    "client.url": "the address is not of the form that the client takes",
    "config.conflict": "two settings do not go together",
    "config.connection": "it is not said which node to talk to, or how",
    "config.file": "the file cannot be found, read or written",
    "config.missing": "a setting that others need is missing",
    "config.syntax": "a setting or file that is no TOML, or not UTF-8",
    "config.unknown_key": "nothing knows this key",
    "config.value": "a value that its key cannot have; the text says which ones it can",
    "encryption.rsa": "no RSA key, or a text that was encrypted to another one",
    "files.damaged": "a file of ranges was cut short or changed",
    "follow.invalid": "an invalid pattern of streams, or position to follow from",
    "follow.limit": "the streams of a pattern have too many partitions to follow",
    "group.generation": "a partition is another member's by now, who alone saves its position",
    "group.in_use": "a group has this name: its members save its positions",
    "group.limit": "more members than a group, or a link, may have",
    "group.member": "the group does not know the member (any more): it joins again",
    "group.name": "the name is in use: by a group, or by a single consumer",
    "group.revoked": "the right to consume the stream has ended",
    "group.route": "a member joins over its own link, not through other nodes",
    "gateway.event": "a message that is no CloudEvents event, or not of specversion 1.0",
    "gateway.key": "the request bears no API key of this node, or one that was taken back",
    "gateway.right": "the asker has rights to the stream, but not this one",
    "gateway.ticket": "the ticket is not good for this, or not any more",
    "hub.lost": "the hub has no stream of this name any more",
    "hub.not_saved": "the hub has a position other than the one to be saved",
    "hub.timeout": "the hub has not answered in time",
    "http.accept": "the path has nothing of the types that the request accepts",
    "http.body": "the body is not the JSON that is asked for",
    "http.method": "the path takes another method",
    "http.path": "there is no such path",
    "http.type": "a body of a type, an encoding or a charset that is not taken",
    "key.exists": "the file exists, and keys are never overwritten",
    "key.full": "too much waits for keys already",
    "key.hex": "a key or token is written in hex digits, this is not",
    "key.length": "a key of another length",
    "key.line": "a line of a file of keys holds none",
    "key.kind": "entries of this kind are not decrypted, or not here",
    "key.mode": "others may read the key file",
    "key.size": "the file of keys is too long",
    "key.type": "a message that has no place in a key exchange",
    "link.closed": "there is no link to the node at the moment, or it was closed under a request",
    "link.duplicate": "the peer has made a link to this node by itself, which is used instead",
    "link.failed": "what serves a connection has failed: the log says why",
    "link.limit": "the listener has as many connections as it may, or as many from this address",
    "link.unfinished": "the peer did not finish a message, in time or within its limit",
    "link.unreachable": "a connection could not be made; the text has the system's reason",
    "message.route": "a route without addresses, or one whose end does not take the message",
    "message.size": "a message with its routes is larger than the next link takes",
    "network.type": "the network layer has no such message, or not from this side",
    "nextgraph.answer": "the broker has answered something else than was asked",
    "nextgraph.false": "the broker answers no, for instance that a repo is not pinned",
    "node.draining": "the node is stopping, and takes no further calls",
    "node.failed": "an actor that all need has failed too often; the text says which, when and why",
    "once.key": "an idempotency key has 1 to 255 characters",
    "once.other": "something else was stored under this key: use a new key for new entries",
    "once.size": "what is stored under one idempotency key is larger than one block of a partition",
    "peer.busy": "too much waits for a link to the peer",
    "peer.unreachable": "the peer cannot be reached; the text has the reason",
    "pipeline.exists": "the directory of a new pipeline is not empty",
    "pipeline.failed": "a Spark job has ended with an error",
    "pipeline.write": "a new pipeline cannot be written",
    "producer.fenced": "the producer's name was opened again since: only the last one may push",
    "producer.name": "a producer's name has 1 to 128 bytes in UTF-8",
    "producer.order": "what the producer had pushed before was not stored, so this was not, either",
    "producer.sequence": "a producer's number is none, or too large",
    "producer.stale": "the number is not new; `index` of the context tells which index it has",
    "request.invalid": "a request to the node's services that cannot be read",
    "request.timeout": "the other side has not answered in time",
    "request.unknown": "the service has no such request",
    "rest.query": "a query parameter with a value that it cannot have",
    "rest.status": "the server answered with an HTTP status that is no success",
    "rest.unknown": "the interface has no such path, or the stream nothing of this name",
    "row.envelope": "a text that is no envelope of a row",
    "signature.invalid": "a message is not signed by the publisher that it names",
    "signature.missing": "a message that must be signed is not",
    "serve.limit": "more addresses, calls or time than one link or service may have",
    "sink.reset": "a stream was removed and created again while a sink was reading it",
    "spark.checkpoint": "what silver remembers of events cannot be read or written",
    "spark.damaged": "a file of a table's log cannot be read",
    "spark.log": "a table has changed in a way that its readers cannot follow",
    "spark.option": "an option of the format is missing, or has a value that it cannot have",
    "spark.store": "an object store cannot keep two writers of a table apart",
    "spark.table": "the table is not one that this query can go on with",
    "table.catalog": "a catalog of Iceberg tables is unreachable, refuses, or is not valid",
    "table.column": "a typed table cannot have this column, or so many columns",
    "table.damaged": "the metadata of a catalog or an Iceberg table cannot be read",
    "table.deletes": "another writer has deleted rows of an Iceberg table beside its files",
    "table.expect": "an expectation of a typed table is no condition on its columns",
    "table.install": "what a table's format needs is not installed; the text says how",
    "table.key": "a typed table has several rows of a key, since another writer has added some",
    "table.layout": "the table's columns do not allow this key, time or partition",
    "table.function": "a function cannot make a table, or returns none",
    "table.module": "an application's module cannot be imported, or declares no table",
    "table.paused": "a typed table waits for an operator, as its `evolve` or `reject` says",
    "table.predicate": "a predicate is no condition on a typed table's columns",
    "table.schema": "a schema does not load, or the table cannot become what it says",
    "table.where": "an erasure names no entries",
    "view.changed": "a view's rows were calculated by other SQL, or from another table",
    "view.column": "a column of a view's select that no table can have",
    "view.slot": "a view's select does not have a column that its slot names",
    "view.sql": "a view's SQL has a syntax error, or selects what is not there",
    "store.busy": "too much waits to be written or read already",
    "store.corrupt": "an entry of the store is missing or damaged",
    "store.denied": "the servers of the store do not let the node in; the text says what to check",
    "store.engine": "the store's engine cannot do what was asked",
    "store.failed": "a write failed; the store tries to open its disk again by itself",
    "store.full": "there is no room; the store takes writes again by itself when there is",
    "store.incomplete": "the servers of the store have lost part of the log: restore it",
    "store.unsynced": "the store's servers may lose what they confirm; the text says what to set",
    "stream.invalid": "a name, a number of partitions, or a limit that streams cannot have",
    "stream.partition": "the stream has no such partition",
    "stream.unknown": "there is no such stream, or the key may not know of it",
    "streamr.forbidden": "the user has no permission for this",
    "streamr.metadata": "a stream's settings have a value that they cannot have",
    "streamr.refused": "the server has refused without a code of its own",
    "streamr.stream_id": "an id that no stream of this user can have",
    "testing.fail": "a failure that no actor can have; the text says why",
}


@dataclass(slots=True)
class ErrorCode:
    """A code, the classes that carry it, and the texts that come with it."""

    code: str
    classes: set[str] = field(default_factory=set[str])
    texts: list[str] = field(default_factory=list[str])

    @property
    def meaning(self) -> str:
        """What the code says: as written down here, else the first of its texts.

        Raises:
            LookupError: neither is there.
        """
        if self.code in _MEANINGS:
            return _MEANINGS[self.code]
        if not self.texts:
            raise LookupError(f"{self.code}: say in docs/error_codes.py what it means")
        return "; or: ".join(self.texts[:TEXTS_MAX])


@cache
def error_codes() -> list[ErrorCode]:
    """Every code of the four layers, in order."""
    texts = [path.read_text(encoding="utf-8") for path in _files()]
    modules = [ast.parse(text) for text in texts if _WORTH_PARSING.search(text)]
    classes = _error_classes(modules)
    places = [place for module in modules for place in _places(module, _makers(module, classes))]
    families = _INDIRECT | {
        _family(place.code)
        for place in places
        if isinstance(place.owner, ast.Call) and _called(place.owner) in classes
    }
    found: dict[str, ErrorCode] = {}
    for place in places:
        if _family(place.code) not in families or place.code in _OTHERS:
            continue
        one = found.setdefault(place.code, ErrorCode(place.code))
        one.classes |= place.classes()
        text = place.text()
        if text and text not in one.texts and not _CODE.fullmatch(text):
            one.texts.append(text)
    _fill_in_classes(found.values())
    return [found[code] for code in sorted(found)]


def _fill_in_classes(codes: Collection[ErrorCode]) -> None:
    """Where a family has one class, its codes have it, even if a helper makes the error."""
    classes: dict[str, set[str]] = {}
    for one in codes:
        classes.setdefault(_family(one.code), set()).update(one.classes)
    for one in codes:
        of_family = classes[_family(one.code)]
        if not one.classes and len(of_family) == 1:
            one.classes |= of_family


def _files() -> Iterator[Path]:
    """The modules whose codes users meet: suites of tests raise their own for nobody else."""
    for layer in LAYERS:
        found = sorted((_ROOT / layer).rglob("*.py"))
        yield from (
            path
            for path in found
            # What is advised of codes raises none: a plug-in's may stand there without its rooms.
            if "contract" not in path.parts and path.name not in ("next_steps.py", "words.py")
        )


def _family(code: str) -> str:
    return code.partition(".")[0]


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _error_classes(modules: list[ast.Module]) -> set[str]:
    """The tree below `RillnodeError`."""
    bases = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for module in modules
        for node in ast.walk(module)
        if isinstance(node, ast.ClassDef)
    }
    found = {_BASE}
    while more := {name for name, of in bases.items() if of & found} - found:
        found |= more
    return found


def _makers(module: ast.Module, classes: set[str]) -> dict[str, set[str]]:
    """By name, the errors that a class or a function of the module makes of a code."""
    found = {name: {name} for name in classes}
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef):
            calls = [one for one in ast.walk(node) if isinstance(one, ast.Call) and one.args]
            made = {_called(one) for one in calls if isinstance(one.args[0], ast.Name)} & classes
            found.setdefault(node.name, set()).update(made)
    return found


@dataclass(frozen=True, slots=True)
class _Place:
    """One constant; `owner` is the call or tuple that it is part of."""

    code: str
    owner: ast.AST | None
    function: _Function | None
    line: int
    makers: dict[str, set[str]]

    def classes(self) -> set[str]:
        """The error that is made with the code: at once, or further down by way of a variable."""
        made = self.makers.get(_called(self.owner)) if isinstance(self.owner, ast.Call) else None
        if not made and self.function is not None:
            made = self.makers.get(self.function.name)
        return made or set()

    def text(self) -> str:
        """What is said with the code there, with placeholders; nothing where it is not known."""
        items: list[ast.expr] = []
        if isinstance(self.owner, ast.Call):
            items = self.owner.args
        elif isinstance(self.owner, ast.Tuple):
            items = self.owner.elts
        for item, following in pairwise(items):
            constants = {one.value for one in ast.walk(item) if isinstance(one, ast.Constant)}
            if self.code in constants:
                return _rendered(self._resolved(following))
        return ""

    def _resolved(self, expression: ast.expr) -> ast.expr:
        """The last thing that was assigned to a name before the code, in the same function."""
        if not isinstance(expression, ast.Name) or self.function is None:
            return expression
        last: ast.expr = expression
        for node in ast.walk(self.function):
            if isinstance(node, ast.Assign) and node.lineno <= self.line:
                names = [one.id for one in node.targets if isinstance(one, ast.Name)]
                if expression.id in names:
                    last = node.value
        return last


def _places(module: ast.Module, makers: dict[str, set[str]]) -> Iterator[_Place]:
    """Every constant that may be a code, in the order of the source."""
    waiting: list[tuple[ast.AST, ast.AST | None, _Function | None]] = [(module, None, None)]
    while waiting:
        node, owner, function = waiting.pop()
        match node:
            case ast.Constant(value=str(value)) if _CODE.fullmatch(value):
                yield _Place(value, owner, function, node.lineno, makers)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                function = node
            case ast.Call() | ast.Tuple():
                owner = node
            case _:
                pass
        children = list(ast.iter_child_nodes(node))
        waiting += [(child, owner, function) for child in reversed(children)]


def _rendered(expression: ast.expr) -> str:
    """A text as the source builds it, with what is filled in as `<name>`."""
    match expression:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=values):
            return "".join(_rendered(value) for value in values)
        case ast.FormattedValue(value=value):
            return _placeholder(value)
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return _rendered(left) + _rendered(right)
        case _:
            return ""


@cache
def _limits() -> dict[str, object]:
    """Every limit by its name: the kernel's, and those of plug-ins."""
    found: dict[str, object] = {}
    for layer in LAYERS:
        for path in (_ROOT / layer).rglob("limits.py"):
            parts = path.relative_to(_ROOT).with_suffix("").parts
            found |= vars(import_module(".".join(("rillnode", *parts))))
    return found


def _placeholder(value: ast.expr) -> str:
    match value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            limit = _limits().get(name)
            return f"{limit:,}" if isinstance(limit, int) else f"<{name.strip('_').lower()}>"
        case _:
            return "..."
