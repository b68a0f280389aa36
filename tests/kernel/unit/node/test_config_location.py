from pathlib import Path

import pytest

from rillnode.node.config import Location


def test_a_directory_has_a_path_and_a_url_has_none() -> None:
    assert Location(Path("/a/b")).path == Path("/a/b")
    assert Location("s3://bucket/a").path is None


@pytest.mark.parametrize(
    ("given", "kept"), [("s3://bucket/a/", "s3://bucket/a"), ("/a//", "/a"), ("/", "/")]
)
def test_slashes_at_the_end_are_dropped(given: str, kept: str) -> None:
    assert Location(given) == kept


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ("/a", "/a", True),
        ("/a", "/a/b", True),
        ("s3://x/a/b", "s3://x/a", True),
        ("/a", "/ab", False),
        ("s3://x/a", "s3://y/a", False),
        ("/a", "s3://x/a", False),
    ],
)
def test_directories_in_each_other_overlap(one: str, other: str, overlap: bool) -> None:
    assert Location(one).overlaps(Location(other)) is overlap
    assert Location(other).overlaps(Location(one)) is overlap
