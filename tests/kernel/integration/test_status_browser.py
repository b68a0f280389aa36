"""The status page in a real browser, clicked through while a load runs.

`RILLNODE_SCREENSHOTS=1` writes the pictures of the documentation anew.
"""

import asyncio
import itertools
import json
import math
import os
import signal
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from msgspec.structs import replace

from chromium import CHROMIUM, Tab, browsing
from coroutines import handed_by, run_with
from nodes import connect_to, node_config
from rillnode.node.client import Client
from rillnode.node.config import HttpListener, PeerTable
from rillnode.node.plugin import COLUMN_KINDS, Column, PageTable, PlugIn
from rillnode.node.plugins import PlugIns
from rillnode.node.runtime import Node
from rillnode.node.testing.contract.ports import free_address

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        CHROMIUM is None,
        reason="no Chromium: tests/kernel/integration/browser/install.sh installs it",
    ),
]

ROOT: Final = Path(__file__).parents[3]
PICTURES: Final = ROOT / "docs" / "how-to"
PICTURE_BYTES_MAX: Final = 150_000
WRITES_PICTURES: Final = bool(os.environ.get("RILLNODE_SCREENSHOTS"))
STREAM: Final = "sensors/temperature"
COUNT: Final = "document.querySelector('#network-count').textContent"
ROWS: Final = "document.querySelectorAll('#entries-body tbody tr')"


async def load(client: Client, name: str, partitions: int, most: int) -> None:
    """Push for ever, sometimes more and sometimes less."""
    stream = await client.stream(name, partitions=partitions)
    sent = 0
    for step in itertools.count():
        count = max(1, round(most * (1.2 + math.sin(step / 20))))
        items = [
            json.dumps({"sensor": f"s{n % 7}", "celsius": 20 + n % 9 / 10, "sequence": n}).encode()
            for n in range(sent, sent + count)
        ]
        await stream.push_many(items, partition=step % partitions)
        sent += count
        await asyncio.sleep(0.1)


async def consume(client: Client) -> None:
    stream = await client.stream(STREAM, partitions=2)
    async for _ in stream.consumer("dashboard"):
        pass


@asynccontextmanager
async def loaded(directory: Path, *, busy: bool = True) -> AsyncGenerator[tuple[Node, str]]:
    peer = PeerTable(name="core", ockam="127.0.0.1:9")
    config = replace(node_config(directory), name="edge-1", peers=(peer,))
    async with Node(config) as node:
        clients = [await connect_to(node) for _ in range(3 if busy else 0)]
        tasks = [
            asyncio.create_task(one)
            for one in (
                (load(clients[0], STREAM, 2, 40), load(clients[1], "orders", 1, 6),
                 consume(clients[2])) if busy else ()
            )
        ]  # fmt: skip
        try:
            yield node, f"http://{node.addresses()['http']}/"
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for client in clients:
                await client.close()


def in_browser(directory: Path, body: Any, **options: Any) -> None:
    async def main() -> None:
        async with (
            loaded(directory / "node", **options) as (node, url),
            browsing(directory / "profile") as tab,
        ):
            await tab.resize(1160, 930)
            await tab.open(url)
            await body(node, url, tab)
            assert tab.problems == []
            assert all(one.startswith((url, "data:")) for one in tab.requested), tab.requested

    asyncio.run(main())


node = handed_by(in_browser)
url = handed_by(in_browser, 1)
tab = handed_by(in_browser, 2)


async def page(tab: Tab, name: str) -> None:
    """Go to another page by its tab."""
    await tab.click(f"#tabs a[href='#/{name}']")
    await tab.until(f"document.querySelector('#tabs [aria-current]').hash === '#/{name}'")


async def choose(tab: Tab, selector: str, value: str) -> None:
    await tab.until(f"document.querySelector({json.dumps(selector)})")
    await tab.run(
        f"(one => {{ one.value = {json.dumps(value)}; one.dispatchEvent(new Event('change')); }})"
        f"(document.querySelector({json.dumps(selector)}))"
    )


async def fill(tab: Tab, selector: str, text: str) -> None:
    """Write into a field what it is to hold, and press Enter."""
    await tab.run(f"document.querySelector({json.dumps(selector)}).value = ''")
    await tab.run(f"document.querySelector({json.dumps(selector)}).focus()")
    await tab.write(text)
    await tab.press("Enter")


