"""The suite for plug-ins finds the mistakes that are made in one."""

import asyncio
import os
import shutil
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module, invalidate_caches
from pathlib import Path
from typing import Any, Final

import pytest

from planting import in_the_long_part
from rillnode.codecs.entry_points import every_entry_point
from rillnode.node import installed
from rillnode.node.testing.contract import base

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "plugin"
ENTRY_POINTS: Final = """
[rillnode.plugins]
syslog = rillnode_syslog.plugin:Syslog
[rillnode.tables]
syslog = rillnode_syslog.config:SyslogTable
[rillnode.verbs]
syslog = rillnode_syslog.cli:add
"""
ROOT: Final = str(Path(base.__file__).parents[4])
"""Where `rillnode` is imported from."""

Patch = pytest.MonkeyPatch

KEPT: Final[list[Callable[[], object]]] = []
"""Ends what a mistake has left behind."""


def add_package(site: Path) -> None:
    """Install the example in a directory of packages, with its tests as `syslog_suite`."""
    shutil.copytree(EXAMPLE / "src" / "rillnode_syslog", site / "rillnode_syslog")
    shutil.copy(EXAMPLE / "tests" / "test_syslog.py", site / "syslog_suite.py")
    about = site / "rillnode_syslog-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: rillnode-syslog\nVersion: 0.1\n")
    (about / "entry_points.txt").write_text(ENTRY_POINTS)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("site")
    add_package(site)
    return site


@pytest.fixture
def plug_in(site: Path, monkeypatch: Patch) -> Iterator[Any]:
    """The example's main module: for this test it is installed."""
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    invalidate_caches()
    monkeypatch.setattr(base, "SOON_SECONDS", 2.0)
    forget()
    yield import_module("rillnode_syslog.plugin")
    while KEPT:
        KEPT.pop()()
    forget()


def forget() -> None:
    """Have what is installed looked up anew."""
    every_entry_point.cache_clear()
    installed.installed.cache_clear()


def always(value: object) -> Callable[..., Any]:
    """A method that returns something."""

    def method(*_: object) -> object:
        return value

    return method


def half_open(plug_in: Any, patch: Patch) -> None:
    """A port that it has bound stays bound when the other one is taken."""

    def stop_accepting(self: Any) -> None:
        KEPT.append(lambda: self)  # nobody closes it before the test has ended

    patch.setattr(plug_in.Listener, "stop_accepting", stop_accepting)


def forgotten_thread(plug_in: Any, patch: Patch) -> None:
    plain = plug_in.Syslog.start
    end = threading.Event()
    KEPT.append(end.set)

    def start(self: Any, core: object) -> None:
        plain(self, core)
        threading.Thread(target=end.wait, args=(60,), daemon=True).start()

    patch.setattr(plug_in.Syslog, "start", start)


def forgotten_task(plug_in: Any, patch: Patch) -> None:
    plain = plug_in.Syslog.serve

    async def serve(self: Any, bound: object) -> None:
        await plain(self, bound)
        self.forgotten = asyncio.ensure_future(asyncio.Event().wait())

    patch.setattr(plug_in.Syslog, "serve", serve)


def address_that_is_not_named(plug_in: Any, patch: Patch) -> None:
    plain = plug_in.Syslog.start

    def start(self: Any, core: Any) -> None:
        plain(self, core)
        core.streams.router.register(b"syslog", self._actor)

    patch.setattr(plug_in.Syslog, "start", start)


def socket_of_a_start(plug_in: Any, patch: Patch) -> None:
    plain = plug_in.Syslog.start

    def start(self: Any, core: object) -> None:
        plain(self, core)
        KEPT.append(socket.socket().close)

    patch.setattr(plug_in.Syslog, "start", start)


def links_of_who_is_gone(plug_in: Any, patch: Patch) -> None:
    patch.setattr(plug_in.Connection, "connection_lost", always(None))


def status_that_is_no_json(plug_in: Any, patch: Patch) -> None:
    patch.setattr(plug_in.Syslog, "status", always({"syslog": object()}))


