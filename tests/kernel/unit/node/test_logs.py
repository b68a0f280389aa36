"""Log lines: one event each, for people and for machines."""

import io
import json
import logging

import pytest

from rillnode.node.config import LogTable
from rillnode.node.logs import ConsoleFormatter, JsonFormatter, configure_logs

HEX = "0123456789abcdef" * 4


def record(event: str, /, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord(
        "rillnode.actors.engine.system", logging.INFO, "f", 1, event, None, None
    )
    made.created = 1_800_000_000.25
    vars(made).update(fields)
    return made


def test_the_console_shows_time_level_logger_event_and_fields() -> None:
    line = ConsoleFormatter().format(record("link opened", transport="noise", seconds=0.25))
    assert line == (
        "2027-01-15T08:00:00.250Z info rillnode.actors.engine.system link opened "
        "transport=noise seconds=0.25"
    )


def test_json_has_the_same_as_one_object() -> None:
    line = JsonFormatter().format(record("link opened", transport="noise", count=3, ok=True))
    assert json.loads(line) == {
        "time": "2027-01-15T08:00:00.250Z",
        "level": "info",
        "logger": "rillnode.actors.engine.system",
        "event": "link opened",
        "transport": "noise",
        "count": 3,
        "ok": True,
    }


@pytest.mark.parametrize("formatter", [ConsoleFormatter(), JsonFormatter()])
def test_hostile_text_cannot_start_a_line_of_its_own(formatter: logging.Formatter) -> None:
    line = formatter.format(record("bad\nname\x1b[2J", stream='a"\n2027 info x\x1b[2J', empty=""))
    assert "\n" not in line
    assert "\x1b" not in line


def test_a_field_cannot_pretend_to_be_the_event() -> None:
    document = json.loads(JsonFormatter().format(record("real", event="forged", level="none")))
    assert (document["event"], document["level"]) == ("real", "info")


@pytest.mark.parametrize("formatter", [ConsoleFormatter(), JsonFormatter()])
def test_bytes_are_counted_not_shown(formatter: logging.Formatter) -> None:
    line = formatter.format(record("pushed", data=b"secret"))
    assert "<6 bytes>" in line
    assert "secret" not in line


def test_ids_are_short_for_people_and_whole_for_machines() -> None:
    made = record("refused", principal=f"noise:{HEX}")
    assert ConsoleFormatter().format(made).endswith("principal=noise:01234567")
    assert json.loads(JsonFormatter().format(made))["principal"] == f"noise:{HEX}"


def test_an_exception_is_kept() -> None:
    made = record("failed")
    try:
        raise ValueError("why")
    except ValueError as error:
        made.exc_info = (ValueError, error, error.__traceback__)
    assert ConsoleFormatter().format(made).endswith("ValueError: why")
    assert json.loads(JsonFormatter().format(made))["exception"].endswith("ValueError: why")


def test_levels_are_set_by_layer() -> None:
    stream = io.StringIO()
    table = LogTable(level="info", format="console", levels={"transports": "error"})
    configure_logs(table, stream)
    logging.getLogger("rillnode.actors.engine.system").info("heard")
    logging.getLogger("rillnode.actors.engine.system").debug("not heard")
    logging.getLogger("rillnode.transports.tcp").warning("not heard")
    logging.getLogger("rillnode.transports.tcp").error("heard")
    logging.getLogger("aiohttp").info("not heard")
    logging.getLogger("aiohttp").warning("heard")
    assert [line.partition(" ")[2] for line in stream.getvalue().splitlines()] == [
        "info rillnode.actors.engine.system heard",
        "error rillnode.transports.tcp heard",
        "warning aiohttp heard",
    ]


def test_without_a_terminal_auto_is_json() -> None:
    stream = io.StringIO()
    configure_logs(LogTable(), stream)
    logging.getLogger("rillnode.node").info("started")
    assert json.loads(stream.getvalue())["event"] == "started"