async def picture(tab: Tab, name: str, tmp_path: Path) -> None:
    file = (PICTURES if WRITES_PICTURES else tmp_path) / name
    await tab.screenshot(file)
    assert file.stat().st_size > 10_000
    assert file.stat().st_size < PICTURE_BYTES_MAX or not WRITES_PICTURES


class Weather(PlugIn):
    """Shows each kind of column, with a value and without."""

    degrees = 7

    @property
    def page_tables(self) -> Sequence[PageTable]:
        columns = [Column("station"), *(Column(kind, kind) for kind in COLUMN_KINDS)]
        return (
            PageTable("stations", "Stations", columns, self._rows),
            PageTable("storms", "Storms", columns, tuple, "No storm yet."),
        )

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        told = {
            "text": "<b>fog</b>", "words": "as told", "state": "open", "count": self.degrees,
            "rate": 0.25, "bytes": 2_000_000, "seconds": 0.5, "time": 1,
        }  # fmt: skip
        return [{"station": "Berlin", **told}, {"station": "Kiel", **dict.fromkeys(told)}]


async def test_tables_of_plug_ins_are_drawn_like_those_of_the_node(
    node: Node, url: str, tab: Tab
) -> None:
    given: Any = SimpleNamespace(name="weather")
    parts: Any = node.observed.parts
    before, weather = parts.plug_ins, Weather(given)
    object.__setattr__(parts, "plug_ins", PlugIns((*before, weather)))
    try:
        cells = "[...document.querySelectorAll('#of-weather-stations tr[data-key={}] td')]"
        texts = f"JSON.stringify({cells}.map(one => one.textContent))"
        berlin = json.loads(await tab.until(f"{cells.format('Berlin')}.length && "
                                            f"{texts.format('Berlin')}"))  # fmt: skip
        assert berlin[:8] == [
            "Berlin", "<b>fog</b>", "as told", "open", "7", "0.25", "2.0 MB", "500.0 ms",
        ]  # fmt: skip
        assert berlin[8].endswith(" ago")
        kiel = json.loads(await tab.run(texts.format("Kiel")))
        assert kiel == ["Kiel", "-", "", "-", "-", "0", "-", "-", "-"]
        await tab.until("document.querySelector('#of-weather-storms').textContent.includes"
                        "('No storm yet.')")  # fmt: skip
        weather.degrees = 8
        await tab.until(f"{cells.format('Berlin')}[4].textContent === '8'")
        await page(tab, "links")
        await tab.until("document.querySelector('#of-weather-stations').hidden")
        await tab.click("#tabs a[href='#/']")
        await tab.until(f"{cells.format('Berlin')}.length")
    finally:
        object.__setattr__(parts, "plug_ins", before)
    await tab.until("!document.querySelector('#of-weather-stations')")


