"""Streams that clients create: what patterns of names give them, and how they grow."""

import pytest
from hypothesis import given, strategies as st

from core_support import Core, with_core
from rillnode.actors.core.access import Grant
from rillnode.actors.core.streams.retention import SWEEP_SECONDS
from rillnode.actors.core.streams.revising import EnsureStream
from rillnode.actors.core.streams.rules import StreamRule, StreamRules
from rillnode.actors.log import FOR_EVER, Retention
from rillnode.codecs import native
from rillnode.codecs.limits import PARTITIONS_MAX
from rillnode.codecs.routing.stream import (
    CreatePartitionedRequest,
    CreatePartitionedResponse,
    CreateRequest,
    CreateResponse,
    ErrorResponse,
    PullRequest,
    PullResponse,
    PushRequest,
)

RULES = [
    StreamRule(name="logs/audit", retention=FOR_EVER),
    StreamRule(name="logs/*", retention=Retention(entries_max=2), partitions_max=3),
    StreamRule(name="*", retention=Retention(seconds=60.0)),
]


@pytest.mark.parametrize(
    ("name", "rule"),
    [("logs/audit", 0), ("logs/audi", 1), ("logs/", 1), ("logs", 2), ("Logs/a", 2), ("a\nb", 2)],
)
def test_the_very_name_counts_before_the_first_pattern_that_matches(name: str, rule: int) -> None:
    # The name need not stand first.
    for rules in (RULES, [RULES[1], RULES[0], RULES[2]]):
        assert StreamRules(rules).find(name) is RULES[rule]


def test_without_a_rule_streams_are_kept_for_ever() -> None:
    rule = StreamRules(RULES[:2]).find("other")
    assert (rule.retention, rule.partitions_max) == (FOR_EVER, PARTITIONS_MAX)


@given(st.text(alphabet="ab[]!.^$", max_size=6))
def test_only_the_two_wildcards_are_special_in_a_plain_name(name: str) -> None:
    rule = StreamRule(name=name, partitions_max=7)
    assert StreamRules([rule]).find(name) is rule
    assert StreamRules([rule]).find(name + "x") is not rule


def test_streams_of_clients_get_the_retention_of_their_pattern() -> None:
    async def test(core: Core) -> None:
        peer = core.peer(native_too=False)
        await peer.ask("stream", CreateRequest("logs/a"), CreateRequest("logs/audit"))
        for name in (b"a", b"audit"):
            for number in range(4):
                await peer.ask(b"ST_S_0_logs/" + name, PushRequest(1, b"%d" % number))
        core.clock.advance(SWEEP_SECONDS + 0.1)
        await core.settle()
        pulled = await peer.ask(b"ST_S_0_logs/a", PullRequest(1, 0, 9))
        assert pulled == [PullResponse(1, [(2, b"2"), (3, b"3")])]
        pulled = await peer.ask(b"ST_S_0_logs/audit", PullRequest(1, 0, 9))
        assert len(pulled[0].messages) == 4

    with_core(test, rules=RULES)


def test_a_pattern_does_not_change_streams_that_are_there() -> None:
    async def test(core: Core) -> None:
        core.system.post(core.streams, EnsureStream("logs/made", 1, Retention(entries_max=9)))
        await core.settle()
        peer = core.peer()
        answers = await peer.ask("stream", native.OpenRequest(1, "logs/made", 2))
        assert answers[0].stream.retain_entries_max == 9

    with_core(test, rules=RULES)


