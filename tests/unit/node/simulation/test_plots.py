"""Plots as SVG."""

import re
from xml.etree import ElementTree

import pytest

from rillnode.node.simulation import plots


def labels(figure: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", figure)


@pytest.mark.parametrize(
    ("right", "label"),
    [(1.0, "0.25"), (16_704.1, "4.176 k"), (384_604_604.0, "96.15 M"), (4e9, "1 G")],
)
def test_numbers_on_axes_have_four_digits_and_a_unit(right: float, label: str) -> None:
    figure = plots.lines("title", {"one": [(0.0, 0.5), (right, 1.0)]}, across="x", up="y")
    assert label in labels(figure)
    assert not [text for text in labels(figure) if "e+" in text]


def test_lines_begin_and_end_at_the_axes() -> None:
    figure = plots.lines("title", {"one": [(0.0, 0.0), (8.0, 2.0)]}, across="x", up="y")
    line = ElementTree.fromstring(figure).find(".//polyline")
    assert line is not None
    begin, end = (tuple(map(float, point.split(","))) for point in str(line.get("points")).split())
    assert begin == (plots.LEFT, plots.HEIGHT - plots.BOTTOM)
    assert end == (plots.WIDTH - plots.RIGHT, plots.TOP)
