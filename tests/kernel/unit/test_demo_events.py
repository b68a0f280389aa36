"""The demo's input: its order and its partitions."""

from pathlib import Path

import pytest

from demo_events import Event, load_events, partition_of


def load(tmp_path: Path, text: str) -> list[Event]:
    path = tmp_path / "events"
    path.write_text(text)
    return load_events(path, "properties.net", "properties.time")


def test_collection_is_in_time_order_and_keeps_its_texts(tmp_path: Path) -> None:
    late = '{"properties": {"net":"a",  "time": 2}}'
    early = '{"properties": {"net":"b",  "time": 1}}'

    events = load(tmp_path, f'{{"type": "FeatureCollection", "features": [{late}, {early}]}}')

    assert [event.data.decode() for event in events] == [early, late]
    assert [event.key for event in events] == ["b", "a"]


def test_lines_stay_in_order_when_one_has_no_time(tmp_path: Path) -> None:
    lines = ['{"properties": {"time": 2}}', '{"properties": {"time": true}}', '{"properties": 5}']

    events = load(tmp_path, "\n".join(lines) + "\n\n")

    assert [event.data.decode() for event in events] == lines
    assert [event.time for event in events] == [2, None, None]


@pytest.mark.parametrize("key", ["ci", "ak", ""])
def test_events_of_one_key_share_a_partition(key: str) -> None:
    event = Event(b"{}", key, None)
    assert len({partition_of(event, number, 4) for number in range(10)}) == 1


def test_events_without_a_key_go_round() -> None:
    event = Event(b"{}", None, None)
    assert [partition_of(event, number, 4) for number in range(5)] == [0, 1, 2, 3, 0]
