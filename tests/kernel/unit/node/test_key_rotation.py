import stat
from pathlib import Path

import pytest

from nodes import CLIENT, node_config
from rillnode.codecs.errors import ConfigError, HandshakeError
from rillnode.codecs.keys import Identity, parse_identities
from rillnode.node.client import connect
from rillnode.node.keys.files import read_key, write_key
from rillnode.node.keys.rotation import (
    begin_rotation,
    finish_rotation,
    next_path,
    old_path,
    rotation_identities,
)
from rillnode.node.runtime import Node

OLD, NEW = (Identity.from_seed(bytes([number]) * 32) for number in (1, 2))
NEW_SEED = bytes([2]) * 32


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_key(tmp_path / "identity.key", OLD)
    return tmp_path / "identity.key"


def test_a_key_is_replaced_in_two_steps(file: Path) -> None:
    told = begin_rotation(file, NEW_SEED)
    assert told == {"identity": OLD.public_hex, "next_identity": NEW.public_hex}
    assert read_key(file) == OLD
    assert rotation_identities(file) == [OLD.public_hex, NEW.public_hex]
    finish_rotation(file)
    assert (read_key(file), read_key(old_path(file))) == (NEW, OLD)
    assert not next_path(file).exists()
    assert rotation_identities(file) == [NEW.public_hex, OLD.public_hex]
    assert {stat.S_IMODE(path.stat().st_mode) for path in file.parent.iterdir()} == {0o600}


def test_the_first_step_may_be_repeated(file: Path) -> None:
    begin_rotation(file, NEW_SEED)
    assert begin_rotation(file, bytes(32))["next_identity"] == NEW.public_hex


def test_the_second_step_needs_the_first(file: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        finish_rotation(file)
    assert caught.value.code == "key.rotation"
    assert read_key(file) == OLD


def test_a_second_step_cut_short_is_finished_by_the_next(file: Path) -> None:
    begin_rotation(file, NEW_SEED)
    # Killed after the copy: the key in use has two names.
    old_path(file).hardlink_to(file)
    finish_rotation(file)
    assert (read_key(file), read_key(old_path(file))) == (NEW, OLD)


def test_identities_with_commas_between() -> None:
    text = f"{OLD.public_hex}, {NEW.public_hex}"
    assert parse_identities(text) == (OLD.public_key, NEW.public_key)
    for wrong in ("", OLD.public_hex + ",", "," + OLD.public_hex, OLD.public_hex + NEW.public_hex):
        with pytest.raises(ConfigError):
            parse_identities(wrong)


async def test_a_client_that_knows_both_meets_the_node_before_and_after(tmp_path: Path) -> None:
    async def meet(identity: Identity, expected: str) -> None:
        async with Node(node_config(tmp_path), identity=identity) as node:
            url = f"noise://{node.addresses()['noise']}"
            async with await connect(url, identity=CLIENT, node_identity=expected) as client:
                await client.streams()

    both = f"{OLD.public_hex},{NEW.public_hex}"
    await meet(OLD, both)
    await meet(NEW, both)
    with pytest.raises(HandshakeError) as caught:
        await meet(NEW, f"{OLD.public_hex},{CLIENT.public_hex}")
    assert caught.value.code == "noise.wrong_node"
