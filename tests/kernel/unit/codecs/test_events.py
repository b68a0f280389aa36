"""Lines of the log say what happened, and what to do, under any formatter."""

import ast
import io
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rillnode.codecs.events import Event, event_logger
from rillnode.codecs.next_steps import EVENT_STEPS, NEXT_STEPS, step_of
from rillnode.codecs.words import brought_words
from rooms import PLUG_INS

ROOT = Path(__file__).parents[4]
LAYERS = ("actors", "codecs", "node", "transports")
OWN_USE = {
    "actors/apps/context.py",  # of an application: what it logs are texts of its own
    "codecs/events.py",
    "node/http/recent.py",
    "node/logs.py",
    "node/simulation/cli.py",
    "transports/web_server.py",  # of aiohttp
}
"""Modules that have a use for Python's loggers themselves."""

ERRORS = {"error", "critical", "exception"}
NAME = "rillnode.test_events"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """What an application sees that has called `logging.basicConfig()`."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
    logger = logging.getLogger(NAME)
    logger.addHandler(handler)
    yield written
    logger.removeHandler(handler)


def test_pythons_own_format_shows_the_details(stream: io.StringIO) -> None:
    event_logger(NAME).warning("store_repaired", extra={"attempts": 3, "where": "a b"})
    assert stream.getvalue() == f'WARNING:{NAME}:store_repaired attempts=3 where="a b"\n'


def test_from_warning_on_a_line_says_what_to_do(stream: io.StringIO) -> None:
    logger = event_logger(NAME)
    logger.warning("store_not_reopened", extra={"code": "store.full"})
    logger.info("store_not_reopened", extra={"code": "store.full"}, stack_info=False)
    logger.error("read_failed", extra={"reason": "EIO"})
    assert stream.getvalue().splitlines() == [
        f"WARNING:{NAME}:store_not_reopened code=store.full; next: {step_of('store.full')}",
        f"ERROR:{NAME}:read_failed reason=EIO; next: {EVENT_STEPS['read_failed']}",
    ]


def test_hostile_details_cannot_start_a_line_and_secrets_do_not_come(stream: io.StringIO) -> None:
    extra = {"stream": 'a"\nx\x1b[2J', "data": b"secret", "who": "0123456789abcdef" * 4}
    event_logger(NAME).warning("bad\nname%s", extra=extra)
    assert stream.getvalue() == (
        f'WARNING:{NAME}:"bad\\nname%s" stream="a\\"\\nx\\u001b[2J" data="<6 bytes>" who=01234567\n'
    )


def test_a_line_says_where_it_was_logged(caplog: pytest.LogCaptureFixture) -> None:
    logger = event_logger(NAME)
    logger.warning("first")
    logger.exception("second")
    logger.log(logging.ERROR, "third %s", "x")
    assert {Path(record.pathname) for record in caplog.records} == {Path(__file__)}
    assert [record.msg for record in caplog.records] == ["first", "second", "third x"]


def test_what_is_not_written_is_not_formatted(stream: io.StringIO) -> None:
    class Detail:
        asked = 0

        def __str__(self) -> str:
            Detail.asked += 1
            return "detail"

    event_logger(NAME).debug("unheard", extra={"detail": Detail()})
    assert (Detail.asked, stream.getvalue()) == (0, "")
    event_logger(NAME).warning("heard", extra={"detail": Detail()})
    assert stream.getvalue().endswith(":heard detail=detail\n")


def test_filters_find_an_event_by_its_name() -> None:
    event = Event("link_lost", {"code": "link.closed"}, logging.INFO)
    assert event == "link_lost"
    assert event.name == "link_lost"
    assert f"{event}" == str(event) == "link_lost code=link.closed"


def sources() -> dict[str, str]:
    paths = (path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))
    return {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in paths}


@pytest.mark.check
def test_there_is_one_way_to_log() -> None:
    found = {path for path, source in sources().items() if "getLogger(" in source}
    assert found == OWN_USE


def logged(source: str) -> Iterator[tuple[str, str, ast.Call]]:
    """The events that a module logs, each with its level and the call."""
    for call in ast.walk(ast.parse(source)):
        match call:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="logger" | "_logger"), attr=level),
                args=[ast.Constant(value=str(event)), *_],
            ):
                yield event, level, call
            case _:
                pass


@pytest.mark.check
def test_every_error_in_the_log_has_a_next_step() -> None:
    """It has one by its name, or else a code."""
    named: set[str] = set()
    brought = {event for words in brought_words() for event in words.event_steps}
    for path, source in sources().items():
        own = brought if {*path.split("/")[1:-1]} & {*PLUG_INS} else set[str]()
        for event, level, call in logged(source):
            named.add(event)
            if level in ERRORS and event not in {*EVENT_STEPS, *own}:
                assert "'code':" in ast.unparse(call), f"{path}: {event}"
    assert {*EVENT_STEPS, *brought} <= named


@pytest.mark.check
def test_steps_for_what_a_plug_in_alone_tells_of_stand_in_its_room() -> None:
    kernel = {
        path: source
        for path, source in sources().items()
        if not {*path.split("/")[1:-1]} & {*PLUG_INS} and path != "codecs/next_steps.py"
    }
    named = {event for source in kernel.values() for event, _, _ in logged(source)}
    assert {*EVENT_STEPS} <= named
    codes = set(re.findall(r'"([a-z]+\.[a-z_]+)"', "\n".join(kernel.values())))
    assert {*NEXT_STEPS} <= codes | {code.partition(".")[0] for code in codes}


@pytest.mark.check
def test_no_plug_in_says_what_to_do_about_what_others_tell_of_too() -> None:
    every = sources()
    for room in PLUG_INS:
        said = re.findall(r'"([a-z]+\.[a-z_]+)": ', every.get(f"node/{room}/words.py", ""))
        for path, source in every.items():
            if room not in path.split("/")[1:-1]:
                also = {code for code in said if f'"{code}"' in source}
                assert not also, f"{path} tells of {also}, for which the words of {room} have steps"
