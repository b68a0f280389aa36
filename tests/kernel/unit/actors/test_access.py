"""Grants, principals and short-lived keys."""

import pytest

from rillnode.actors.core.access import (
    ADDRESS_VERBS,
    EVERYBODY,
    NODE_PRINCIPAL,
    VERBS,
    Access,
    Grant,
    GrantVerb,
    Verb,
)
from rillnode.actors.core.patterns import Matches, matcher
from rillnode.codecs.limits import NAME_BYTES_MAX


def access(*rows: tuple[str, str, set[Verb]]) -> Access:
    return Access(Grant(who=who, streams=streams, may=frozenset(may)) for who, streams, may in rows)


def test_nothing_is_allowed_that_no_grant_names() -> None:
    none = access()
    assert not none.verbs("noise:aa", "sensors")
    assert not none.known("noise:aa")
    assert not none.administers("noise:aa")


def test_grants_add_up_by_stream_pattern() -> None:
    some = access(("noise:aa", "sensors*", {"push"}), ("noise:aa", "sensors-1", {"pull"}))
    assert some.verbs("noise:aa", "sensors-1") == {"push", "pull"}
    assert some.verbs("noise:aa", "sensors-2") == {"push"}
    assert not some.verbs("noise:aa", "other")
    assert not some.verbs("noise:ab", "sensors-1")


def test_pattern_matches_whole_names_only() -> None:
    some = access(("noise:aa", "a?c", {"pull"}))
    assert some.allows("noise:aa", "pull", "abc")
    assert not some.allows("noise:aa", "pull", "abcd")
    assert not some.allows("noise:aa", "pull", "a\nbc")


def test_admin_includes_all_verbs_on_its_streams() -> None:
    some = access(("noise:aa", "s", {"admin"}))
    assert some.verbs("noise:aa", "s") == set(VERBS)
    assert some.administers("noise:aa")
    assert not some.verbs("noise:aa", "t")


def test_a_kind_of_principals_can_be_granted() -> None:
    some = access(("noise:*", "*", {"pull"}))
    assert some.allows("noise:ff", "pull", "x")
    assert not some.allows("anonymous", "pull", "x")


def test_the_node_itself_may_do_everything() -> None:
    assert access().verbs(NODE_PRINCIPAL, "x") == set(VERBS)
    assert access().administers(NODE_PRINCIPAL)


def test_a_change_of_grants_takes_effect_at_once() -> None:
    some = access()
    assert not some.allows("noise:aa", "pull", "s")
    some.add(Grant(who="noise:aa", streams="s", may=frozenset({"pull"})))
    assert some.allows("noise:aa", "pull", "s")
    some.revoke("noise:aa")
    assert not some.allows("noise:aa", "pull", "s")


def test_a_lent_key_acts_as_another_until_it_is_withdrawn() -> None:
    some = access(("sink/x", "s", {"pull"}))
    some.lend("noise:bb", "sink/x")
    assert some.known("noise:bb")
    assert some.principal_of("noise:bb") == "sink/x"
    some.withdraw("noise:bb")
    assert not some.known("noise:bb")
    assert some.principal_of("noise:bb") == "noise:bb"


# Addresses -----------------------------------------------------------------------------------


def to_addresses(who: str, addresses: str, *may: GrantVerb) -> Grant:
    return Grant(who=who, addresses=addresses, may=frozenset(may))


def test_a_grant_for_addresses_is_for_those_that_match_and_for_no_stream() -> None:
    some = Access([to_addresses("noise:aa", "greeter*", "send")])
    assert some.address_verbs("noise:aa", b"greeter/2") == {"send"}
    assert not some.address_verbs("noise:aa", b"other")
    assert not some.address_verbs("noise:bb", b"greeter")
    assert not some.verbs("noise:aa", "greeter")
    assert some.known("noise:aa")
    assert not some.names("noise:aa")
    assert not some.sees_all("noise:aa")
    assert not access(("noise:aa", "*", {"admin"})).address_verbs("noise:aa", b"greeter")


def test_admin_of_addresses_may_all_and_sees_no_state_of_the_node() -> None:
    some = Access([to_addresses("noise:*", "a", "admin"), to_addresses("anonymous", "a", "serve")])
    assert some.address_verbs("noise:aa", b"a") == set(ADDRESS_VERBS)
    assert some.address_verbs("anonymous", b"a") == {"serve"}
    assert not some.administers("noise:aa")


def test_one_grant_may_be_for_streams_and_addresses() -> None:
    both = Grant(who="*", streams="s*", addresses="a*", may=frozenset({"pull", "send"}))
    some = Access([both])
    assert some.verbs("anonymous", "s1") == {"pull"}
    assert some.address_verbs("anonymous", b"a1") == {"send"}
    some.replace([both], [])
    assert not some.address_verbs("anonymous", b"a1")
    assert not some.verbs("anonymous", "s1")
    assert not some.known("anonymous")


def test_a_change_of_grants_for_addresses_takes_effect_at_once() -> None:
    some = Access()
    assert not some.address_verbs("noise:aa", b"a")
    some.add(to_addresses("noise:aa", "a", "send"))
    assert some.address_verbs("noise:aa", b"a")
    some.revoke("noise:aa")
    assert not some.address_verbs("noise:aa", b"a")


def test_addresses_are_bytes_of_a_bounded_length() -> None:
    some = Access([to_addresses("noise:aa", "a?", "send"), to_addresses("*", "*", "send")])
    assert some.address_verbs("noise:aa", b"a\xff") == {"send"}
    assert not some.address_verbs("noise:aa", b"a" * (NAME_BYTES_MAX + 1))
    assert Access().address_verbs(NODE_PRINCIPAL, b"a") == set(ADDRESS_VERBS)