async def test_the_page_is_clicked_through_under_load(
    node: Node, url: str, tab: Tab, tmp_path: Path
) -> None:
    await tab.until("document.querySelector('#state').textContent === 'ready'")
    # The tiles move.
    value = "document.querySelector('#tile-messages .value').textContent"
    first = await tab.until(f"{value} !== '0/s' && {value}")
    await tab.until(f"{value} !== {json.dumps(first)}")
    line = "document.querySelector('#tile-messages polyline').getAttribute('points')"
    points = len((await tab.until(f"{line}")).split())
    await tab.until(f"{line}.split(' ').length > {points}")
    # What is looked at first is there, and the busiest of streams is above.
    await tab.until("document.querySelectorAll('#streams tbody tr').length === 2")
    first = "document.querySelector('#streams tbody tr').dataset.key"
    await tab.until(f"{first} === {json.dumps(STREAM)}")
    await tab.until("document.querySelector('#peers').textContent.includes('core')")
    await tab.until("document.querySelector('#sinks').textContent.includes('[[sink.spark]]')")
    if WRITES_PICTURES:
        await asyncio.sleep(45)
    await picture(tab, "status-page.png", tmp_path)
    await page(tab, "links")
    await tab.until("document.querySelectorAll('#links tbody tr .good').length === 3")
    await tab.until("document.querySelector('#links').textContent.includes('kB/s')")
    await page(tab, "actors")
    await tab.until("document.querySelector('#actors').textContent.includes('StreamActor')")
    # Everybody's consumers, groups and queues.
    work = await node.stream("jobs")
    await work.push_many([b"1", b"2"])
    async with work.work("prints"), work.consumer("printers", group=True):
        await page(tab, "consumers")
        text = "document.querySelector('main').innerText"
        for shown in ("dashboard", "prints", "printers"):
            await tab.until(f"{text}.includes({json.dumps(shown)})")
        await tab.click("#queues td a")
        await tab.until("location.hash === '#/streams/jobs'")
        await tab.until("document.querySelector('#queues tbody')")
    # A stream opens, and its tail lives.
    await page(tab, "streams")
    await tab.until(f"document.querySelector(\"[data-stream='{STREAM}']\")")
    await tab.click(f"[data-stream='{STREAM}']")
    await tab.until(f"{ROWS}.length === 100")
    newest = await tab.run(f"{ROWS}[0].textContent")
    await tab.until(f"{ROWS}[0].textContent !== {json.dumps(newest)}")
    assert "celsius" in await tab.run(f"{ROWS}[0].textContent")
    assert await tab.run(f"{ROWS}.length") == 100
    await choose(tab, "#view", "hex")
    await tab.until(f"{ROWS}[0].textContent.includes('7b 22 73 65 6e')")
    await choose(tab, "#view", "decoded")
    await tab.until(f"{ROWS}[0].textContent.includes('celsius')")
    await tab.click("#live")
    await tab.until("document.querySelector('#live').ariaPressed === 'false'")
    await tab.until(f"{ROWS}.length === 50")
    newest = await tab.run(f"{ROWS}[0].textContent")
    await asyncio.sleep(2)
    assert await tab.run(f"{ROWS}[0].textContent") == newest
    await tab.click("#live")
    await tab.until(f"{ROWS}[0].textContent !== {json.dumps(newest)}")
    # The consumer is named, and the last hour has axes and something in it.
    consumers = "document.querySelector('#consumers').textContent"
    await tab.until(f"{consumers}.includes('dashboard')")
    await tab.until("document.querySelector('#chart-entries')")
    assert "at most" in await tab.run("document.querySelector('#chart-bytes').ariaLabel")
    bars = "[...document.querySelectorAll('#chart-entries rect')]"
    assert max(await tab.run(f"{bars}.map(one => +one.getAttribute('height'))")) > 50
    await tab.run("scrollTo(0, 0)")
    await picture(tab, "status-page-stream.png", tmp_path)


@run_with(busy=False)
async def test_a_route_is_tried_on_the_page(node: Node, url: str, tab: Tab) -> None:
    # All is drawn that moves what stands below it.
    await tab.until("document.querySelector('#state').textContent === 'ready'")
    await page(tab, "links")
    await tab.until("document.querySelector('#peers tbody')")
    await tab.click("#route-input")
    await tab.write("echo")
    await tab.press("Enter")
    answer = "document.querySelector('#route-answer').textContent"
    await tab.until(f"{answer}.includes('answers')")
    await tab.run("document.querySelector('#route-input').value = ''")
    await tab.click("#route-input")
    await tab.write("peer/nobody")
    await tab.press("Enter")
    await tab.until(f"{answer}.includes('failed')")


@run_with(busy=False)
async def test_an_empty_node_says_what_to_type(node: Node, url: str, tab: Tab) -> None:
    await tab.until("document.querySelector('#streams .empty')")
    assert "rillnode stream push" in await tab.run("document.querySelector('#streams').innerText")
    await page(tab, "links")
    await tab.until("document.querySelector('#links .empty')")
    assert "rillnode stream tail" in await tab.run("document.querySelector('#links').innerText")
    await node.stream("fresh")
    await page(tab, "streams")
    await tab.until("document.querySelector('[data-stream=fresh]')")
    await tab.click("[data-stream=fresh]")
    await tab.until("document.querySelector('#entries .empty')")
    await (await node.stream("fresh")).push(b"<b>\xc3\xbc</b>")
    await tab.until(f"{ROWS}.length === 1 && {ROWS}[0].textContent.includes('<b>\u00fc</b>')")
    fresh = await node.stream("fresh")
    await fresh.push(b"on", key="<i>lamp</i>", headers={"sender": "hall"})
    await tab.until(f"{ROWS}.length === 2")
    beside = await tab.run("document.querySelector('#entries-body small.beside').textContent")
    assert beside == "key <i>lamp</i> · sender: hall"


