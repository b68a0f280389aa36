"""Many streams are opened by one request, each as if it were opened alone."""

from typing import Any

from core_support import Core
from coroutines import run_with
from rillnode.actors.core.access import Grant
from rillnode.actors.core.quotas import Quota
from rillnode.actors.core.streams.listing import ANSWER_PARTS
from rillnode.actors.core.streams.rules import StreamRule
from rillnode.actors.log import FindStream, ListStreams, PutStream
from rillnode.codecs import native
from rillnode.codecs.limits import NAME_BYTES_MAX, OPENS_MAX


def opened(answer: native.OpenManyResponse) -> dict[str, int]:
    return {info.name: len(info.partitions) for info in answer.streams}


def failures(answer: native.OpenManyResponse) -> list[tuple[int, str]]:
    return [(one.request_id, one.code) for one in answer.failures]


async def test_streams_are_made_or_found_in_the_order_of_their_names(core: Core) -> None:
    peer = core.peer()
    await peer.ask("stream", native.OpenRequest(1, "b", 3))
    request = native.OpenManyRequest(2, ["c", "b", "a", "b"], 2)
    (answer,) = await peer.ask("stream", request)
    assert (opened(answer), answer.failures) == ({"c": 2, "b": 3, "a": 2}, [])
    (again,) = await peer.ask("stream", request)
    assert again == answer
    (alone,) = await peer.ask("stream", native.DescribeRequest(3, "c"))
    assert alone.stream == answer.streams[0]


async def test_all_are_looked_for_and_made_at_once(core: Core) -> None:
    done: list[list[type]] = []
    complete: Any = core.store._complete  # pyright: ignore[reportPrivateUsage]

    def noting(operations: Any) -> None:
        done.append([type(one) for one in operations])
        complete(operations)

    core.store._complete = noting  # pyright: ignore[reportPrivateUsage]
    await core.settle()
    done.clear()
    names = [f"s{number}" for number in range(OPENS_MAX)]
    (answer,) = await core.peer().ask("stream", native.OpenManyRequest(1, names, 1))
    assert len(answer.streams) == OPENS_MAX
    assert done == [[FindStream] * OPENS_MAX, [PutStream] * OPENS_MAX]


@run_with(
    quotas=[Quota(who="guest", streams_max=2)], rules=[StreamRule(name="ruled", partitions_max=1)]
)
async def test_one_that_may_not_be_opened_costs_no_other(core: Core) -> None:
    await core.peer().ask("stream", native.OpenRequest(1, "there", 1))
    core.access.add(Grant(who="guest", streams="own*", may=frozenset({"create"})))
    core.access.add(Grant(who="guest", streams="ruled", may=frozenset({"create"})))
    core.access.add(Grant(who="guest", streams="none", may=frozenset({"push"})))
    names = ["own 1", "there", "none", "", "x" * (NAME_BYTES_MAX + 1), "ruled", "own 2", "own 3"]
    (answer,) = await core.peer("guest").ask("stream", native.OpenManyRequest(2, names, 2))
    assert opened(answer) == {"own 1": 2, "own 2": 2}
    unknown = [(number, "stream.unknown") for number in (1, 2)]
    invalid = [(number, "stream.invalid") for number in (3, 4, 5)]
    assert failures(answer) == [*unknown, *invalid, (7, "quota.streams")]
    page = ListStreams()
    core.store.look(page)
    assert {record.name for record in page.records} == {"there", "own 1", "own 2"}


@run_with(quotas=[Quota(who="friend", streams_max=2)])
async def test_what_the_store_refuses_is_told_of_each_and_costs_no_quota(core: Core) -> None:
    peer = core.peer()
    core.store.faults.failing_syncs = 1
    request = native.OpenManyRequest(1, ["a", "b"], 1)
    (answer,) = await peer.ask("stream", request)
    assert failures(answer) == [(0, "store.failed"), (1, "store.failed")]
    core.clock.advance(1.0)
    assert opened((await peer.ask("stream", request))[0]) == {"a": 1, "b": 1}


async def test_two_that_open_the_same_streams_do_not_wait_for_each_other_for_ever(
    core: Core,
) -> None:
    one, other = core.peer(), core.peer()
    names = [f"s{number}" for number in range(9)]
    one.send("stream", native.encode(native.OpenManyRequest(1, names, 1)))
    found = await other.ask("stream", native.OpenManyRequest(2, names[::-1], 2))
    assert opened(found[0]) == dict.fromkeys(names[::-1], 2)
    assert len(one.answers) == 1


async def test_what_does_not_fit_an_answer_is_asked_for_again(core: Core) -> None:
    names = [f"s{number}" for number in range(5)]
    request = native.OpenManyRequest(1, names, ANSWER_PARTS // 2)
    (answer,) = await core.peer().ask("stream", request)
    assert (list(opened(answer)), answer.failures) == (names[:2], [])
    (answer,) = await core.peer().ask(
        "stream", native.OpenManyRequest(2, names[2:], ANSWER_PARTS // 2)
    )
    assert list(opened(answer)) == names[2:4]


async def test_too_many_and_none_are_answered(core: Core) -> None:
    many = [f"s{number}" for number in range(OPENS_MAX + 1)]
    found = await core.peer().ask(
        "stream", native.OpenManyRequest(1, many, 1), native.OpenManyRequest(2, [], 1)
    )
    assert found[0].code == "stream.many"
    assert found[1] == native.OpenManyResponse(2, [], [])
