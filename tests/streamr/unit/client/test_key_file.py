"""The file of group keys."""

from pathlib import Path

import pytest

from rillnode.codecs.errors import ConfigError
from rillnode.codecs.streamr.encryption import GroupKey
from rillnode.node.streamr.client.key_file import GroupKeyFile, KeptKey

FIRST = GroupKey("k1", bytes(range(32)))
SECOND = GroupKey("k2", bytes(32))


def test_keys_are_read_as_they_were_added(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    GroupKeyFile(path).add("0xa", "s", FIRST)
    GroupKeyFile(path).add("0xb", "s/ä", SECOND, FIRST)
    GroupKeyFile(path).add("0xb", "s/ä", SECOND, is_reset=True)

    assert GroupKeyFile(path).read() == [
        KeptKey("0xa", "s", FIRST),
        KeptKey("0xb", "s/ä", SECOND),
        KeptKey("0xb", "s/ä", FIRST),
        KeptKey("0xb", "s/ä", SECOND, is_reset=True),
    ]
    assert path.stat().st_mode & 0o777 == 0o600


def test_no_file_holds_no_keys(tmp_path: Path) -> None:
    assert GroupKeyFile(tmp_path / "none").read() == []


def test_line_that_a_crash_cut_off_is_left_out_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    file = GroupKeyFile(path)
    file.add("0xa", "s", FIRST, SECOND)
    path.write_bytes(path.read_bytes()[:-10])

    assert file.read() == [KeptKey("0xa", "s", FIRST)]
    file.add("0xa", "s", SECOND)
    assert file.read() == [KeptKey("0xa", "s", FIRST), KeptKey("0xa", "s", SECOND)]


@pytest.mark.parametrize("line", ["nonsense", "{}", '{"publisher":"a","stream":"s","id":"i"}'])
def test_line_that_is_no_key_is_named_and_not_repeated(tmp_path: Path, line: str) -> None:
    path = tmp_path / "keys"
    file = GroupKeyFile(path)
    file.add("0xa", "s", FIRST)
    path.write_text(f"{line}\n{path.read_text()}")

    with pytest.raises(ConfigError) as caught:
        file.read()
    assert caught.value.code == "key.line"
    assert "line 1" in caught.value.text
    assert line not in caught.value.text


def test_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    GroupKeyFile(path).add("0xa", "s", FIRST)
    path.chmod(0o640)
    with pytest.raises(ConfigError) as caught:
        GroupKeyFile(path).read()
    assert caught.value.code == "key.mode"


def test_place_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    file = GroupKeyFile(tmp_path / "missing" / "keys")
    with pytest.raises(ConfigError, match="cannot be written"):
        file.add("0xa", "s", FIRST)
    with pytest.raises(ConfigError, match="cannot be read"):
        GroupKeyFile(tmp_path).read()