def status_of_the_node(plug_in: Any, patch: Patch) -> None:
    patch.setattr(plug_in.Syslog, "status", always({"listeners": {}}))


def status_before_its_time(plug_in: Any, patch: Patch) -> None:
    def status(self: Any) -> dict[str, Any]:
        return {"syslog": bool(self._core.rules)}

    patch.setattr(plug_in.Syslog, "status", status)


def row_without_a_column(plug_in: Any, patch: Patch) -> None:
    patch.setattr(plug_in.Syslog, "_rows", always([{"outcome": "stored"}]))


def rows_that_are_not_told_apart(plug_in: Any, patch: Patch) -> None:
    patch.setattr(plug_in.Syslog, "_rows", always([{"outcome": "stored", "messages": 1}] * 2))


def row_of_another_kind(plug_in: Any, patch: Patch) -> None:
    patch.setattr(plug_in.Syslog, "_rows", always([{"outcome": "stored", "messages": "one"}]))


def sample_without_a_label(plug_in: Any, patch: Patch) -> None:
    samples = {"rillnode_syslog_messages_total": [((), 1.0)]}
    patch.setattr(plug_in.Syslog, "samples", always(samples))


def metric_without_samples(plug_in: Any, patch: Patch) -> None:
    patch.setattr(plug_in.Syslog, "samples", always({}))


def shared_counts(plug_in: Any, patch: Patch) -> None:
    plain, counts = plug_in.Syslog.__init__, Counter[str]()

    def init(self: Any, host: object) -> None:
        plain(self, host)
        self.counts = counts

    patch.setattr(plug_in.Syslog, "__init__", init)


def room_that_is_not_given_back(plug_in: Any, patch: Patch) -> None:
    patch.setattr(plug_in, "WAITING_MAX", 1)


def trouble_for_good(plug_in: Any, patch: Patch) -> None:
    plain = plug_in.PushingActor.handle

    async def handle(self: Any, message: Any, sender: Any) -> None:
        if not self._plug_in.trouble:
            await plain(self, message, sender)

    handle.__annotations__ = {**plain.__annotations__, "message": plug_in.Pushed}
    patch.setattr(plug_in.PushingActor, "handle", handle)


def not_ready_for_garbage(plug_in: Any, patch: Patch) -> None:
    check = plug_in.Check

    def checks(self: Any) -> Iterator[Any]:
        yield check("syslog", not self.counts["malformed"], "garbage came")

    patch.setattr(plug_in.Syslog, "checks", checks)


def frames_without_an_end(plug_in: Any, patch: Patch) -> None:
    class Frames:
        left = b""

        def take(self, data: bytes) -> list[bytes]:
            *lines, self.left = (self.left + data).split(b"\n")
            return lines

    patch.setattr(plug_in, "Frames", Frames)


def reload_that_raises(plug_in: Any, patch: Patch) -> None:
    def reload(self: Any, old: object, new: object) -> object:
        raise ValueError("nothing has changed")

    patch.setattr(plug_in.Syslog, "reload", reload)


def port_without_a_code(plug_in: Any, patch: Patch) -> None:
    async def serve(self: Any, bound: dict[str, Any]) -> None:
        listener = plug_in.Listener(self)
        await listener.bind(*self._table.address)
        bound["syslog"] = listener

    patch.setattr(plug_in.Syslog, "serve", serve)


def key_without_a_line(plug_in: Any, patch: Patch) -> None:
    patch.setattr(plug_in.SyslogTable, "__doc__", "Syslog messages.")


Mistake = tuple[Callable[[Any, Patch], None], str, str | None]
"""With the test that finds it, by how its name begins, and what that says."""

MISTAKES: Final[list[Mistake]] = [
    (forgotten_task, "test_a_node_that_has_stopped_leaves_nothing", "tasks are left"),
    (row_without_a_column, "test_it_can_be_looked_at", "a row without {'messages'}"),
    (status_of_the_node, "test_its_status_is_json", "keys of the node"),
    (trouble_for_good, "test_a_store_that_takes_no_writes", None),
    (key_without_a_line, "test_every_key_of_its_tables_is_described", "no line .* 'stream'"),
]

