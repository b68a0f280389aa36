"""`examples/demo.py`: its verdict counts what is there, and it leaves nothing behind."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from chromium import CHROMIUM, browsing
from demo_events import DemoError, Event, load_events
from demo_page import SERIES, Recording, write_page

ROOT = Path(__file__).parents[3]
DATA = Path(__file__).parent / "data" / "thirteen.jsonl"
DEMO_SECONDS = 400
KILLED_SECONDS = 120


def demo(out: Path, *arguments: str | Path, data: Path = DATA) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo.py", "--data", data, "--out", out, *arguments],
        cwd=out,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEMO_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()


@pytest.mark.spark
def test_every_event_is_in_every_place(tmp_path: Path) -> None:
    code, lines = demo(tmp_path)

    assert lines[-1] == "demo ok: pushed=13 consumed=13 table=13 duplicates=0", "\n".join(lines)
    assert code == 0
    assert any("consumer killed" in line for line in lines)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.html", "report.png"]
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")


def recorded(events: Sequence[Event]) -> Recording:
    recording = Recording()
    for name in SERIES:
        note = recording.noting(name, lambda _: None)
        for count in range(1, len(events) + 1):
            note(count)
    recording.killed()
    recording.resumed()
    recording.ended("killed after 1")
    return recording


def test_the_page_holds_what_was_recorded_and_no_event_can_end_its_script(tmp_path: Path) -> None:
    data = tmp_path / "events.jsonl"
    rows = [
        {"mag": 2.5, "geometry": {"coordinates": [10, 20.5, 3]}, "at": 5},
        {"mag": "</script><script>alert(1)</script>", "geometry": {"coordinates": ["x"]}},
    ]
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    events = load_events(data, "key", "at")
    page = tmp_path / "index.html"
    write_page(page, recorded(events), events, "mag", "demo ok </script>")
    text = page.read_text()
    assert text.count("</script>") == 2
    assert "alert" not in text
    found = re.search(r'type="application/json">(.*?)</script>', text)
    assert found is not None
    run = json.loads(found[1])
    assert run["events"] == [[5, 2.5, 10, 20.5], [None, None]]
    assert run["total"] == 2
    assert [series[-1][1] for series in run["series"].values()] == [2, 2, 2]
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.long
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
@pytest.mark.parametrize("data", [DATA, ROOT / "examples" / "data" / "earthquakes.json"])
async def test_the_page_plays_in_a_browser(tmp_path: Path, data: Path) -> None:
    events = load_events(data, "properties.net", "properties.time")
    page = tmp_path / "index.html"
    write_page(page, recorded(events), events, "properties.mag", "demo ok")
    async with browsing(tmp_path / "profile") as tab:
        await tab.open(page.as_uri())
        await tab.until("document.getElementById('play').textContent === 'Pause'")
        # What nothing happens in takes no more than two of its seconds.
        assert await tab.run("secondAt(0) === 0 && secondAt(1) === until")
        assert await tab.run("paces.every(([, one], i) => !i || one - paces[i - 1][1] <= 2)")
        await tab.run(
            "(() => { const at = document.getElementById('at'); at.value = 1000;"
            " at.dispatchEvent(new Event('input')); })()"
        )
        for name in SERIES:
            shown = await tab.run(f"document.getElementById('{name}').textContent")
            assert shown == f"{len(events):,}"
        hidden = await tab.run("document.getElementById('world').hidden")
        assert hidden == (data == DATA)
        assert tab.problems == []
        assert tab.requested == [page.as_uri()]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("fault", "numbers"),
    [
        pytest.param(
            "unlanded", "pushed=13 consumed=13 table=12 duplicates=0", marks=pytest.mark.long
        ),
        pytest.param(
            "unpublished", "pushed=12 consumed=12 table=12 duplicates=0", marks=pytest.mark.long
        ),
        pytest.param(
            "unconsumed", "pushed=13 consumed=12 table=13 duplicates=0", marks=pytest.mark.long
        ),
        pytest.param(
            "duplicate", "pushed=13 consumed=13 table=14 duplicates=1", marks=pytest.mark.long
        ),
    ],
)
def test_planted_fault_is_found(fault: str, numbers: str, tmp_path: Path) -> None:
    code, lines = demo(tmp_path, "--plant", fault)

    assert lines[-1].startswith(f"demo FAILED: {numbers}: "), "\n".join(lines)
    assert code == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "holds no events"),
        ('{"a": 1}\nnot json\n', "event 2 is not a JSON object"),
        ("[1]\n", "event 1 is not a JSON object"),
    ],
)
def test_data_that_is_none_is_refused(content: str, said: str, tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text(content)
    with pytest.raises(DemoError, match=said):
        load_events(data, "key", "at")


def test_a_demo_of_no_data_fails(tmp_path: Path) -> None:
    code, lines = demo(tmp_path, data=tmp_path / "none")
    assert code == 1
    assert lines[-1].startswith("demo FAILED: ")


@pytest.mark.spark
@pytest.mark.parametrize(
    "sign",
    [
        pytest.param("noted.log", id="while it consumes", marks=pytest.mark.long),
        pytest.param("spark/log4j2.properties", id="while it reports", marks=pytest.mark.long),
    ],
)
def test_interrupt_ends_everything(sign: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, ROOT / "examples" / "demo.py", "--data", DATA, "--out", tmp_path],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + DEMO_SECONDS
        while not (found := list(tmp_path.glob(f"work-*/{sign}"))) or not found[0].stat().st_size:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        work = found[0].relative_to(tmp_path).parts[0]
        process.send_signal(signal.SIGINT)
        assert process.wait(DEMO_SECONDS) == 130
    finally:
        process.kill()

    assert list(tmp_path.iterdir()) == []
    # A process that was killed is listed until the system has taken back its memory.
    deadline = time.monotonic() + KILLED_SECONDS
    while (left := processes_that_name(work)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


def processes_that_name(text: object) -> list[str]:
    found: list[str] = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if str(text) in command:
            found.append(f"{pid} {command}")
    return found
