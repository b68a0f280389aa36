"""A topic's history: heads, what is missing, and the order in which it is sent."""

from hypothesis import given, strategies as st

from rillnode.actors.nextgraph.history import History, commit_key, parse_commit_key


def name(number: int) -> bytes:
    return number.to_bytes(32, "big")


def history(*commits: tuple[int, list[int]]) -> History:
    made = History()
    for index, (commit, parents) in enumerate(commits):
        made.add(name(commit), [name(parent) for parent in parents], index)
    return made


def numbers(commits: list[bytes]) -> list[int]:
    return [int.from_bytes(commit, "big") for commit in commits]


def missing(made: History, known: list[int], targets: list[int], filtered: list[int]) -> list[int]:
    found = made.missing(map(name, known), map(name, targets), {name(one) for one in filtered})
    return numbers(found)


def test_a_key_holds_a_commit_and_its_parents() -> None:
    for parents in ((), (name(1),), (name(2), name(3))):
        assert parse_commit_key(commit_key(name(9), parents)) == (name(9), parents)
    assert not commit_key(name(9), ()).startswith(b"\0")


def test_heads_are_what_nothing_comes_after() -> None:
    assert history().heads == []
    assert numbers(history((1, []), (2, [1])).heads) == [2]
    assert numbers(history((1, []), (2, [1]), (3, [1])).heads) == [2, 3]
    assert numbers(history((1, []), (2, [1]), (3, [1]), (4, [2, 3])).heads) == [4]


def test_a_parent_that_comes_late_is_no_head() -> None:
    made = history((2, [1]), (1, []))
    assert numbers(made.heads) == [2]
    assert missing(made, [], [2], []) == [1, 2]


def test_a_commit_is_added_once() -> None:
    made = history((1, []), (2, [1]), (1, []))
    assert (len(made), numbers(made.heads)) == (2, [2])


def test_what_is_known_and_all_before_it_is_not_missing() -> None:
    made = history((1, []), (2, [1]), (3, [2]), (4, [3]))
    assert missing(made, [], [4], []) == [1, 2, 3, 4]
    assert missing(made, [2], [4], []) == [3, 4]
    assert missing(made, [4], [4], []) == []
    assert missing(made, [], [2], []) == [1, 2]


def test_unknown_heads_are_passed_over() -> None:
    made = history((1, []), (2, [1]))
    assert missing(made, [77], [2, 88], []) == [1, 2]
    assert missing(made, [], [88], []) == []


def test_what_a_filter_holds_stops_the_search() -> None:
    made = history((1, []), (2, [1]), (3, [2]), (4, [1]), (5, [3, 4]))
    assert missing(made, [], [5], [3]) == [1, 4, 5]


def test_a_parent_without_an_event_is_named_before_its_child() -> None:
    made = history((2, [1]), (3, [2]))
    assert missing(made, [], [3], []) == [1, 2, 3]
    assert made.index(name(1)) is None


def test_a_long_history_needs_no_deep_stack() -> None:
    made = history((0, []), *((number, [number - 1]) for number in range(1, 20_000)))
    assert missing(made, [], [19_999], []) == list(range(20_000))


@given(st.data())
def test_parents_come_first_and_nothing_is_left_out(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 30))
    parents = {
        one: data.draw(st.lists(st.integers(0, one - 1), max_size=3, unique=True)) if one else []
        for one in range(count)
    }
    order = data.draw(st.permutations(range(count)))
    made = history(*((one, parents[one]) for one in order))
    known = data.draw(st.lists(st.integers(0, count), max_size=3))

    def before(heads: list[int]) -> set[int]:
        found: set[int] = set()
        waiting = [one for one in heads if one < count]
        while waiting:
            one = waiting.pop()
            if one not in found:
                found.add(one)
                waiting += parents[one]
        return found

    children = {parent for some in parents.values() for parent in some}
    assert set(numbers(made.heads)) == set(range(count)) - children
    found = missing(made, known, numbers(made.heads), [])
    assert set(found) == set(range(count)) - before(known)
    for at, one in enumerate(found):
        assert not set(parents[one]) & set(found[at:])