FURTHER: Final[list[Mistake]] = [
    (half_open, "test_a_port_that_is_taken", "left behind"),
    (port_without_a_code, "test_a_port_that_is_taken", "OSError"),
    (forgotten_thread, "test_a_node_that_has_stopped_leaves_nothing", "the thread"),
    (socket_of_a_start, "test_a_start_that_fails", "a descriptor of socket"),
    (links_of_who_is_gone, "test_users_that_are_gone_leave_nothing", "links of users"),
    (address_that_is_not_named, "test_no_application_takes", r"rillnode.words: \['syslog'\]"),
    (shared_counts, "test_two_nodes_of_a_process_share_nothing", "stored"),
    (reload_that_raises, "test_the_same_configuration_again", "nothing has changed"),
    (status_that_is_no_json, "test_its_status_is_json", "object"),
    (status_before_its_time, "test_it_can_be_looked_at", "_core"),
    (rows_that_are_not_told_apart, "test_it_can_be_looked_at", "two rows are the same"),
    (row_of_another_kind, "test_it_can_be_looked_at", "messages is count, and a row has 'one'"),
    (sample_without_a_label, "test_its_metrics_are_such", "rillnode_syslog_messages_total"),
    (metric_without_samples, "test_its_metrics_are_such", "do not name the same"),
    (room_that_is_not_given_back, "test_an_actor_that_fails", None),
    (not_ready_for_garbage, "test_hostile_bytes_disturb_nobody", "garbage came"),
    (frames_without_an_end, "test_messages_without_an_end", "syslog"),
]


@pytest.mark.parametrize(
    ("mistake", "test", "said"),
    [*MISTAKES, *in_the_long_part(FURTHER)],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_mistake_is_found(
    plug_in: Any,
    mistake: Callable[[Any, Patch], None],
    test: str,
    said: str | None,
    tmp_path: Path,
    monkeypatch: Patch,
) -> None:
    mistake(plug_in, monkeypatch)
    with pytest.raises(BaseException, match=said) as caught:
        run(test, tmp_path)
    assert isinstance(caught.value, Exception | pytest.fail.Exception)


@pytest.mark.long
def test_an_actor_that_is_not_declared_is_found(plug_in: Any, tmp_path: Path) -> None:
    base = import_module("syslog_suite").TestSyslog
    suite: Any = type("TestLess", (base,), {"actors": ()})
    with pytest.raises(AssertionError, match=r"not in `actors`: .*PushingActor"):
        run("test_a_node_with_it_starts", tmp_path, suite())
    assert suite.test_an_actor_that_fails_loses_its_message_and_nothing_else is None


@pytest.mark.long
@pytest.mark.parametrize(
    ("module", "test"),
    [("cli", "test_the_help_of_its_commands"), ("config", "test_reading_its_tables")],
)
def test_an_import_that_only_a_node_needs_is_found(
    plug_in: Any, tmp_path: Path, monkeypatch: Patch, module: str, test: str
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    add_package(site)
    with (site / "rillnode_syslog" / f"{module}.py").open("a") as file:
        file.write("import rocksdict\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(site), ROOT)))
    with pytest.raises(AssertionError, match="imported for nothing"):
        run(test, tmp_path)


def run(test: str, tmp_path: Path, suite: Any = None) -> None:
    """Run a test of the example's suite that begins so, for each of its parameters."""
    suite = suite or import_module("syslog_suite").TestSyslog()
    (name,) = [one for one in dir(suite) if one.startswith(test)]
    found = getattr(suite, name)
    given = {"tmp_path": tmp_path, "method": "start", "when": "after"}
    wanted = found.__func__.__wrapped__ if hasattr(found, "__wrapped__") else found.__func__
    names = wanted.__code__.co_varnames[1 : wanted.__code__.co_argcount]
    found(**{one: given[one] for one in names})