async def test_the_keyboard_is_enough(node: Node, url: str, tab: Tab) -> None:
    await tab.until(f"document.querySelector(\"[data-stream='{STREAM}']\")")
    focused = "document.activeElement.dataset.stream"
    for _ in range(40):
        await tab.press("Tab")
        if await tab.run(focused) == STREAM:
            break
    assert await tab.run(focused) == STREAM
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert await tab.run(outline) == "solid"
    await asyncio.sleep(3)  # the row is drawn anew, and the focus stays
    assert await tab.run(focused) == STREAM
    await tab.press("Enter")
    await tab.until(f"{ROWS}.length > 0")
    await tab.press("Escape")
    await tab.until("document.querySelector('#entries').hidden")
    await tab.until(f"{focused} === {json.dumps(STREAM)}")


async def test_a_phone_has_no_sideways_scrolling(
    node: Node, url: str, tab: Tab, tmp_path: Path
) -> None:
    long = "devices/" + "a-very-long-name-of-a-device/" * 6 + "temperature"
    await (await node.stream(long)).push(b"1")
    wide = "document.documentElement.scrollWidth"
    for width in (320, 390, 768):
        await tab.resize(width, 900, phone=True)
        for name, drawn in (
            ("", "document.querySelectorAll('#streams tbody tr').length === 3"),
            ("links", "document.querySelectorAll('#links tbody tr').length === 3"),
            ("actors", "document.querySelector('#actors tbody tr')"),
            ("failures", "document.querySelector('#warnings .scroll')"),
            ("streams", "document.querySelectorAll('#streams tbody tr').length === 3"),
        ):
            await page(tab, name)
            await tab.until(drawn)
            assert await tab.run(wide) == width, name
        # Each figure of the row with the long name is on the screen.
        inside = (
            f"[...document.querySelectorAll(\"#streams tr[data-key='{long}'] td\")].slice(0, 5)"
            ".every(one => one.getBoundingClientRect().right <= innerWidth)"
        )
        assert await tab.run(inside) or width == 768
        # On a phone they stand in two columns, each with one edge.
        edges = (
            f"[...document.querySelectorAll(\"#streams tr[data-key='{long}'] td\")].slice(1)"
            ".map(one => getComputedStyle(one).paddingLeft + getComputedStyle(one).paddingRight)"
        )
        assert set(await tab.run(edges)) == {"0px0px"} or width == 768
        await tab.click(f"[data-stream='{STREAM}']")
        await tab.until(f"{ROWS}.length > 0")
        assert await tab.run(wide) == width
    await tab.resize(390, 900, phone=True)
    await page(tab, "streams")
    await choose(tab, "#sort", "rate")
    await tab.until(
        f"document.querySelector('#streams tbody tr').dataset.key === {json.dumps(STREAM)}"
    )
    await tab.run("scrollTo(0, 0)")
    if WRITES_PICTURES:
        await asyncio.sleep(30)
    await picture(tab, "status-page-phone.png", tmp_path)


NAMED: Final = {
    "button", "checkbox", "combobox", "figure", "form", "image", "link", "log", "region",
    "searchbox", "spinbutton", "table", "textbox",
}  # fmt: skip
FAINT: Final = """(() => {
  const parts = color => (color.match(/[\\d.]+/g) || []).map(Number);
  const light = color => parts(color).slice(0, 3).map(one => one / 255)
    .map(one => one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
    .reduce((sum, one, i) => sum + one * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = one => { while (one && parts(getComputedStyle(one).backgroundColor)[3] === 0) {
    one = one.parentElement; } return getComputedStyle(one).backgroundColor; };
  const writes = one => [...one.childNodes].some(node => node.nodeType === 3 && node.data.trim());
  return [...document.querySelectorAll("body *")].filter(one => one.offsetParent && writes(one)
    && !one.disabled).filter(one => {
      const both = [light(getComputedStyle(one).color), light(ground(one))];
      return (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05) < 4.5;
    }).map(one => `${one.tagName}.${one.className} ${one.textContent}`); })()"""
