"""Tests what clients say of streams, and who may say it."""

import json

import msgspec
import pytest

from rillnode.actors.core.access import Access, Grant
from rillnode.actors.core.streams.revising import Revise
from rillnode.actors.log import Retention, StreamRecord
from rillnode.actors.streamr import metadata, permissions
from rillnode.actors.streamr.metadata import creation, describe, edition, removal, stream_id
from rillnode.codecs.errors import RequestError
from rillnode.codecs.limits import NAME_BYTES_MAX, PARTITIONS_MAX
from rillnode.codecs.streamr.rest_bodies import StreamBody, read_stream

ALICE = "eth:0x" + "aa" * 20
BOB = "eth:0x" + "bb" * 20
FRESH = StreamRecord(name="s", created_at=1_000, owner=ALICE)
RANDOM = bytes(range(16))


def body(**fields: object) -> StreamBody:
    return read_stream(json.dumps(fields).encode())


def made(principal: str = ALICE, /, **fields: object) -> StreamRecord:
    record = creation(body(**fields), principal, 5_000)(FRESH)
    assert record is not None
    return msgspec.structs.replace(record, id=7)


def refusal(revise: Revise, record: StreamRecord) -> str:
    with pytest.raises(RequestError) as caught:
        revise(record)
    return caught.value.code


def known(record: StreamRecord, *grants: Grant) -> Access:
    access = Access(grants)
    access.set_stream(record.name, record.grants)
    return access


def edited(record: StreamRecord, principal: str = ALICE, /, **fields: object) -> StreamRecord:
    revised = edition(body(**fields), principal, known(record), 9_000)(record)
    assert revised is not None
    return revised


def told(record: StreamRecord) -> dict[str, object]:
    found: dict[str, object] = json.loads(msgspec.json.encode(describe(record)))
    return found


def test_a_new_stream_has_what_clients_expect() -> None:
    assert told(made(name="n")) == {
        "id": "s", "name": "n", "description": "", "partitions": 1, "config": {"fields": []},
        "requireSignedData": False, "requireEncryptedData": False, "autoConfigure": True,
        "storageDays": 365, "inactivityThresholdHours": 48, "uiChannel": False,
        "dateCreated": "1970-01-01T00:00:01.000Z", "lastUpdated": "1970-01-01T00:00:05.000Z",
    }  # fmt: skip


def test_what_is_said_of_a_stream_is_told() -> None:
    said: dict[str, object] = {
        "name": "n", "description": "d", "partitions": 3, "config": {"fields": [{"name": "a"}]},
        "requireSignedData": True, "requireEncryptedData": True, "autoConfigure": False,
        "storageDays": 30, "inactivityThresholdHours": 1,
    }  # fmt: skip
    record = made(**said)
    assert {key: told(record)[key] for key in said} == said
    assert record.retention.seconds == 30 * 86_400
    assert (record.require_signed, record.require_encrypted) == (True, True)


def test_its_maker_owns_a_stream_unless_it_is_nobody() -> None:
    assert made().grants == {ALICE: ("admin",)}
    assert made("anonymous").grants == {}


def test_a_stream_is_made_once() -> None:
    assert refusal(creation(body(), ALICE, 0), made()) == "streamr.exists"


def test_a_stream_sent_back_stays_as_it_is() -> None:
    record = made(name="n", description="d", config={"fields": []}, partitions=2)
    again = edited(record, **told(record))
    assert again.retention.seconds is None
    assert told(again) == {**told(record), "lastUpdated": "1970-01-01T00:00:09.000Z"}


def test_an_edit_changes_only_what_it_says() -> None:
    record = made(name="n", description="d", requireSignedData=True)
    changed = edited(record, description="e", config=None)
    assert (changed.attributes["name"], changed.attributes["description"]) == ("n", "e")
    assert changed.require_signed
    assert edited(changed, partitions=5).partitions == 5


@pytest.mark.parametrize(
    "fields",
    [
        {"partitions": 0},
        {"partitions": 1},
        {"partitions": PARTITIONS_MAX + 1},
        {"storageDays": 0},
        {"storageDays": 100_000},
        {"name": "x" * 40_000, "description": "y" * 40_000},
    ],
)
def test_what_no_stream_can_be_is_refused(fields: dict[str, object]) -> None:
    record = made(partitions=2)
    edit = edition(body(**fields), ALICE, known(record), 0)
    assert refusal(edit, record) == "streamr.metadata"


def test_who_may_edit_may_not_say_how_long_a_stream_is_kept() -> None:
    record = permissions.grant(made(), BOB, "stream_edit")
    assert edited(record, BOB, description="by bob").attributes["description"] == "by bob"
    shorten = edition(body(storageDays=1), BOB, known(record), 0)
    assert refusal(shorten, record) == "streamr.forbidden"
    assert edited(record, storageDays=1).retention == Retention(seconds=86_400.0)


def test_who_may_do_nothing_learns_nothing() -> None:
    record = made()
    access = known(record)
    for revise in (edition(body(), BOB, access, 0), removal(BOB, access)):
        assert refusal(revise, record) == refusal(revise, FRESH) == "stream.unknown"
    seen = permissions.grant(record, BOB, "stream_get")
    for revise in (edition(body(), BOB, known(seen), 0), removal(BOB, known(seen))):
        assert refusal(revise, seen) == "streamr.forbidden"
    assert removal(ALICE, access)(record) is None


def test_other_protocols_streams_are_not_there() -> None:
    record = StreamRecord(name="reserved/x", id=1)
    everything = [Grant(who=ALICE, streams="*", may=frozenset({"admin"}))]
    access = Access(everything, ["reserved/"])
    assert refusal(removal(ALICE, access), record) == "stream.unknown"
    assert not metadata.reachable(record, access)
    assert metadata.reachable(record, Access(everything))


def test_an_id_is_given_or_made() -> None:
    address = ALICE.removeprefix("eth:")
    assert stream_id("weather", ALICE, RANDOM, Access()) == "weather"
    assert stream_id("/a/b", ALICE, RANDOM, Access()) == f"{address}/a/b"
    assert stream_id("/a", "apikey:x", RANDOM, Access()) == "/a"
    for none in (None, ""):
        assert stream_id(none, ALICE, RANDOM, Access()) == "AAECAwQFBgcICQoLDA0ODw"
    own = "0x" + "AA" * 20 + "/a"
    assert stream_id(own, ALICE, RANDOM, Access()) == own


@pytest.mark.parametrize(
    "given",
    [
        "0x" + "bb" * 20 + "/a",
        "SYSTEM/keyexchange/0x" + "aa" * 20,
        "0x" + "aa" * 20,
        "reserved/a",
        "a\nb",
        "a\0",
        " ",
        "\u20ac" * (NAME_BYTES_MAX // 3 + 1),
    ],
)
def test_an_id_that_no_stream_may_have_is_refused(given: str) -> None:
    with pytest.raises(RequestError) as caught:
        stream_id(given, ALICE, RANDOM, Access(reserved=["reserved/"]))
    assert caught.value.code == "streamr.stream_id"
