from pathlib import Path

import pytest

from rillnode.codecs.errors import ConfigError
from rillnode.node.spark.files import query_id


def test_the_query_id_is_read_from_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id":"0f3c"}')
    assert query_id(str(tmp_path)) == "0f3c"
    assert query_id(tmp_path.as_uri()) == "0f3c"


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff", b"null"])
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "metadata").write_bytes(content)
    with pytest.raises(ConfigError, match="metadata"):
        query_id(str(tmp_path))
