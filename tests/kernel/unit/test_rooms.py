"""The house keeps its rooms: who may import whom, and where what belongs to a plug-in lies.

A plug-in is whatever lies in a folder of its name, in each layer; the rest is the kernel.
"""

import ast
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Final, cast

import pytest

from deleted_rooms import deleted_rooms
from order_of_files import LONGEST
from rooms import PLUG_INS, ROOT, TESTS

pytestmark = pytest.mark.check


LAYERS: Final = {
    "codecs": {"codecs"},
    "transports": {"codecs", "transports"},
    "actors": {"actors", "codecs"},
    "node": {"actors", "codecs", "node", "transports"},
}
"""What each layer may import."""

USES: Final = {"overlay": {"streamr"}}
"""Plug-ins that stand on another."""

ENGINE: Final = "actors/engine/"

LOG: Final = "actors/log/"
STORE: Final = "actors/log/rocks/"
"""No actor knows which store it has: it uses the port."""

KNOT_MAX: Final = 3
"""How many modules may import each other in circles of types."""

LANGUAGE: Final = frozenset(("ockam",))
"""Ockam's addresses, routes and links are the kernel's own language."""

SPOKEN: Final[dict[tuple[str, str], str]] = {
    (
        "codecs/entries.py",
        "nextgraph",
    ): "the number of its kind of entries, which no other may take",
    ("codecs/entries.py", "streamr"): "likewise",
}
"""Where the kernel says a plug-in's name in what it does, and what for."""

Graph = dict[str, set[str]]


def module_of(path: str) -> str:
    return "rillnode." + path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imported(tree: ast.AST, modules: dict[str, str]) -> Iterator[str]:
    """The files whose modules a file imports, wherever the statement stands."""
    for item in ast.walk(tree):
        if isinstance(item, ast.ImportFrom):
            assert item.level == 0, "imports are absolute"
            names = [f"{item.module}.{alias.name}" for alias in item.names]
        elif isinstance(item, ast.Import):
            names = [alias.name for alias in item.names]
        else:
            continue
        for name in names:
            while name and name not in modules:
                name = name.rpartition(".")[0]
            if name:
                yield modules[name]


def without_types(tree: ast.Module) -> ast.Module:
    """The module as it runs: what is for type checkers alone is left out."""
    for item in ast.walk(tree):
        if isinstance(item, ast.If) and "TYPE_CHECKING" in ast.dump(item.test):
            item.body = []
    return tree


def graphs(sources: dict[str, str]) -> tuple[Graph, Graph]:
    """Which file imports which: at all, and at run time."""
    modules = {module_of(path): path for path in sources}
    trees = {path: ast.parse(source) for path, source in sources.items()}
    every = {path: set(imported(tree, modules)) - {path} for path, tree in trees.items()}
    at_run = {
        path: set(imported(without_types(tree), modules)) - {path} for path, tree in trees.items()
    }
    return every, at_run


def plug_in_of(path: str) -> str | None:
    return next((name for name in PLUG_INS if name in path.split("/")[1:-1]), None)


def is_within(path: str, package: str) -> bool:
    """Whether a package is the importer's own: what it gathers is asked of it late."""
    return package.endswith("/__init__.py") and path.startswith(package.removesuffix("__init__.py"))


def knots(graph: Graph) -> Iterator[list[str]]:
    """The files that import each other in circles; where circles meet, those of all of them."""
    reached: Graph = {}
    for path in graph:
        found: set[str] = set()
        waiting = [path]
        while waiting:
            more = graph[waiting.pop()] - found
            found |= more
            waiting += more
        reached[path] = found
    told: set[str] = set()
    for path in sorted(graph):
        if path in reached[path] and path not in told:
            knot = sorted(other for other in reached[path] if path in reached[other])
            told.update(knot)
            yield knot


def defined(source: str) -> Iterator[str]:
    """The names that a module defines."""
    for item in ast.parse(source).body:
        match item:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                yield name
            case _:
                pass


def words_of(text: str) -> set[str]:
    """The words of a name or a text; two that stand together are also one: `JetStream`."""
    parts = [part.lower() for part in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+|[^A-Za-z0-9]+", text)]
    return {*parts, *(one + other for one, other in pairwise(parts))}


def texts_of(item: ast.AST) -> Iterator[str]:
    """What a node of the tree says: names of all kinds, and constants."""
    for _, value in ast.iter_fields(item):
        several: Iterable[object] = (value,)
        if isinstance(value, list):
            several = cast("list[object]", value)
        for one in several:
            if isinstance(one, str):
                yield one
            elif isinstance(one, bytes):
                yield one.decode("latin-1")


def spoken(source: str, names: Collection[str]) -> set[str]:
    """Names of plug-ins that a module says in what it does; docstrings and comments do nothing."""
    said = [name for name in names if name in source.lower()]
    if not said:
        return set()
    tree = ast.parse(source)
    docstrings = {
        item.value
        for item in ast.walk(tree)
        if isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant)
    }
    return {
        word
        for item in ast.walk(tree)
        if item not in docstrings
        for text in texts_of(item)
        if any(name in text.lower() for name in said)
        for word in words_of(text).intersection(said)
    }


def spoken_in_kernel(sources: dict[str, str]) -> set[tuple[str, str]]:
    """The kernel's modules that say a plug-in's name, and which."""
    names = {*PLUG_INS} - LANGUAGE
    return {
        (path, name)
        for path, source in sources.items()
        if plug_in_of(path) is None
        for name in spoken(source, names)
    }


