"""The list of void tokens, and how it stands in a store that several nodes may share."""

from collections.abc import Iterable

import msgspec
import pytest

from rillnode.actors.core.rights import Rights
from rillnode.actors.streamr import revocations as revocations_of
from rillnode.actors.streamr.revocations import REVOKED_PREFIX, WHOLE_LIST, Revocations, Values
from rillnode.codecs.errors import StoreError
from rillnode.codecs.streamr.session_tokens import Session

FULL = 500
"""Tokens that a list of these tests has at most; a node's has eight times as many."""

ALL = 10**6


@pytest.fixture(autouse=True)
def short_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revocations_of, "STREAMR_REVOKED_TOKENS_MAX", FULL)


def session(number: int, *, issued_at: int, expires_at: int = 10**9) -> Session:
    return Session(number.to_bytes(8, "big"), issued_at, expires_at, "p")


class Store:
    """The stored part of the list."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def save(self, revocations: Revocations) -> Values:
        """Store what is not yet stored."""
        values = revocations.unsaved(ALL)
        for name, value in values:
            if value is None:
                self.values.pop(name, None)
            else:
                self.values[name] = value
        revocations.saved(values)
        assert revocations.unsaved(ALL) == []
        return values

    def loaded(self, now_ms: int = 0) -> Revocations:
        """What a node that starts now knows."""
        found = Revocations(Rights())
        learn(found, self.values.items(), now_ms)
        return found


def learn(
    revocations: Revocations, values: Iterable[tuple[str, bytes | None]], now_ms: int = 0
) -> None:
    for name, value in values:
        revocations.learn(name, value, now_ms)


def test_two_that_store_their_own_lose_nothing_of_each_other() -> None:
    store, one, other = Store(), Revocations(Rights()), Revocations(Rights())
    mine, theirs = session(1, issued_at=1), session(2, issued_at=2)
    one.revoke(mine, now_ms=0)
    other.revoke(theirs, now_ms=0)
    first = store.save(one)
    second = store.save(other)
    assert len(first) == len(second) == 1
    again = store.loaded()
    assert mine in again
    assert theirs in again
    assert len(again) == 2
    # And what the other one has stored is learnt, without being stored again.
    learn(one, second)
    assert theirs in one
    assert one.unsaved(ALL) == []


def test_a_full_list_never_undoes_a_logout() -> None:
    store, revocations = Store(), Revocations(Rights())
    gone = [session(n, issued_at=1_000 + n) for n in range(FULL + 10)]
    for one in gone:
        revocations.revoke(one, now_ms=0)
    for known in (revocations, store.loaded() if store.save(revocations) else revocations):
        assert all(one in known for one in gone)
        # Void is what was issued no later than those that had to make room; not what came after.
        assert session(10**6, issued_at=1_009) in known
        assert session(10**6, issued_at=1_010) not in known
        assert len(known) == FULL
    assert len(store.values) == FULL + 1


def test_two_full_lists_are_one_that_is_bounded() -> None:
    store, one, other = Store(), Revocations(Rights()), Revocations(Rights())
    gone: list[Session] = []
    for n in range(FULL):
        gone += [session(2 * n, issued_at=2 * n), session(2 * n + 1, issued_at=2 * n + 1)]
        one.revoke(gone[-2], now_ms=0)
        other.revoke(gone[-1], now_ms=0)
    store.save(one)
    store.save(other)
    assert len(store.values) == 2 * FULL
    again = store.loaded()
    assert all(one in again for one in gone)
    assert session(10**6, issued_at=2 * FULL) not in again
    store.save(again)
    assert len(store.values) == len(again) + 1 == FULL + 1
    # Of two times until which all is void the later one counts, and stays alone.
    other.revoke(session(10**6, issued_at=5 * FULL), now_ms=0)
    store.save(other)
    final = store.loaded()
    assert session(10**7, issued_at=FULL - 1) in final
    store.save(final)
    assert len([name for name in store.values if "/until/" in name]) == 1


def test_tokens_whose_time_is_over_make_room() -> None:
    store, revocations = Store(), Revocations(Rights())
    for n in range(FULL):
        revocations.revoke(session(n, issued_at=n, expires_at=500), now_ms=0)
    store.save(revocations)
    revocations.revoke(session(10**6, issued_at=10**6), now_ms=500)
    assert session(1, issued_at=1) not in revocations
    store.save(revocations)
    assert len(store.values) == 1


def test_tokens_whose_time_is_over_are_not_loaded_but_removed() -> None:
    store, revocations = Store(), Revocations(Rights())
    revocations.revoke(session(1, issued_at=1, expires_at=500), now_ms=0)
    store.save(revocations)
    again = store.loaded(now_ms=500)
    assert len(again) == 0
    store.save(again)
    assert store.values == {}


def test_the_list_of_earlier_versions_becomes_values() -> None:
    store, revocations = Store(), Revocations(Rights())
    tokens = [(n.to_bytes(8, "big"), 100 + n, 10**9 if n else 400) for n in range(3)]
    store.values[WHOLE_LIST] = stored = msgspec.msgpack.encode((50, tokens))
    revocations.learn_whole_list(stored, now_ms=500)
    # The old list goes last, however few are written at a time.
    assert revocations.unsaved(ALL)[-1] == (WHOLE_LIST, None)
    store.save(revocations)
    assert all(name.startswith(REVOKED_PREFIX) for name in store.values)
    for known in (revocations, store.loaded(now_ms=500)):
        assert session(9, issued_at=50) in known
        assert session(9, issued_at=51) not in known
        assert [session(n, issued_at=100 + n) in known for n in range(3)] == [False, True, True]


def test_a_damaged_list_is_told() -> None:
    with pytest.raises(StoreError, match="logouts"):
        Revocations(Rights()).learn_whole_list(b"?", now_ms=0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("token/00", b""),
        ("token/00", b"x" * 17),
        ("token/zz", b"x" * 16),
        ("token/00", None),
        ("other/00", b"x" * 16),
        ("", b""),
    ],
)
def test_what_is_no_revocation_is_passed_over(name: str, value: bytes | None) -> None:
    revocations = Revocations(Rights())
    revocations.learn(REVOKED_PREFIX + name, value, now_ms=0)
    assert len(revocations) == 0
    assert session(0, issued_at=1) not in revocations


def test_what_was_never_stored_need_not_be_removed() -> None:
    revocations = Revocations(Rights())
    for n in range(FULL + 1_000):
        revocations.revoke(session(n, issued_at=n), now_ms=0)
    assert len(revocations.unsaved(ALL)) == FULL + 1


def test_what_changes_while_it_is_stored_is_stored_again() -> None:
    revocations = Revocations(Rights())
    revocations.revoke(session(1, issued_at=1, expires_at=5), now_ms=0)
    ((name, value),) = values = revocations.unsaved(ALL)
    revocations.revoke(session(1, issued_at=1, expires_at=6), now_ms=0)
    revocations.saved(values)
    assert [known for known, _ in revocations.unsaved(ALL)] == [name]
    assert revocations.unsaved(ALL) != [(name, value)]
