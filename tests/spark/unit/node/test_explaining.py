from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from rillnode.actors.spark.sink_job import CONFIGURATION_CODE, PASSING_CODE
from rillnode.codecs.errors import ConfigError, TransportError
from rillnode.node.spark.explaining import check_places, explain_end

FAILURE = PySparkException("No such file or directory: part-1.parquet\nmore")


def places(directory: Path) -> list[str]:
    return [str(directory / "bronze"), str(directory / "silver")]


def take_away(directory: Path) -> None:
    """Put a file where a table's directory was, as no user may write there."""
    (directory / "silver").rmdir()
    (directory / "silver").write_bytes(b"")


def test_places_that_answer_keep_nothing_of_the_look(tmp_path: Path) -> None:
    check_places(places(tmp_path))
    check_places(places(tmp_path))
    assert [path.name for path in sorted(tmp_path.rglob("*"))] == ["bronze", "silver"]


def test_a_place_that_cannot_be_written_is_told_with_its_reason(tmp_path: Path) -> None:
    check_places(places(tmp_path))
    take_away(tmp_path)
    with pytest.raises(TransportError, match=r"cannot be written now: .*silver: ") as caught:
        check_places(places(tmp_path))
    assert caught.value.code == "job.store"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "code"), [(FAILURE, 1), (ConfigError("spark.checkpoint", "gone"), CONFIGURATION_CODE)]
)
def test_an_end_passes_where_a_place_is_away(error: Exception, code: int, tmp_path: Path) -> None:
    assert explain_end(error, places(tmp_path))[1] == code
    take_away(tmp_path)
    text, code = explain_end(error, places(tmp_path))
    assert code == PASSING_CODE
    assert text.endswith("[job.store]")


def test_what_passes_by_itself_keeps_its_own_reason(tmp_path: Path) -> None:
    check_places(places(tmp_path))
    take_away(tmp_path)
    error = TransportError("tcp.connect", "no node")
    assert explain_end(error, places(tmp_path)) == ("no node [tcp.connect]", PASSING_CODE)
