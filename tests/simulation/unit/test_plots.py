"""Plots as SVG."""

import re
from typing import get_args
from xml.etree import ElementTree

import pytest

from rillnode.node.simulation import drawing, pictures, plots
from rillnode.node.simulation.scenario import FaultKind

KINDS = get_args(FaultKind)


def labels(figure: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", figure)


@pytest.mark.parametrize(
    ("right", "label"),
    [(1.0, "0.25"), (16_704.1, "17.5 k"), (384_604_604.0, "400 M"), (4e9, "1 G"), (0.3, "0.15")],
)
def test_numbers_on_axes_are_round_and_have_a_unit(right: float, label: str) -> None:
    figure = plots.lines("title", {"one": [(0.0, 0.5), (right, 1.0)]}, across="x", up="y")
    assert label in labels(figure)
    assert not [text for text in labels(figure) if "e+" in text]


def test_lines_begin_and_end_at_the_axes() -> None:
    figure = plots.lines("title", {"one": [(0.0, 0.0), (8.0, 2.0)]}, across="x", up="y")
    line = ElementTree.fromstring(figure).find(".//polyline")
    assert line is not None
    begin, end = (tuple(map(float, point.split(","))) for point in str(line.get("points")).split())
    assert begin == (drawing.LEFT, drawing.HEIGHT - drawing.BOTTOM)
    assert end == (drawing.WIDTH - drawing.RIGHT, drawing.TOP + drawing.LEGEND_ROW)


@pytest.mark.parametrize("top", [0.0, 1e-6, 0.25, 1.0, 3.0, 99.9, 100.0, 12_345.0, 1e12])
def test_axes_end_at_a_round_number_that_is_not_below_what_they_show(top: float) -> None:
    found = drawing.ticks(top)
    assert found[0] == 0.0
    assert found[-1] >= top * (1 - 1e-6)
    assert 2 <= len(found) <= 9


def test_an_axis_of_doublings_names_each_size() -> None:
    points = [(32.0, 145.0), (64.0, 178.0), (256.0, 244.0)]
    figure = plots.lines("title", {"one": points}, across="nodes", up="ms", doubling=True)
    tree = ElementTree.fromstring(figure)
    assert {"32", "64", "256"} <= set(labels(figure))
    at = [float(str(dot.get("cx"))) for dot in tree.iter("circle")]
    assert at[2] - at[1] == pytest.approx(2 * (at[1] - at[0]), abs=0.2)


def test_spans_that_overlap_stand_below_each_other() -> None:
    spans = [("n0", "kill", 1.0, 5.0), ("n0", "pause", 2.0, 3.0), ("n0", "clog", 6.0, 7.0)]
    tree = ElementTree.fromstring(pictures.time_line("faults", spans, seconds=10.0))
    drawn = [one for one in tree.iter("rect") if one.find("title") is not None]
    heights = {str(one.findtext("title")).split()[0]: one.get("y") for one in drawn}
    assert heights["kill"] == heights["clog"] != heights["pause"]


def test_places_are_named_once_around_an_overlay() -> None:
    figure = pictures.topology("overlay", [[1], [0], []], ["Oslo", "Oslo", "Lima"])
    assert sorted(labels(figure)) == ["Lima", "Oslo"]


def test_each_kind_of_fault_has_a_colour_of_its_own() -> None:
    assert len({drawing.colour(number) for number in range(len(KINDS))}) == len(KINDS)
