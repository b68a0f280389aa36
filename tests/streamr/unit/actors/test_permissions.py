"""Streamr's permissions in a stream's record, and what comes of them for other protocols."""

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from rillnode.actors.core.access import ANONYMOUS, EVERYBODY, Access, Grant
from rillnode.actors.log import StreamRecord
from rillnode.actors.streamr import permissions
from rillnode.actors.streamr.permissions import (
    OPERATIONS,
    allows,
    grant,
    granted,
    held,
    operations,
    principal_of,
    publisher_id_of,
    revoke,
    user_of,
)
from rillnode.codecs.errors import RequestError
from rillnode.codecs.streamr.limits import STREAMR_INTEGER_MAX, STREAMR_PERMISSIONS_MAX

ALICE = "eth:0x" + "aa" * 20
BOB = "eth:0x" + "bb" * 20
RECORD = StreamRecord(name="s", id=1, grants={ALICE: ("admin",)})


def known(record: StreamRecord, *grants: Grant) -> Access:
    access = Access(grants)
    access.set_stream(record.name, record.grants)
    return access


def test_the_owner_may_do_everything() -> None:
    assert operations(RECORD, known(RECORD), ALICE) == list(OPERATIONS)
    assert [one.operation for one in permissions.permissions(RECORD)] == list(OPERATIONS)
    assert operations(RECORD, known(RECORD), BOB) == []


@pytest.mark.parametrize(
    ("operation", "verbs"),
    [
        ("stream_get", set[str]()),
        ("stream_publish", {"push"}),
        ("stream_subscribe", {"subscribe", "pull"}),
        ("stream_edit", set[str]()),
        ("stream_delete", set[str]()),
        ("stream_share", set[str]()),
    ],
)
def test_each_permission_says_what_other_protocols_may(operation: str, verbs: set[str]) -> None:
    record = grant(RECORD, BOB, operation)
    access = known(record)
    assert access.verbs(BOB, "s") == verbs
    # Whoever may do anything may also know of the stream.
    assert operations(record, access, BOB) == [
        one for one in OPERATIONS if one in ("stream_get", operation)
    ]
    assert [one.operation for one in permissions.permissions(record)][len(OPERATIONS) :] == [
        operation
    ]


def test_all_permissions_make_no_administrator() -> None:
    record = RECORD
    for operation in OPERATIONS:
        record = grant(record, BOB, operation)
    assert "admin" not in known(record).verbs(BOB, "s")
    assert operations(record, known(record), BOB) == list(OPERATIONS)


def test_what_is_everybodys_is_each_ones() -> None:
    record = grant(RECORD, EVERYBODY, "stream_subscribe")
    access = known(record)
    for principal in (BOB, ANONYMOUS, "noise:" + "0" * 64):
        assert allows(record, access, principal, "stream_subscribe")
        assert access.allows(principal, "pull", "s")
        assert not allows(record, access, principal, "stream_publish")
    assert user_of(EVERYBODY) is None


def test_grants_for_patterns_count_too() -> None:
    access = known(RECORD, Grant(who="eth:*", streams="*", may=frozenset({"push"})))
    assert operations(RECORD, access, BOB) == ["stream_get", "stream_publish"]
    public = known(RECORD, Grant(who=ANONYMOUS, streams="*", may=frozenset({"subscribe"})))
    assert allows(RECORD, public, BOB, "stream_subscribe")


def test_who_may_make_streams_knows_of_no_others() -> None:
    access = known(RECORD, Grant(who="eth:*", streams="*", may=frozenset({"create"})))
    assert operations(RECORD, access, BOB) == []


def test_permissions_held_by_a_record_keep_its_ids() -> None:
    record = grant(grant(RECORD, EVERYBODY, "stream_get"), BOB, "stream_publish")
    access = known(record, Grant(who=BOB, streams="*", may=frozenset({"subscribe"})))
    assert held(record, access, BOB) == [
        granted(EVERYBODY, "stream_get"),
        granted(BOB, "stream_publish"),
        granted(BOB, "stream_subscribe"),
    ]


def test_a_permission_is_given_once() -> None:
    record = grant(RECORD, BOB, "stream_subscribe")
    assert grant(record, BOB, "stream_subscribe") == record
    assert grant(record, ALICE, "stream_get") == record


def test_users_with_permissions_are_bounded() -> None:
    users: dict[str, tuple[str, ...]] = {
        f"eth:0x{n:040x}": ("get",) for n in range(STREAMR_PERMISSIONS_MAX)
    }
    full = StreamRecord(name="s", id=1, grants=users)
    with pytest.raises(RequestError) as caught:
        grant(full, BOB, "stream_get")
    assert caught.value.code == "streamr.permissions"
    assert grant(full, next(iter(users)), "stream_publish")


given_away = st.lists(
    st.tuples(st.sampled_from((ALICE, BOB, EVERYBODY)), st.sampled_from(OPERATIONS))
)


@given(given_away, given_away)
def test_any_permissions_are_as_they_were_given(
    given_ones: list[tuple[str, str]], taken_ones: list[tuple[str, str]]
) -> None:
    record, model = StreamRecord(name="s", id=1), set[tuple[str, str]]()
    for principal, operation in given_ones:
        record = grant(record, principal, operation)
        model.add((principal, operation))
    for principal, operation in taken_ones:
        revoked = revoke(record, granted(principal, operation).id)
        assert (revoked is not None) == ((principal, operation) in model)
        model.discard((principal, operation))
        record = revoked or record
    listed = permissions.permissions(record)
    assert {(one.user, one.operation) for one in listed} == {
        (user_of(principal), operation) for principal, operation in model
    }
    ids = sorted(one.id for one in listed)
    assert all(0 <= low < high <= STREAMR_INTEGER_MAX for low, high in pairwise(ids))
    assert set(record.grants) == {principal for principal, _ in model}


def test_the_owner_can_give_up_one_thing() -> None:
    record = revoke(RECORD, granted(ALICE, "stream_delete").id)
    assert record is not None
    assert operations(record, known(record), ALICE) == [
        one for one in OPERATIONS if one != "stream_delete"
    ]


@pytest.mark.parametrize(
    ("user", "principal"),
    [
        ("0x" + "aB" * 20, "eth:0x" + "ab" * 20),
        ("dashboard", "apikey:dashboard"),
        ("apikey:dashboard", "apikey:dashboard"),
        ("noise:" + "0a" * 32, "noise:" + "0a" * 32),
    ],
)
def test_a_user_names_a_principal(user: str, principal: str) -> None:
    assert principal_of(user) == principal
    assert principal_of(user_of(principal) or "") == principal


@pytest.mark.parametrize("user", ["", "*", "a b", "noise:*", "eth:*", "\u20ac", "x" * 65, "0x12 "])
def test_who_is_nobody_is_refused(user: str) -> None:
    with pytest.raises(RequestError) as caught:
        principal_of(user)
    assert caught.value.code == "streamr.user"


def test_a_publisher_without_an_address_is_a_hash() -> None:
    assert publisher_id_of(ALICE) == "0x" + "aa" * 20
    # sha256("user")
    assert publisher_id_of("apikey:user") == (
        "04f8996da763b7a969b1028ee3007569eaf3a635486ddab211d512c85b9df8fb"
    )
    assert len(publisher_id_of(ANONYMOUS)) == 64
