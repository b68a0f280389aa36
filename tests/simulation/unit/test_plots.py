"""Plots as SVG."""

import re
from typing import get_args
from xml.etree import ElementTree

import pytest
from matplotlib import colormaps

from rillnode.codecs.errors import ConfigError
from rillnode.node.simulation import plots
from rillnode.node.simulation.scenario import FaultKind


def labels(figure: str) -> list[str]:
    ElementTree.fromstring(figure)
    return re.findall(r"<text[^>]*>([^<]*)</text>", figure)


def test_lines_have_axes_names_and_a_title() -> None:
    points = {"one": [(0.0, 0.5), (8.0, 1.0)], "other": [(0.0, 0.0)]}
    figure = plots.lines("a <title>", points, across="x", up="y")
    assert {"x", "y", "one", "other"} <= set(labels(figure))
    assert "<figcaption>a &lt;title&gt;</figcaption>" in figure


@pytest.mark.parametrize("count", [3, 30, 300])
def test_bars_are_named_as_far_as_there_is_room(count: int) -> None:
    figure = plots.bars("title", {f"n{at}": float(at) for at in range(count)}, up="bytes")
    named = [text for text in labels(figure) if text.startswith("n")]
    assert "n0" in named
    assert min(count, 30) <= len(named) <= plots.LABELS_MAX


def test_spans_that_overlap_stand_below_each_other() -> None:
    spans = [("n0", "kill", 1.0, 5.0), ("n0", "pause", 2.0, 3.0), ("n0", "clog", 6.0, 7.0)]
    named = labels(plots.time_line("faults", spans, seconds=10.0))
    assert named.count("n0") == 2
    assert {"kill", "pause", "clog", "virtual seconds"} <= set(named)
    many = [(f"n{at}", "kill", 1.0, 2.0) for at in range(plots.ROWS_MAX + 1)]
    assert "(the first 64 of 65)" in plots.time_line("faults", many, seconds=10.0)


def test_places_are_named_once_around_an_overlay() -> None:
    figure = plots.topology("overlay", [[1], [0], []], ["Oslo", "Oslo", "Lima"])
    assert sorted(labels(figure)) == ["Lima", "Oslo"]
    assert plots.topology("overlay", [[0]] * (plots.NODES_MAX + 1), []) == ""
    assert labels(plots.topology("overlay", [[1], [0]], [])) == []


def test_what_has_nothing_to_show_is_left_out() -> None:
    assert plots.lines("title", {"one": []}, across="x", up="y") == ""
    assert plots.bars("title", {}, up="y") == ""
    assert plots.time_line("title", [], seconds=1.0) == ""


def test_a_plot_is_the_same_each_time() -> None:
    assert plots.bars("title", {"a": 1.0}, up="y") == plots.bars("title", {"a": 1.0}, up="y")


def test_each_kind_of_fault_has_a_colour_of_its_own() -> None:
    kinds = range(len(get_args(FaultKind)))
    assert len({colormaps[plots.COLOURS](number) for number in kinds}) == len(kinds)


def test_without_matplotlib_a_report_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_: str) -> None:
        """Nothing is installed."""

    monkeypatch.setattr(plots, "find_spec", nothing)
    with pytest.raises(ConfigError, match=r"\[plots\]"):
        plots.check_installed()
