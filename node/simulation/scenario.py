"""A scenario: what `rillnode sim run` simulates, as the tables of its TOML file.

A key's description is its line under "Attributes". Plug-ins have tables of their own in it: see
`rillnode.node.simulated.tables`.
"""

import re
import tomllib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast, get_args

import msgspec
from msgspec import Meta, Struct, defstruct, field, inspect

from rillnode.actors.engine.faults import When
from rillnode.codecs.errors import ConfigError
from rillnode.node.config.kinds import Count, Seconds
from rillnode.node.config.lines import key_lines, line_of
from rillnode.node.config.paths import KeyPath, format_path, parse_path
from rillnode.node.config.problem import problem_of
from rillnode.node.installed import SCENARIOS, installed, load_table
from rillnode.node.simulated.tables import SharingTable, SimulatedTable, Some, Whole
from rillnode.node.simulation.failing_actors import classes_named

Chance = Annotated[float, Meta(ge=0, le=1)]
NotNegative = Annotated[float, Meta(ge=0, le=1e9)]
Messages = Annotated[int, Meta(ge=1, le=10_000_000)]
Span = Annotated[float, Meta(gt=0, le=1e6)]

MODEL_NODES_MAX: Final = 100_000
MODEL_LINKS_MAX: Final = 5_000_000
"""Links of a model's overlay, counted at both ends; about 150 bytes each."""
MODEL_ARRIVALS_MAX: Final = 50_000_000
"""Arrivals at nodes that a model keeps, for percentiles; 8 bytes each, and 32 while sorting."""
PROTOCOL_NODES_MAX: Final = 4_096
ROCKS_NODES_MAX: Final = 64
"""Nodes whose stores have threads by default: three each."""

FaultKind = Literal[
    "kill",
    "power_cut",
    "pause",
    "lost_disk",
    "clock_jump",
    "partition",
    "one_way",
    "clog",
    "disk_full",
    "disk_failing",
    "disk_slow",
    "bit_flip",
    "corrupt_record",
    "replayed_record",
    "kill_client",
    "actor",
    "log_cut",
    "log_slow",
    "log_unanswered",
    "log_delayed",
]
"""What can go wrong; `faults.KINDS` says of each what it does."""


LOG_KINDS: Final[tuple[FaultKind, ...]] = ("log_cut", "log_slow", "log_unanswered", "log_delayed")
"""Those of the link between a node and the servers of a shared log."""

SURVIVED_KINDS: Final[tuple[FaultKind, ...]] = tuple(
    kind for kind in get_args(FaultKind) if kind not in ("lost_disk", "actor", *LOG_KINDS)
)
"""Those that nodes survive without losing data."""


PREFIXES: Final = {
    "producers": "p",
    "followers": "f",
    "consumers": "c",
    "slow_readers": "s",
    "readers": "r",
    "callers": "a",
    "examiners": "e",
    "workers": "k",
    "members": "m",
}
"""Kinds of clients in `[clients]`, and the first letters of their names. A new kind goes to the
end: a client's place in the latency model is its number among all."""

LAST_KINDS: Final = ("e", "k", "m")
"""Those that have their places behind the clients of plug-ins."""