def test_clients_get_no_more_partitions_than_their_pattern_allows() -> None:
    async def test(core: Core) -> None:
        peer = core.peer()
        answers = await peer.ask("stream", CreatePartitionedRequest("logs/a", 3))
        assert [answer.partition for answer in answers] == [0, 1, 2]
        invalid = ErrorResponse("Invalid request")
        for name in ("logs/a", "logs/b"):
            assert await peer.ask("stream", CreatePartitionedRequest(name, 4)) == [invalid]
            failure = (await peer.ask("stream", native.OpenRequest(1, name, 4)))[0]
            assert (failure.code, "at most 3" in failure.text) == ("stream.invalid", True)
        assert len(await peer.ask("stream", CreatePartitionedRequest("other", 4))) == 4
        # Who may do nothing with the name learns nothing of the rule.
        core.access.add(Grant(who="noise:aa", streams="other", may=frozenset({"pull"})))
        failure = (await core.peer("noise:aa").ask("stream", native.OpenRequest(1, "logs/a", 4)))[0]
        assert failure.code == "stream.unknown"

    with_core(test, rules=RULES)


def test_a_bigger_number_adds_partitions_and_all_are_told() -> None:
    async def test(core: Core) -> None:
        peer, plain = core.peer(), core.peer(native_too=False)
        assert await peer.ask("stream", CreateRequest("s")) == [CreateResponse("s")]
        await peer.ask(b"ST_S_0_s", PushRequest(1, b"kept"))
        # Asked for before it is there, by who does not give up.
        assert await plain.ask(b"ST_S_2_s", PullRequest(1, 0, 9)) == []
        for count, total in ((3, 3), (2, 3), (5, 5), (1, 5)):
            answers = await peer.ask("stream", CreatePartitionedRequest("s", count))
            assert answers == [CreatePartitionedResponse("s", part) for part in range(count)]
            described = await peer.ask("stream", native.DescribeRequest(1, "s"))
            ends = [part.next_index for part in described[0].stream.partitions]
            assert ends == [1, *[0] * (total - 1)]
        assert await peer.ask(b"ST_S_2_s", PullRequest(1, 0, 9)) == [PullResponse(1, [])]
        assert await peer.ask(b"ST_S_0_s", PullRequest(1, 0, 9)) == [
            PullResponse(1, [(0, b"kept")])
        ]

    with_core(test)


def test_added_partitions_outlive_a_power_cut_and_can_be_opened() -> None:
    async def test(core: Core) -> None:
        peer = core.peer()
        await peer.ask("stream", CreateRequest("s"))
        await peer.ask("stream", CreatePartitionedRequest("s", 3))
        await peer.ask(b"ST_S_2_s", PushRequest(1, b"kept"))
        core.store.crash()
        core.store.open()
        opened = (await peer.ask("stream", native.OpenRequest(1, "s", 1)))[0].stream
        assert [part.next_index for part in opened.partitions] == [0, 0, 1]
        opened = (await peer.ask("stream", native.OpenRequest(1, "s", 4)))[0].stream
        assert [part.address for part in opened.partitions] == [
            b"ST_S_%d_s" % partition for partition in range(4)
        ]

    with_core(test)


def test_retention_covers_added_partitions() -> None:
    async def test(core: Core) -> None:
        core.system.post(core.streams, EnsureStream("s", 1, Retention(entries_max=1)))
        await core.settle()
        peer = core.peer()
        await peer.ask("stream", CreatePartitionedRequest("s", 2))
        for _ in range(3):
            await peer.ask(b"ST_S_1_s", PushRequest(1, b"x"))
        core.clock.advance(SWEEP_SECONDS + 0.1)
        await core.settle()
        described = await peer.ask("stream", native.DescribeRequest(1, "s"))
        assert [part.first_index for part in described[0].stream.partitions] == [0, 2]

    with_core(test)


def test_who_may_not_create_adds_no_partitions() -> None:
    async def test(core: Core) -> None:
        await core.peer().ask("stream", CreateRequest("s"))
        core.access.add(Grant(who="noise:aa", streams="s", may=frozenset({"pull"})))
        answers = await core.peer("noise:aa").ask("stream", CreatePartitionedRequest("s", 3))
        assert answers == [CreatePartitionedResponse("s", 0)]

    with_core(test)
