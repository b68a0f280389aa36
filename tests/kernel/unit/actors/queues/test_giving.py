"""The messages in which workers get their jobs."""

import pytest

from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.queues.context import Run
from rillnode.actors.core.queues.giving import job_messages
from rillnode.actors.core.queues.members import Member
from rillnode.codecs import native
from rillnode.codecs.cutting import Cut, CutBlock
from rillnode.codecs.entries import Block, Entry, EntryKind, encode_block, entries_of, pack_body
from rillnode.codecs.routing.routes import local


def a_block(first_index: int, sizes: list[int]) -> Block:
    items = [bytes([number]) * size for number, size in enumerate(sizes)]
    value = encode_block(
        count=len(items),
        kind=EntryKind.BYTES,
        received_at=1_000 + first_index,
        position=0,
        body=pack_body(items),
    )
    return Block(first_index, value)


def a_run(attempt: int, cuts: list[Cut]) -> Run:
    count, size = sum(cut.count for cut in cuts), sum(cut.size for cut in cuts)
    return Run(2, attempt, cuts[0].first_index, count, size, cuts)


@pytest.mark.parametrize("message_bytes", [1_500, 2_000, 3_000, 10_000])
def test_jobs_come_in_as_many_messages_as_a_link_needs(message_bytes: int) -> None:
    found = [a_block(0, [100] * 10), a_block(10, [0, 300, 5_000, 1]), a_block(14, [40] * 6)]
    cuts = [Cut(CutBlock(block), 0, block.count) for block in found]
    runs = [a_run(1, cuts), a_run(3, [Cut(cuts[0].block, 4, 5)])]
    origin = Origin("p", message_bytes, native=True)
    request = native.WorkRequest(7, bytes(16), [], 100, 0, 5, 1_000, False)
    member = Member(bytes(16), request, origin, (local(b"back"),), 1)

    messages = job_messages(member, runs)

    entries: list[tuple[int, Entry]] = []
    for route, payload in messages:
        assert route == member.return_route
        answer = native.decode_response(payload)
        assert isinstance(answer, native.JobsResponse)
        got = [(run.attempt, entry) for run in answer.jobs for entry in native.entries_of_run(run)]
        assert len(payload) <= message_bytes or len(got) == 1
        entries += got
    wanted = [(1, entry) for block in found for entry in entries_of(block, partition=2)]
    assert entries == [*wanted, (3, wanted[4][1])]
    assert (len(messages) == 1) is (message_bytes == 10_000)
