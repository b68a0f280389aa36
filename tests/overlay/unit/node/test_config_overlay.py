"""The tables `[tracker]` and `[overlay]`: defaults, and what does not go together."""

from pathlib import Path

import pytest

from each_row import each_row
from rillnode.codecs.errors import ConfigError
from rillnode.node.config import Config, parse_config
from rillnode.node.overlay.config import OverlayTable, StreamrNetworkListener

HERE = Path("node.toml")
PEER = f'[[peer]]\nname = "t"\nnoise = "h:1"\nidentity = "{"0" * 64}"\n'


def parse(text: str) -> Config:
    """A node's configuration with these tables."""
    return parse_config(f'name = "a"\n{text}', HERE)


def test_a_node_shares_nothing_and_is_no_tracker_unless_it_is_told_to() -> None:
    config = parse("")
    assert config.tables == ()


def test_a_node_that_is_its_own_tracker_names_none() -> None:
    config = parse("[overlay]")
    assert config.tables == (OverlayTable(streams=("*",), trackers=()),)


def test_trackers_are_peers() -> None:
    assert parse(f'[overlay]\ntrackers = ["t"]\n{PEER}').table(OverlayTable)


@each_row(
    [
        ('[overlay]\ntrackers = ["nobody"]', "overlay.trackers[0]"),
        ("[tracker]\ndegree = 1", "tracker.degree"),
        (f'[noise]\nenabled = false\n[overlay]\ntrackers = ["t"]\n{PEER}', "overlay"),
        (
            f'[noise]\nlisten = "0.0.0.0:1"\n[overlay]\ntrackers = ["t"]\n{PEER}',
            "overlay.advertise",
        ),
        ("[streamr_network]", "streamr_network"),
        ('[streamr_network]\ntrackers = ["ws://h:1"]', "streamr_network.trackers"),
        ('[overlay]\n[streamr_network]\ntrackers = ["h:1"]', "streamr_network.trackers[0]"),
        ("[overlay]\n[streamr_network]\nrelease = 23", "streamr_network.release"),
        ('[overlay]\n[streamr_network]\nadvertise = "h"', "streamr_network.advertise"),
        (
            '[overlay]\n[streamr_network]\nallow_plain = true\nlisten = "0.0.0.0:1"',
            "streamr_network.advertise",
        ),
        ('[overlay]\n[streamr_network]\nlisten = "192.0.2.1:1"', "streamr_network.listen"),
        (
            f'[overlay]\ntrackers = ["t"]\n[streamr_network]\ntrackers = ["ws://h:1"]\n{PEER}',
            "streamr_network.trackers",
        ),
    ]
)
def test_what_cannot_work_is_refused_and_named(text: str, path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert path in caught.value.text


@pytest.mark.parametrize("name", ["tracker.toml", "overlay-node.toml"])
def test_the_examples_are_valid(name: str) -> None:
    file = Path(__file__).parents[4] / "configs" / name
    assert parse_config(file.read_text(), file).table(OverlayTable)


@pytest.mark.parametrize(
    "text",
    [
        "[tracker]\nenabled = true\n[streamr_network]",
        "[overlay]\n[streamr_network]",
        '[overlay]\n[streamr_network]\ntrackers = ["ws://h:1", "wss://h/path"]\nrelease = 13',
        "[streamr_network]\nenabled = false",
    ],
)
def test_released_nodes_come_to_a_tracker_or_to_one_that_shares_streams(text: str) -> None:
    table = parse(text).table(StreamrNetworkListener)
    assert table is not None
    assert table.listen == "127.0.0.1:30300"
