"""What stands in public signatures can be imported from a public place."""

import inspect
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

import pytest

from generate import PUBLIC
from rillnode.node.config import Config
from rillnode.node.config.problem import Problem

pytestmark = pytest.mark.needs("ockam", "streamr", "nextgraph", "spark", "simulation")

ROOT: Final = Path(__file__).parents[3]

PORTS: Final = ("rillnode.actors.log",)
"""Modules that are a port as a whole: who writes a part of that kind has all names from there."""

WIRE: Final = ("rillnode.codecs.nextgraph", "rillnode.codecs.streamr")
"""Modules of a protocol's own structures: what their fields hold is for the protocol to say."""

KERNEL: Final = (
    "rillnode.actors.engine.system",
    "rillnode.actors.engine.worker",
    "rillnode.node.config.problem",
    "rillnode.node.plugin",
)
"""Modules that pages import names from for who writes a plug-in."""

NOT_TO_BE_NAMED: Final = {
    "rillnode.actors.core.access.Grant": "what a node's own parts make of a table",
    "rillnode.actors.core.quotas.Quota": "likewise",
    "rillnode.actors.core.streams.rules.StreamRule": "likewise",
    "rillnode.codecs.native.StreamInfo": "StreamInfo.of is for clients, which have it from a node",
    "rillnode.codecs.routing.about.RouteInfo": "About.of likewise",
    "rillnode.codecs.nextgraph.client.InboxReceive": "a message that the client is told of",
    "rillnode.codecs.nextgraph.client_dialogue.ClientLogin": "`connect` makes it",
    "rillnode.codecs.nextgraph.commits.Commit": "a structure of the protocol, to be looked at",
    "rillnode.codecs.nextgraph.responses.RepoPinStatus": "likewise",
    "rillnode.codecs.nextgraph.responses.TopicSubRes": "likewise",
    "rillnode.codecs.streamr.stream_message.StreamMessage": "likewise",
    "rillnode.node.observation.Observation": "Node.observed is for the status page",
}
"""Classes that a user neither makes nor annotates anything with, and why."""


def _public() -> set[Any]:
    return {getattr(import_module(one), name) for one in PUBLIC for name in _names(one)}


def _names(module: str) -> list[str]:
    names: list[str] = import_module(module).__all__
    return names


def _shown() -> set[int]:
    """Ids of what pages and the example of a plug-in import."""
    found = set[int]()
    for page in (*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples" / "plugin").rglob("*.py")):
        text = page.read_text("utf-8")
        imports = re.findall(r"^ *from (rillnode\.\S+) import (\([^)]+|[\w, ]+$)", text, re.M)
        for module, names in imports:
            if module in KERNEL:
                home = import_module(module)
                found |= {id(getattr(home, name)) for name in re.findall(r"\w+", names)}
    return found


def _classes(hint: Any) -> Iterator[type]:
    """The classes in an annotation."""
    if isinstance(hint, list | tuple):
        for one in cast(Sequence[Any], hint):
            yield from _classes(one)
        return
    origin = typing.get_origin(hint)
    if origin is None and isinstance(hint, type):
        yield hint
    elif isinstance(origin, type):
        yield origin
    for one in typing.get_args(hint):
        yield from _classes(one)


def _signatures(found: Any) -> Iterator[tuple[str, Any]]:
    """What has annotations of a public thing: itself, and its public methods and properties."""
    if not found.__module__.startswith(WIRE):
        yield "", found
    for base in found.__mro__ if isinstance(found, type) else ():
        for name, member in vars(base).items() if base.__module__.startswith("rillnode") else ():
            if name.startswith(("_", "test_")):
                continue
            for attribute in ("__func__", "fget", "func"):
                member = getattr(member, attribute, None) or member
            if inspect.isfunction(member):
                yield f".{name}", member


def _hints(found: Any) -> Mapping[str, Any]:
    """Annotations; those of fields whose names begin with an underscore are no user's."""
    module = import_module(found.__module__)
    # What a module imports for checkers alone.
    known = {"Config": Config, "Problem": Problem, "Iterator": Iterator, "Mapping": Mapping}
    hints = typing.get_type_hints(found, {**known, **vars(module)})
    return {name: hint for name, hint in hints.items() if not name.startswith("_")}


@pytest.mark.parametrize("module", PUBLIC)
def test_every_class_in_public_signatures_can_be_imported(module: str) -> None:
    public, shown = _public(), _shown()
    ports = {id(one) for port in PORTS for one in vars(import_module(port)).values()}
    missing: dict[str, str] = {}
    looked = 0
    for name in _names(module):
        found = getattr(import_module(module), name)
        if not (isinstance(found, type) or inspect.isfunction(found)):
            continue  # an alias
        for member, signature in _signatures(found):
            for field, hint in _hints(signature).items():
                for one in _classes(hint):
                    looked += 1
                    where = f"{one.__module__}.{one.__qualname__}"
                    if (
                        one.__module__.startswith("rillnode")
                        and one not in public
                        and where not in NOT_TO_BE_NAMED
                        and id(one) not in ports
                        and id(one) not in shown
                        # What has the shape will do, and keywords are written as such.
                        and not getattr(one, "_is_protocol", False)
                        and not typing.is_typeddict(one)
                    ):
                        missing[where] = f"{name}{member}: {field}"
    assert looked > 20
    assert missing == {}