# A stream's own grants -----------------------------------------------------------------------


def test_a_stream_has_grants_of_its_own() -> None:
    some = access(("eth:aa", "s*", {"pull"}))
    some.set_stream("s1", {"eth:aa": ("push", "share"), "eth:bb": ("admin",), "eth:cc": ()})
    assert some.verbs("eth:aa", "s1") == {"pull", "push"}
    assert some.verbs("eth:aa", "s2") == {"pull"}
    assert some.verbs("eth:bb", "s1") == set(VERBS)
    assert some.verbs("eth:cc", "s1") == set()
    # Of the node they say nothing.
    assert not some.administers("eth:bb")
    assert not some.sees_all("eth:bb")


def test_a_streams_own_grants_are_replaced_as_a_whole() -> None:
    some = access()
    some.set_stream("s", {"eth:aa": ("push",), "eth:bb": ("pull",)})
    assert some.granted("eth:aa") == {"s"}
    some.set_stream("s", {"eth:bb": ("push",)})
    assert not some.verbs("eth:aa", "s")
    assert some.verbs("eth:bb", "s") == {"push"}
    assert some.granted("eth:aa") == set()
    some.set_stream("s", {})
    assert not some.verbs("eth:bb", "s")


def test_a_stream_can_be_everybodys() -> None:
    some = access()
    some.set_stream("s", {EVERYBODY: ("subscribe",)})
    assert some.allows("anonymous", "subscribe", "s")
    assert some.allows("noise:ff", "subscribe", "s")
    # That lets nobody onto a listener for known identities.
    assert not some.known("noise:ff")


def test_who_is_named_by_a_stream_may_connect() -> None:
    some = access()
    some.set_stream("s", {"noise:ff": ("pull",)})
    assert some.known("noise:ff")
    some.set_stream("s", {})
    assert not some.known("noise:ff")


def test_a_streams_own_grants_are_no_patterns() -> None:
    some = access()
    some.set_stream("*", {"noise:*": ("pull",)})
    assert not some.verbs("noise:ff", "s")
    assert not some.verbs("noise:ff", "*")
    assert some.verbs("noise:*", "*") == {"pull"}


def test_holders_are_named_by_a_pattern_or_by_the_stream() -> None:
    some = access(("eth:aa", "s*", {"push"}), ("eth:*", "t", {"push"}), ("eth:bb", "*", {"admin"}))
    some.set_stream("s", {"eth:cc": ("push",), "eth:dd": ("pull",)})
    assert some.holders("push", "s") == {"eth:aa", "eth:bb", "eth:cc"}
    assert some.holders("push", "t") == {"eth:*", "eth:bb"}
    assert some.names("eth:aa")
    assert some.names("eth:zz")
    assert not some.names("noise:aa")


def test_grants_of_many_streams_are_looked_up_by_name() -> None:
    some = access()
    for number in range(20_000):
        some.set_stream(f"s{number}", {"eth:aa": ("admin",)})
    # Neither a change nor a question looks at the others: a scan for each would take minutes.
    for number in range(20_000):
        some.set_stream(f"s{number}", {"eth:aa": ("push",)})
        assert some.verbs("eth:aa", f"s{number}") == {"push"}
    assert len(some.granted("eth:aa")) == 20_000


def test_replaced_grants_take_effect_at_once_and_leave_others() -> None:
    old = Grant(who="noise:a", streams="s*", may=frozenset({"push"}))
    new = Grant(who="noise:b", streams="s*", may=frozenset({"pull"}))
    held = Access([old])
    held.add(Grant(who="noise:sink", streams="*", may=frozenset({"pull"})))
    assert held.allows("noise:a", "push", "s1")
    held.replace([old], [new])
    assert not held.allows("noise:a", "push", "s1")
    assert not held.known("noise:a")
    assert held.allows("noise:b", "pull", "s1")
    assert held.allows("noise:sink", "pull", "s1")


def test_a_question_looks_at_the_grants_of_who_asks_and_at_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def counting(pattern: str) -> Matches:
        matches = matcher(pattern)

        def counted(name: str) -> object:
            asked.append(pattern)
            return matches(name)

        return counted

    monkeypatch.setattr("rillnode.actors.core.access.matcher", counting)
    pushes: set[Verb] = {"push"}
    some = access(
        ("noise:*", "public*", {"pull"}),
        *((f"noise:{number}", f"s{number}*", pushes) for number in range(5_000)),
    )
    assert some.verbs("noise:7", "s7") == {"push"}
    assert some.names("noise:8")
    assert not some.administers("noise:9")
    assert not some.sees_all("noise:9")
    # Of patterns of principals there is one, and the asker has one grant.
    assert asked == ["s7*", "noise:*", "public*", "noise:*", "noise:*"]


def test_a_grant_that_stays_is_not_touched_when_others_are_replaced() -> None:
    grants = [
        Grant(who=f"noise:{number}", streams="*", may=frozenset({"pull"})) for number in range(3)
    ]
    some = Access(grants)
    some.replace(grants, grants[1:])
    assert not some.known("noise:0")
    assert some.allows("noise:1", "pull", "s")
    some.replace(grants[1:], [])
    assert not some.known("noise:1")
    assert not some.known("noise:2")


def test_names_of_streams_are_reserved_by_how_they_begin() -> None:
    some = Access(reserved=["weather/", "air-"])
    assert all(map(some.is_reserved, ("weather/", "weather/berlin", "air-port")))
    assert not any(map(some.is_reserved, ("weather", "a/weather/", "air", "")))
    assert not Access().is_reserved("weather/")
