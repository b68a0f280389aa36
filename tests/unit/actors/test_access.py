"""Grants, principals and short-lived keys."""

from rillnode.actors.access import NODE_PRINCIPAL, VERBS, Access, Grant, Verb


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