"""What is written with less contrast than WCAG 2.2 asks for (1.4.3, 4.5 to 1)."""


async def test_everything_has_a_name_and_can_be_read(node: Node, url: str, tab: Tab) -> None:
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        await tab.call("Emulation.setEmulatedMedia", features=[feature])
        for name, drawn in (
            ("", "document.querySelector('#peers tbody')"),
            ("links", "document.querySelector('#links tbody')"),
            ("consumers", "document.querySelector('#consumers tbody')"),
            ("actors", "document.querySelector('#actors tbody')"),
            ("streams", "document.querySelector('#streams tbody')"),
        ):
            await page(tab, name)
            await tab.until(drawn)
            await everything_is_named(tab)
            assert await tab.run(FAINT) == [], (scheme, name)
        await tab.click(f"[data-stream='{STREAM}']")
        await tab.until(f"{ROWS}.length > 0 && document.querySelector('#chart-bytes')")
        await everything_is_named(tab)
        assert await tab.run(FAINT) == [], (scheme, STREAM)


async def everything_is_named(tab: Tab) -> None:
    """What a screen reader tells of is told by a name, not by its role alone."""
    nodes = (await tab.call("Accessibility.getFullAXTree"))["nodes"]
    shown = [one for one in nodes if not one["ignored"] and one["role"]["value"] in NAMED]
    assert len(shown) > 10
    assert [one for one in shown if not one.get("name", {}).get("value", "").strip()] == []


async def test_a_thousand_streams_are_searched_sorted_and_paged(
    node: Node, url: str, tab: Tab
) -> None:
    for number in range(1_000):
        await node.stream(f"devices/{number:04}")
    await page(tab, "streams")
    names = "[...document.querySelectorAll('#streams tbody tr')].map(one => one.dataset.key)"
    await tab.until(f"{names}.length === 50")
    assert (await tab.run(names))[0] == "devices/0000"
    await tab.click("#after")
    await tab.until(f"{names}[0] === 'devices/0050'")
    assert "51 to 100 of 1,002" in await tab.run("document.querySelector('#place').textContent")
    heading = "#streams th:nth-child(2)"
    await tab.click(f"{heading} button")
    await tab.until(f"{names}[0] === {json.dumps(STREAM)}")
    assert await tab.run(f"document.querySelector('{heading}').ariaSort") == "descending"
    await tab.click(f"{heading} button")
    await tab.until(f"document.querySelector('{heading}').ariaSort === 'ascending'")
    await tab.click("#search")
    await tab.write("0123")
    await tab.until(f"{names}.join() === 'devices/0123'")
    assert await tab.run("location.hash") == "#/streams?sort=rate&descending=false&search=0123"
    assert await tab.run("document.activeElement.id") == "search"
    await tab.write("x")
    await tab.until("document.querySelector('#streams .empty')")