class _Table(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What every table of a scenario has in common."""


class LatencyTable(_Table, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The delay of a message, one way.

    Attributes:
        model: `cities` places nodes in real cities, `lognormal` draws each pair's delay, `csv`
            takes a matrix, `constant` gives every pair the same.
        mean_ms: Mean delay of a pair, for `lognormal` and `constant`.
        sigma: Spread of the logarithm, for `lognormal`.
        file: For `csv`, a matrix of milliseconds, one row for each node, used again for further
            nodes. For `cities`, columns city, latitude and longitude, in place of rillnode's list.
    """

    model: Literal["cities", "lognormal", "csv", "constant"] = "cities"
    mean_ms: NotNegative = 50.0
    sigma: NotNegative = 0.5
    file: Path | None = None


class NetworkTable(_Table, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The network's constant faults; it carries TCP, so each shows as delay.

    Attributes:
        jitter_ms: Mean of an exponential addition to each segment's delay.
        loss: Part of the segments that are lost; each is sent again after a timeout.
        reorder: Part of the segments that others overtake, which wait for it.
        duplicate: Part of the segments that arrive twice; the second is thrown away.
        bandwidth_mbit: Megabits a second that one host can send; 0: no limit.
    """

    jitter_ms: NotNegative = 0.0
    loss: Annotated[float, Meta(ge=0, le=0.9)] = 0.0
    reorder: Chance = 0.0
    duplicate: Chance = 0.0
    bandwidth_mbit: NotNegative = 0.0


class DiskTable(_Table, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The constant behaviour of nodes' disks.

    Attributes:
        store: `rocks`: the real store with its threads, on a RocksDB in memory, with small limits
            drawn by the seed; `memory`: the tests' faster one. Default: `rocks` where rules are
            checked at up to 64 nodes.
        sync_ms: Median time of a sync; it varies by about a half.
        repair_seconds: Time until a store that failed has opened its disk again.
    """

    store: Literal["rocks", "memory"] | None = None
    sync_ms: NotNegative = 2.0
    repair_seconds: Seconds = 0.5


class StoreTable(_Table, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The store that nodes keep their streams in.

    Attributes:
        engine: `own`: a store for each node; `shared`: one log for all, with views in memory.
            Clients of different nodes then use the same streams, and may restart at another node.
        shards: Shards of the shared log.
        frame_bytes: Bytes of writes that make one frame of it.
        snapshot_bytes: Bytes of frames, after which a snapshot is made and the log trimmed.
        late_frames: A view that lacks more frames takes a snapshot.
        idle_seconds: A view that is not used for this long is closed.
        patience_seconds: How long a write waits for the servers.
    """

    engine: Literal["own", "shared"] = "own"
    shards: Annotated[int, Meta(ge=1, le=64)] = 4
    frame_bytes: Annotated[int, Meta(ge=100, le=1_000_000)] = 2_000
    snapshot_bytes: Messages = 20_000
    late_frames: Messages = 100
    idle_seconds: Seconds = 5.0
    patience_seconds: Seconds = 3.0


class ClientsTable(_Table, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The native clients of the nodes, spread over nodes and partitions in turn.

    Clients in other protocols are in the tables of their plug-ins.

    Attributes:
        producers: Clients that push.
        burst: Entries that a producer pushes at once, as far as its window allows.
        window: Entries that a producer leaves unconfirmed.
        payload_bytes: Size of an entry, 64 at least.
        followers: Clients that subscribe from the first entry, across every reconnection.
        consumers: Clients that subscribe from their saved position, end, and come again.
        slow_readers: Followers that take only one batch a second.
        readers: Clients that pull ranges anywhere in the log.
        callers: Clients that send messages along routes through several nodes, and use their
            services.
        examiners: Clients that try what they are not granted, pass for others, and trim, remove,
            limit and follow streams of their own.
        examined: Share of the seeds that have these, as they take a third of a small run's time.
        workers: Workers of a queue of their stream, which say of each job that it is done, or is to
            be given again, or is rejected, or nothing. In half of the runs entries have keys, whose
            order the queue keeps.
        members: Members of a group that share their stream.
    """

    producers: Whole = 2
    burst: Count = 1
    window: Count = 8
    payload_bytes: Annotated[int, Meta(ge=64, le=1_000_000)] = 100
    followers: Whole = 2
    consumers: Whole = 1
    slow_readers: Whole = 0
    readers: Whole = 1
    callers: Whole = 0
    examiners: Whole = 1
    examined: Chance = 1.0
    workers: Whole = 0
    members: Whole = 0


class FaultTable(_Table, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One fault, or several of its kind.

    Attributes:
        kind: What goes wrong.
        at_seconds: When it begins, within the scenario's `seconds`; else drawn.
        seconds: How long it lasts; else drawn.
        nodes: Nodes it strikes, or whose clients: `n0`, `n1`, ...; else drawn.
        count: How many such faults.
        actor: For `actor`, the class that fails, such as `StreamActor` or
            `streams.stream.StreamActor`; else drawn.
        when: For `actor`: before or after a message's effects; else drawn.
        times: For `actor`, how many messages fail; else drawn.
    """

    kind: FaultKind
    at_seconds: NotNegative | None = None
    seconds: Span | None = None
    nodes: tuple[str, ...] = ()
    count: Some = 1
    actor: str | None = None
    when: When | None = None
    times: Some | None = None


class RandomFaults(_Table, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Faults that the seed draws, beside those of `[[fault]]`.

    Attributes:
        count: How many.
        kinds: Which; default: all that nodes survive without losing data.
    """

    count: Whole = 0
    kinds: tuple[FaultKind, ...] = SURVIVED_KINDS


class ModelTable(_Table, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A model in place of nodes: messages flood a random overlay without any protocol.

    Of the scenario it takes `nodes`, `messages`, `processing_ms` and `[latency]`.

    Attributes:
        degree: Neighbours of each node.
    """

    degree: Count = 4


class ScenarioKeys(_Table, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A scenario: nodes, clients, and what goes wrong.

    Attributes:
        name: For people.
        nodes: How many nodes.
        messages: How many messages are published in all.
        processing_ms: What a node needs for each message before it hands it on.
        seconds: How long faults happen; publishing is spread over this time.
        heal_seconds: When all faults are over, every client must have got everything within this
            time.
        partitions: Partitions of each stream.
        model: What runs in place of nodes.
        latency: How long messages are on their way.
        network: What else the network does.
        disk: What disks do.
        store: What nodes keep their streams in.
        clients: Who uses the nodes.
        random_faults: Faults that the seed draws.
        fault: Faults one by one.
    """

    name: str = "scenario"
    nodes: Annotated[int, Meta(ge=1, le=MODEL_NODES_MAX)] = 3
    messages: Messages = 200
    processing_ms: NotNegative = 0.0
    seconds: Span = 30.0
    heal_seconds: Span = 120.0
    partitions: Annotated[int, Meta(ge=1, le=64)] = 1
    model: ModelTable | None = None
    latency: LatencyTable = LatencyTable()
    network: NetworkTable = NetworkTable()
    disk: DiskTable = DiskTable()
    store: StoreTable = StoreTable()
    clients: ClientsTable = ClientsTable()
    random_faults: RandomFaults = RandomFaults()
    fault: tuple[FaultTable, ...] = field(default=())


class Scenario(ScenarioKeys, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A scenario with the tables that have plug-ins take part.

    Attributes:
        tables: of plug-ins, in the order of their names.
    """

    tables: tuple[SimulatedTable, ...] = ()

    def clients_by_kind(self) -> dict[str, int]:
        """How many clients there are of each kind, by their names' prefixes, in order of places."""
        found = {prefix: getattr(self.clients, key) for key, prefix in PREFIXES.items()}
        last = {prefix: found.pop(prefix) for prefix in LAST_KINDS}
        for table in self.tables:
            found |= {prefix: getattr(table, key) for key, prefix in table.kinds.items()}
        return found | last

    @property
    def sharing(self) -> SharingTable | None:
        """The table that has all nodes share one stream."""
        return next((one for one in self.tables if isinstance(one, SharingTable)), None)

    @property
    def more_nodes(self) -> tuple[str, ...]:
        """Names of the nodes that have no clients."""
        return () if self.sharing is None else self.sharing.more_nodes

    @property
    def mode(self) -> str:
        """What runs: `model` or `protocol`."""
        return "protocol" if self.model is None else "model"

    @property
    def degree(self) -> int:
        """Neighbours of each node, where messages spread."""
        found = self.model or self.sharing
        assert found is not None, "messages spread among neighbours"
        return found.degree

    @property
    def checked_disk(self) -> DiskTable:
        """What disks do where rules are checked."""
        if self.disk.store is not None or self.nodes > ROCKS_NODES_MAX:
            return self.disk
        return msgspec.structs.replace(self.disk, store="rocks")

    @property
    def spreads(self) -> bool:
        """Whether only the spreading of messages is measured."""
        return self.model is not None or (self.sharing is not None and not self.has_faults)

    @property
    def is_shared(self) -> bool:
        """Whether nodes keep their streams in one log."""
        return self.store.engine == "shared"

    @property
    def faults_count(self) -> int:
        """How many things go wrong; they have the numbers from 0 on."""
        return sum(table.count for table in self.fault) + self.random_faults.count

    @property
    def has_faults(self) -> bool:
        """Whether anything goes wrong."""
        return self.faults_count > 0


_HOST: Final = re.compile(r"n(0|[1-9][0-9]{0,5})")


@lru_cache
def file_type(*names: str) -> type[ScenarioKeys]:
    """The type of a file that may have these tables of plug-ins.

    Raises:
        ConfigError: as `load_table` of `rillnode.node.installed`.
    """
    kinds = [load_table(SCENARIOS, name, SimulatedTable) for name in names]
    made = defstruct(
        "Scenario",
        [(kind.table, kind | None, None) for kind in kinds],
        bases=(ScenarioKeys,),
        namespace={"__doc__": ScenarioKeys.__doc__},
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )
    return cast(type[ScenarioKeys], made)


def load_scenario(path: Path) -> Scenario:
    """Read a scenario's file; relative paths in it are relative to its directory.

    Raises:
        ConfigError: it cannot be read, or a value cannot be; the text names file, line and key.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        text = f"{path}: cannot be read: {error.strerror}"
        raise ConfigError("scenario.file", text) from None
    except UnicodeDecodeError as error:
        text = f"{path}: not UTF-8 (byte {error.start:,}): save it as UTF-8"
        raise ConfigError("scenario.file", text) from None
    return parse_scenario(text, path)


def parse_scenario(text: str, path: Path) -> Scenario:
    """Read a scenario from the text of the file at `path`; errors as of `load_scenario`."""

    def absolute(kind: type, value: object) -> Path:
        if kind is not Path or not isinstance(value, str) or not value:
            raise ValueError("Expected a path")
        return path.parent / value

    def wrong(at: KeyPath, what: str) -> ConfigError:
        line = line_of(at, key_lines(text))
        where = f"{path}:{line}" if line else str(path)
        return ConfigError("scenario.value", f"{where}: {format_path(at)}: {what}")

    try:
        tree: dict[str, Any] = {"name": path.stem, **tomllib.loads(text)}
    except tomllib.TOMLDecodeError as error:
        raise ConfigError("scenario.syntax", f"{path}: not TOML: {error}") from None
    own = ScenarioKeys.__struct_fields__
    named = sorted(tree.keys() & installed(SCENARIOS).keys() - {*own})
    kind = file_type(*named)
    try:
        read = msgspec.convert(tree, kind, dec_hook=absolute)
    except msgspec.ValidationError as error:
        problem = problem_of(error, tree, inspect.type_info(kind), group=SCENARIOS)
        raise wrong(problem.path, problem.text) from None
    tables = tuple(getattr(read, name) for name in named)
    scenario = Scenario(**{name: getattr(read, name) for name in own}, tables=tables)
    if found := _problem(scenario) or _same_names(tables):
        key, _, what = found.partition(": ")
        raise wrong(parse_path(key), what)
    for table in tables:
        for at, what in table.problems(scenario):
            raise wrong(at, what)
    return scenario


def _same_names(tables: Iterable[SimulatedTable]) -> str:
    """A table whose clients have the names of others, and of which; nothing where none has."""
    owners = {"n": "nodes"} | dict.fromkeys(PREFIXES.values(), "[clients]")
    for table in tables:
        for prefix in table.kinds.values():
            if (owner := owners.setdefault(prefix, f"[{table.table}]")) != f"[{table.table}]":
                return (
                    f"{table.table}: its clients are {prefix}0, {prefix}1 and so on, as those of"
                    f" {owner}: leave one of them out, and tell who has made the plug-in"
                )
    return ""


def _problem(scenario: Scenario) -> str:
    """A key and what the types do not say of it; nothing where all is well."""
    if scenario.latency.model == "csv" and scenario.latency.file is None:
        return "latency.file: missing; `csv` reads its matrix from there"
    if scenario.spreads and scenario.nodes * scenario.messages > MODEL_ARRIVALS_MAX:
        return f"messages: nodes times messages: expected at most {MODEL_ARRIVALS_MAX:,}"
    if scenario.model is not None:
        if scenario.tables:
            return f"{scenario.tables[0].table}: it needs nodes, and `[model]` runs none"
        if scenario.degree >= scenario.nodes:
            return f"model.degree: expected less than the {scenario.nodes} nodes"
        if scenario.degree == 1 and scenario.nodes > 2:
            return "model.degree: with one neighbour each, only two nodes reach each other"
        if scenario.nodes * scenario.degree > MODEL_LINKS_MAX:
            return f"model.degree: nodes times degree: expected at most {MODEL_LINKS_MAX:,}"
        return ""
    if scenario.nodes > PROTOCOL_NODES_MAX:
        return f"nodes: without `[model]` expected at most {PROTOCOL_NODES_MAX}"
    if scenario.is_shared and scenario.sharing is not None:
        return f"store.engine: with `[{scenario.sharing.table}]` nodes have stores of their own"
    if scenario.random_faults.count and not scenario.random_faults.kinds:
        return "random_faults.kinds: expected at least one"
    if not scenario.is_shared:
        if any(kind in LOG_KINDS for kind in scenario.random_faults.kinds):
            return 'random_faults.kinds: faults of the log need `engine = "shared"` in `[store]`'
        for number, fault in enumerate(scenario.fault):
            if fault.kind in LOG_KINDS:
                return f'fault[{number}].kind: {fault.kind} needs `engine = "shared"` in `[store]`'
    for number, fault in enumerate(scenario.fault):
        for name in fault.nodes:
            match = _HOST.fullmatch(name)
            if name in scenario.more_nodes:
                continue
            if match is None or int(match[1]) >= scenario.nodes:
                return f"fault[{number}].nodes: {name!r}: expected n0 to n{scenario.nodes - 1}"
        for key in ("actor", "when", "times"):
            if fault.kind != "actor" and getattr(fault, key) is not None:
                return f"fault[{number}].{key}: only faults of the kind `actor` have it"
        if fault.actor is not None and not classes_named(fault.actor):
            return f"fault[{number}].actor: {fault.actor!r}: no class of actors is named so"
        if (fault.at_seconds or 0.0) > scenario.seconds:
            return f"fault[{number}].at_seconds: faults happen in the first {scenario.seconds:g} s"
    return ""