def broken(sources: dict[str, str]) -> Iterator[str]:
    """Every rule that is broken, in a line."""
    every, at_run = graphs(sources)
    for path, others in every.items():
        mine = plug_in_of(path)
        for other in sorted(others):
            theirs = plug_in_of(other)
            if other.split("/")[0] not in LAYERS[path.split("/")[0]]:
                yield f"{path} imports {other} of another layer"
            of_actors = path.startswith("actors/") and not path.startswith(LOG)
            if of_actors and other.startswith(STORE):
                yield f"{path} imports {other} of one store"
            if theirs in (None, mine):
                continue
            if mine is None:
                yield f"{path} of the kernel imports {other} of a plug-in"
            elif theirs not in USES.get(mine, set()):
                yield f"{path} imports {other} of another plug-in"
        words = [
            word for part in path.removesuffix(".py").split("/")[1:] for word in part.split("_")
        ]
        if mine is None and (strange := {*words} & {*PLUG_INS}):
            yield f"{path} lies outside the rooms of {', '.join(strange)}"
        foreign = {*PLUG_INS} - LANGUAGE if mine is None else set[str]()
        for name in defined(sources[path]):
            if foreign & words_of(name):
                yield f"{path} defines {name} outside of its plug-in's rooms"
    at_run = {
        path: {one for one in found if not is_within(path, one)} for path, found in at_run.items()
    }
    of_engine = {path: found for path, found in every.items() if path.startswith(ENGINE)}
    for name, graph in (("at run time", at_run), ("of types in the engine", of_engine)):
        try:
            TopologicalSorter(
                {path: found & graph.keys() for path, found in graph.items()}
            ).prepare()
        except CycleError as error:
            yield f"a circle of imports {name}: {' -> '.join(error.args[1])}"
    for knot in knots(every):
        if len(knot) > KNOT_MAX:
            yield f"a knot of types, {len(knot)} modules: {', '.join(knot)}"


def sources() -> dict[str, str]:
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for layer in LAYERS
        for path in sorted((ROOT / layer).rglob("*.py"))
    }


def test_the_house_keeps_its_rooms() -> None:
    assert list(broken(sources())) == []


def test_the_kernel_says_no_plug_ins_name() -> None:
    """What a plug-in adds comes through its contract, words and entry points."""
    assert spoken_in_kernel(sources()) == {*SPOKEN}


def test_every_room_is_known_by_its_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    values = [value for group in project["entry-points"].values() for value in group.values()]
    assert {value.split(".")[2] for value in values} <= {*PLUG_INS}


@pytest.mark.parametrize(
    "source",
    [
        "def f(streamr): ...",
        "f(streamr=1)",
        "a.nextgraph_kind",
        "class A(JetStreamLog): ...",
        "import x as spark",
        "a = 'spark_sink/x'",
        "a = b'overlay/'",
        "a = f'is JetStream: {b}'",
        "match a:\n    case {'telemetry': b}: ...",
        "match a:\n    case A(gateway=1) | [*gateway]: ...",
        "def f():\n    global overlay",
    ],
)
def test_a_name_that_is_said_is_found(source: str) -> None:
    assert spoken_in_kernel({"node/a.py": source})
    assert not spoken_in_kernel({"node/streamr/a.py": source})


@pytest.mark.parametrize(
    "source",
    [
        '"""Is told by Streamr, say."""',
        'class A:\n    """Spark."""\n    a = 1\n    """JetStream\'s."""',
        "a = 1  # of the overlay",
        "StreamRecord(stream_record='StreamRemoved')",
        "ockam = 'ockam'",
    ],
)
def test_a_name_that_does_nothing_is_none(source: str) -> None:
    assert not spoken_in_kernel({"node/a.py": source})


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("codecs/a.py", "from rillnode.transports.b import B"),
        ("actors/core/a.py", "def f():\n    import rillnode.actors.streamr.b"),
        ("actors/streamr/a.py", "from rillnode.actors.nextgraph import b"),
        ("node/streamr/simulation/a.py", "from rillnode.node.simulation.b import B"),
        ("node/simulation/a.py", "def f():\n    import rillnode.node.streamr.simulation.b"),
        ("actors/core/a_streamr.py", ""),
        ("codecs/a.py", "STREAMR_BYTES_MAX: Final = 1"),
        ("node/a.py", "class NextgraphPeer: ..."),
        ("actors/core/a.py", "from rillnode.actors.log.rocks.b import B"),
        ("codecs/c.py", "from rillnode.codecs.d import D"),
        ("actors/engine/a.py", "if TYPE_CHECKING:\n    from rillnode.actors.engine.b import B"),
        ("codecs/h.py", "if TYPE_CHECKING:\n    from rillnode.codecs.e import E"),
    ],
)
def test_a_broken_rule_is_found(path: str, source: str) -> None:
    others = {
        "transports/b.py": "",
        "actors/streamr/b.py": "",
        "actors/nextgraph/b.py": "",
        "node/simulation/b.py": "",
        "node/streamr/simulation/b.py": "",
        "codecs/d.py": "from rillnode.codecs.c import C",
        "actors/log/rocks/b.py": "",
        "actors/engine/b.py": "from rillnode.actors.engine.a import A",
        "codecs/e.py": "from rillnode.codecs.f import F",
        "codecs/f.py": "from rillnode.codecs.g import G",
        "codecs/g.py": "from rillnode.codecs.h import H\nfrom rillnode.codecs.i import I",
        "codecs/i.py": "if TYPE_CHECKING:\n    from rillnode.codecs.g import G",
    }
    assert list(broken({**others, path: source}))


def test_files_that_are_begun_first_are_there() -> None:
    there = [name for name in LONGEST if name.partition("/")[0] not in deleted_rooms()]
    assert [name for name in there if not (TESTS / name).is_file()] == []