@run_with(busy=False)
async def test_entries_are_looked_through_on_the_page(node: Node, url: str, tab: Tab) -> None:
    stream = await node.stream("quakes")
    items = [
        json.dumps({"mag": n % 10, "n": n, "place": {"country": "CL", "at": [1, 2]}}).encode()
        for n in range(1_000)
    ]
    await stream.push_many(items, keys=[f"k{n % 3}" for n in range(1_000)])
    await tab.run("location.hash = '#/streams/quakes'")
    await tab.until(f"{ROWS}.length === 20")
    keys = f"[...{ROWS}].map(one => one.dataset.key.split(':')[1]).join()"
    await fill(tab, "#from", "100")
    await tab.until(f"{ROWS}[49]?.dataset.key === '0:100:decoded'")
    assert await tab.run("location.hash") == "#/streams/quakes?from=100"
    await tab.click("#older")
    await tab.until(f"{ROWS}[0].dataset.key === '0:99:decoded'")
    await tab.click("#newer")
    await tab.until(f"{ROWS}[0].dataset.key === '0:149:decoded'")
    await fill(tab, "#from", "1h ago")
    await tab.until(f"{ROWS}[49]?.dataset.key === '0:0:decoded'")
    await fill(tab, "[name=where]", "mag > 8 and n < 30")
    await tab.until(f"{keys} === '29,19,9'")
    await fill(tab, "[name=key]", "k1")
    await tab.until(f"{keys} === '19'")
    await tab.click(".tree summary")
    await tab.until(f"{ROWS}[0].innerText.includes('country: \"CL\"')")
    # As a program would ask for it.
    await tab.click("#copy")
    shown = "document.querySelector('#copied').innerText"
    await tab.until(f"{shown}.includes('asyncio.run(main())')")
    assert "rillnode stream pull quakes --partition 0 --since 1h" in await tab.run(shown)
    assert "where=mag+%3E+8" in await tab.run(shown)
    source = await tab.run("[...document.querySelectorAll('#copied pre')].at(-1).textContent")
    compile(source, "copied", "exec")
    # A link that is sent to others shows the same.
    address = await tab.run("location.href")
    await tab.open("about:blank")
    await tab.open(address)
    await tab.until(f"{keys} === '19'")
    await fill(tab, "[name=where]", "mag >")
    await tab.until("document.querySelector('#entries .empty')?.textContent.includes('condition')")
    assert all("400" in one for one in tab.problems)  # which browsers note themselves
    tab.problems.clear()
    await fill(tab, "[name=where]", "mag = 0")
    await tab.until(f"{ROWS}.length > 1")
    await tab.run("URL.createObjectURL = blob => { blob.text().then(t => saved = t); return '#' }")
    await tab.run("saved = ''; HTMLAnchorElement.prototype.click = () => {}")
    await tab.click("#download")
    text = await tab.until("saved")
    rows = [json.loads(line) for line in text.splitlines()]
    assert rows
    assert {row["json"]["mag"] for row in rows} == {0}
    assert {row["key"] for row in rows} == {"k1"}


@pytest.mark.needs("streamr", "nextgraph")
@run_with(busy=False)
async def test_entries_of_other_protocols_are_named(node: Node, url: str, tab: Tab) -> None:
    streamr = [
        32, ["quakes", 0, 1_700_000_000_000, 7, "0xAbC", "chain"], None, 27, 0, 0, None,
        '{"mag": 5}', None, 2, "0xSignature",
    ]  # fmt: skip
    shown = {"partition": 0, "index": 1, "format": "json", "cut": False, "hex": "", "key": "k"}
    row = {**shown, "kind": "streamr", "text": json.dumps(streamr)}
    event = {**shown, "kind": "nextgraph", "format": "binary", "text": None, "hex": "00ff" * 40}
    value = f"tree(meant({json.dumps(row)}, {json.dumps(streamr)})).textContent"
    text = await tab.run(value)
    for part in ('publisher: "0xAbC"', "sequence: 7", "mag: 5", "signature type: 2"):
        assert part in text, text
    assert "streamr · key k" in await tab.run(f"shownEntry({json.dumps(row)}).textContent")
    text = await tab.run(f"shownEntry({json.dumps(event)}).textContent")
    assert "encrypted by its clients" in text
    assert "00 ff" in text


@run_with(busy=False)
async def test_a_peer_that_was_not_reached_is_no_idle_one(node: Node, url: str, tab: Tab) -> None:
    # A column of words is there once a row has any.
    errors = "document.querySelector('#peers thead')?.innerText.includes('last error')"
    await tab.until(f"{errors} === false")
    await node.client.send("peer/core;echo", b"x")
    await tab.until(errors)
    state = "document.querySelector('#peers tbody .chip')"
    await tab.until(f"{state}?.textContent === 'failed' && {state}.matches('.bad')")
    await page(tab, "failures")
    warnings = "document.querySelector('#warnings tbody')?.innerText"
    await tab.until(f"{warnings}?.includes('link.refused')")
    assert "starts a node" in await tab.run(warnings)


async def test_an_administrator_acts_on_the_page(tmp_path: Path) -> None:
    http = HttpListener(listen="127.0.0.1:0", console=True)
    config = replace(node_config(tmp_path / "node"), http=http)
    async with Node(config) as node, browsing(tmp_path / "profile") as tab:
        url = f"http://{node.addresses()['http']}/"
        await tab.resize(1160, 930)
        await tab.open(url)
        await tab.until("document.querySelector('#state').textContent === 'ready'")
        assert await tab.run("document.querySelectorAll('.deed').length") == 0
        assert await tab.run("document.querySelector('#admin').hidden")
        async with await connect_to(node) as client:
            ticket = (await client.console_ticket()).ticket
            await administer(client, tab, f"{url}#/console/{ticket}", tmp_path)
        refused = "Failed to load resource: the server responded with a status of "
        assert tab.problems == [f"{refused}409 (Conflict)", f"{refused}401 (Unauthorized)"]
        assert all(one.startswith((url, "data:")) for one in tab.requested), tab.requested
        assert not any(ticket in one.removeprefix(url) for one in tab.requested[1:])


