"""The reference is made from the code, and says of every error what to do about it."""

import re
import runpy
import subprocess
from functools import cache
from importlib.metadata import EntryPoint

import pytest

import generate
import manual
from error_codes import ErrorCode, error_codes
from rillnode.codecs.errors import CodecError, StoreError
from rillnode.codecs.next_steps import NEXT_STEPS, every_step, next_step, step_of
from rillnode.node import installed
from rillnode.node.cli.command import build_parser
from rooms import PLUG_INS

pytestmark = [pytest.mark.check, pytest.mark.needs(*PLUG_INS)]


@cache
def codes() -> dict[str, ErrorCode]:
    return {one.code: one for one in error_codes()}


@pytest.mark.parametrize("name", generate.PAGES)
def test_the_page_is_as_the_code_says(name: str) -> None:
    written = (generate.REFERENCE / name).read_text(encoding="utf-8")
    assert written == generate.PAGES[name](), "run `python docs/generate.py`"


@pytest.mark.parametrize("value", [None, "rillnode.node.gateway.moved:GatewayTable"])
def test_pages_are_not_written_without_a_part_of_a_plug_in(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is not installed, as after a pull without `make setup`, or cannot be imported."""
    every = installed.installed

    def fewer(group: str) -> dict[str, EntryPoint]:
        found = dict(every(group))
        if group == installed.TABLES:
            point = found.pop("gateway")
            if value is not None:
                found["gateway"] = EntryPoint(point.name, value, point.group)
        return found

    monkeypatch.setattr(installed, "installed", fewer)
    with pytest.raises(SystemExit) as refused:
        runpy.run_path(str(generate.__file__), run_name="__main__")
    reason = str(refused.value)
    assert "so none was written" in reason
    assert "rillnode.tables, gateway: the plug-in 'gateway'" in reason
    assert reason.count("\n") == 1
    assert "make setup" in reason


# Error codes -----------------------------------------------------------------------------------


def test_codes_are_found_with_their_classes_and_texts() -> None:
    for code, classes, texts in (
        ("codec.bool", {"CodecError"}, ["bool is neither 0 nor 1"]),  # given to a helper
        ("listen.in_use", {"TransportError"}, [  # by way of a variable
            "<where> is in use: stop what uses it or choose another port",
        ]),
        ("key.mode", {"ConfigError"}, []),
        ("http.length", {"RequestError"}, ["Send Content-Length, or the body in chunks"]),
    ):  # fmt: skip
        assert codes()[code].classes == classes
        assert codes()[code].texts[: len(texts)] == texts
    assert "no link" in codes()["link.closed"].meaning


def test_names_of_files_and_loggers_are_no_codes() -> None:
    assert not [code for code in codes() if re.search(r"^rillnode\.|\.(toml|lock|py)$", code)]
    assert not {"backup.json", "ockam.key", "spark.driver.host"} & set(codes())


def test_every_code_has_a_meaning() -> None:
    assert [one.code for one in codes().values() if not one.meaning] == []


def test_every_code_that_users_meet_has_a_next_step() -> None:
    without = [one for one in codes().values() if not step_of(one.code)]
    of_peers = {"CodecError"}
    on_reading = {"signature.invalid", "signature.missing"}  # such messages are dropped
    assert {one.code for one in without if one.classes != of_peers} <= on_reading


def test_every_next_step_is_one_for_a_code() -> None:
    families = {code.partition(".")[0] for code in codes()}
    assert set(every_step()) <= families | set(codes())


def test_a_step_is_looked_for_by_code_then_family_then_class() -> None:
    assert step_of("backup.harmed") == NEXT_STEPS["backup.harmed"]
    assert step_of("backup.unheard_of") == NEXT_STEPS["backup"]
    assert "versions of both" in next_step(CodecError("codec.truncated", "short"), "rillnode run")
    assert next_step(StoreError("unheard.of", "text"), "rillnode run") == "try again"


def test_each_command_has_a_man_page_with_its_options() -> None:
    pages = manual.manual()
    commands = list(build_parser().walk())
    assert set(pages) == {
        f"{one.prog.replace(' ', '-')}.1" for one in commands if one.prog.count(" ") < 2
    }
    everything = "\n".join(pages.values()).replace("\\-", "-").replace("\\(aq", "'")
    for command in commands:
        for action in command.actions:
            for option in action.option_strings:
                assert option in everything


@pytest.mark.needs("groff")
def test_troff_takes_every_man_page() -> None:
    for name, page in manual.manual().items():
        done = subprocess.run(
            ["groff", "-man", "-ww", "-z", "-Tutf8"],
            input=page, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stderr == "", name


@cache
def python_page() -> str:
    return generate.python_page()


def test_each_field_of_the_public_classes_has_a_text() -> None:
    rows = re.findall(r'^\| <a id="([\w.]+)"></a>.*\| (.*) \|$', python_page(), re.MULTILINE)
    assert len(rows) > 400
    assert [field for field, text in rows if not text] == []


def test_each_public_class_and_function_has_a_text() -> None:
    named = re.findall(r"^### ([\w.]+)\n\n(?:```text\n(?:.+\n)*```\n\n)?(.*)$", python_page(), re.M)
    assert len(named) == python_page().count("\n### ")
    assert [name for name, text in named if not re.match(r"[\w`]", text)] == []


def test_each_method_of_the_public_classes_has_a_text() -> None:
    methods = re.findall(
        r"^#### ([\w.]+)\n\n```text\n(?:.+\n)*```\n\n(.*)$", python_page(), re.MULTILINE
    )
    assert len(methods) == python_page().count("\n#### ")
    assert [name for name, text in methods if not re.match("[A-Z`]", text)] == []


def test_what_is_returned_is_told_whole() -> None:
    page = python_page()
    assert "Returns: The answer to whoever waits for one; None: there is none, or it " in page
    told = re.findall("^Returns: (.*)$", page, re.MULTILINE)
    assert len(told) > 8
    assert [one for one in told if not one[0].isupper()] == []


def test_types_and_defaults_are_those_of_a_program() -> None:
    """What msgspec checks and shows in a file beside them is no part of a call."""
    for row in re.findall(r'^\| <a id="[\w.]+"></a>.*', python_page(), re.MULTILINE):
        assert "Annotated[" not in row
        assert "field(" not in row


def test_what_stands_in_tables_of_plug_ins_is_told_too() -> None:
    page = python_page()
    for name in ("PythonSink.table_dir", "SparkSink.master", "ApiKeyTable.name", "Catalog.type"):
        assert f'<a id="{name}"></a>' in page, name
    assert "| `TableLocation` | <code>" in page


def test_a_signature_needs_no_look_into_the_source() -> None:
    page = generate.python_page()
    signatures = "".join(re.findall(r"```text\n(.*?)```", page, re.DOTALL))
    assert re.findall(r"= [A-Z][A-Z_]+", signatures) == []  # constants are shown by their values
    named = set(re.findall(r"^\| `(\w+)` \| <code>", page, re.MULTILINE))
    assert {"Ack", "Answered", "FaultKind", "OnDisconnect", "Start", "Target", "Time"} <= named
    # What a name stands for is said with names that stand on the page, too.
    assert "<code>int &#124; Literal['start', 'end'] &#124; Time</code>" in page