async def administer(client: Client, tab: Tab, link: str, tmp_path: Path) -> None:
    """Do all that can be done to a stream, and end the session."""
    told = "document.querySelector('#told').textContent"
    await tab.run(f"location.href = {json.dumps(link)}")
    await tab.until(f"{told}.includes('admin session')")
    assert await tab.run("location.hash") == "#/"
    await page(tab, "streams")
    await fill(tab, ".deed [name=name]", "lamps")
    await tab.until(f"{told}.includes('There is the stream')")
    await tab.until("document.querySelector('[data-stream=lamps]')")
    await tab.click("[data-stream=lamps]")
    await tab.until("document.querySelector('.deed [name=text]')")
    await tab.run("document.querySelector('[name=headers]').value = 'by: hand\\n'")
    await tab.run("document.querySelector('[name=json]').checked = true")
    await tab.click("[name=key]")
    await tab.write("hall")
    await tab.click(".deed [name=text]")
    await tab.write('{"on": true}')
    await tab.run("document.querySelector('.deed [name=text]').form.requestSubmit()")
    await tab.until(f"{told} === 'It is entry 0 of partition 0.'")
    await tab.until(f"{ROWS}.length === 1 && {ROWS}[0].textContent.includes('key hall · by: hand')")
    stream = await client.stream("lamps")
    assert (await stream.pull(0, 1))[0].key == b"hall"
    await tab.run("document.querySelector('[name=consumer]').value = 'dash'")
    await fill(tab, ".deed [name=index]", "1")
    await tab.until(f"{told} === 'It goes on at 1.'")
    await tab.until("document.querySelector('#consumers').textContent.includes('dash')")
    await picture(tab, "status-page-admin.png", tmp_path)
    await fill(tab, ".deed [name=index]", "0")
    refused = "the position stays at 1: it never goes back to 0 [index.kept]"
    await tab.until(f"{told}.startsWith({json.dumps(refused)})")
    await fill(tab, ".deed [name=before]", "1")
    await tab.until(f"{told} === 'The first entry kept is 1.'")
    # The page loaded anew goes on in the session, and removes nothing without the name.
    await tab.call("Page.reload")
    await tab.until("document.querySelector('.deed [name=typed]')")
    remove = "document.querySelector('.deed [name=typed]').form.querySelector('button').disabled"
    assert await tab.run(remove)
    await tab.resize(390, 900, phone=True)
    assert await tab.run("document.documentElement.scrollWidth") == 390
    named = (
        "[...document.querySelectorAll('.deed input, .deed textarea')]"
        ".every(one => one.labels[0].textContent)"
    )
    assert await tab.run(named)
    await fill(tab, ".deed [name=typed]", "lamps")
    await tab.until(f"{told} === 'lamps is removed.'")
    await tab.until("location.hash === '#/streams'")
    assert await client.streams() == []
    await tab.click("#leave")
    await tab.until(f"{told} === 'The session is over.'")
    assert await tab.run("document.querySelectorAll('.deed').length") == 0
    assert await tab.run("sessionStorage.getItem('rillnode-console')") == ""
    # One that has ended elsewhere is told of, and its controls go.
    await tab.run("kept.set('x')")
    await tab.call("Page.reload")
    await tab.until(f"{told}.includes('[console.session]')")
    assert await tab.run("document.querySelector('#admin').hidden")


async def test_without_script_there_are_tables(node: Node, url: str, tab: Tab) -> None:
    await tab.until("document.querySelectorAll('#streams tbody tr').length === 2")
    await tab.call("Emulation.setScriptExecutionDisabled", value=True)
    await tab.open(url)
    document = await tab.call("DOM.getDocument", depth=-1)
    text = json.dumps(document)
    assert STREAM in text
    assert "ConnectionActor" in text


async def test_entries_are_shown_to_who_has_the_token(tmp_path: Path) -> None:
    token = "0123456789abcdef" * 4
    file = tmp_path / "token"
    file.write_text(token)
    file.chmod(0o600)
    table = HttpListener(listen="127.0.0.1:0", token_file=file)
    async with Node(replace(node_config(tmp_path / "node"), http=table)) as node:
        await (await node.stream("s")).push(b"content")
        async with browsing(tmp_path / "profile") as tab:
            await tab.resize(1280, 900)
            await tab.open(f"http://{node.addresses()['http']}/")
            await tab.until("document.querySelector('[data-stream=s]')")
            await tab.click("[data-stream=s]")
            await tab.until("document.querySelector('#entries input[type=password]')")
            await tab.write(token)
            await tab.press("Enter")
            await tab.until(f"{ROWS}.length === 1 && {ROWS}[0].textContent.includes('content')")


async def test_a_node_that_stops_and_comes_back_is_followed(tmp_path: Path) -> None:
    address = free_address()
    config = replace(node_config(tmp_path / "node"), http=HttpListener(listen=address))
    async with browsing(tmp_path / "profile") as tab:
        async with Node(config):
            await tab.open(f"http://{address}/")
            await tab.until("document.querySelector('#state').textContent === 'ready'")
        await tab.until("!document.querySelector('#banner').hidden")
        await tab.until("document.querySelector('#state').textContent === 'not reached'")
        async with Node(config):
            await tab.until("document.querySelector('#state').textContent === 'ready'")
            assert await tab.run("document.querySelector('#banner').hidden")


async def test_a_simulation_is_watched(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "rillnode", "sim", "run",
        str(ROOT / "configs" / "sim-partition.toml"),
        "--seed", "1", "--http", "127.0.0.1:0", "--speed", "2.5",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(300), browsing(tmp_path / "profile") as tab:
            line = (await process.stderr.readline()).decode()
            url = line.removeprefix("Watch it at ").strip()
            await tab.resize(1160, 930)
            await tab.open(url)
            await watch_simulation(tab, tmp_path)
            document = json.loads(await process.stdout.readline())
            assert document["violations"] == []
            # The end stays to be looked at.
            await tab.until(f"{COUNT}.includes('over')")
            hash_shown = "document.querySelector('#network dl').textContent"
            assert document["trace_hash"][:16] in await tab.run(hash_shown)
            await tab.until("document.querySelector('#state').textContent === 'over'")
            assert tab.problems == []
            assert all(one.startswith((url, "data:")) for one in tab.requested), tab.requested
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def watch_simulation(tab: Tab, tmp_path: Path) -> None:
    """Look at the network, choose another node, and open its stream."""
    await tab.until("document.querySelectorAll('#network .host.node').length === 3")
    assert "sim-partition, seed 1" in await tab.run(COUNT)
    await tab.until("document.querySelectorAll('#network .link').length > 5")
    # A node is cut off after five virtual seconds, and another one cannot be heard after twelve.
    await tab.until("document.querySelectorAll('#network .cut').length >= 4")
    await tab.until("document.querySelector('#network .host.apart[data-name=n0]')")
    await tab.until("document.querySelector('#network dl').textContent.includes('partition of n0')")
    await picture(tab, "status-page-simulation.png", tmp_path)
    await tab.click("#network .host[data-name=n2]")
    await tab.until("location.search === '?node=n2'")
    await tab.until("document.querySelector('#name').textContent === 'n2'")
    await tab.until("document.querySelector('#node').value === 'n2'")
    await tab.until("document.querySelector('#route').hidden")
    await tab.until("document.querySelector('[data-stream=events-n2]')")
    await tab.click("[data-stream=events-n2]")
    await tab.until(f"{ROWS}.length > 0")
    await tab.press("Escape")
    await page(tab, "")
    # By keyboard and at the width of a phone, too.
    await tab.run("document.querySelector('#node').focus()")
    await tab.resize(390, 900, phone=True)
    await tab.until("document.documentElement.scrollWidth === 390")
    await tab.run("$('node').value = 'n1'; $('node').dispatchEvent(new Event('change'))")
    await tab.until("document.querySelector('#name').textContent === 'n1'")
    await tab.until("document.querySelector('#network .host.chosen[data-name=n1]')")
    await tab.resize(1160, 930)
