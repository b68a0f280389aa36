"""Tests that errors of requests bear their id: released clients wait for it for ever."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from streamr_support import STREAM, StreamrCore, array, dump, message, publish

BAD: list[Any] = [None, True, -1, 0.5, 99, 2**53, "", "x", "0", [], [None], [2, 1], {}, {"a": 1}]
REQUESTS: dict[str, list[Any]] = {
    "publish": publish(message(1_000), "r"),
    "publish unsigned": publish(message(1_000, key=None), "r"),
    "subscribe": [2, 9, "r", STREAM, 0, None],
    "unsubscribe": [2, 10, "r", STREAM, 0],
    "last": [2, 11, "r", STREAM, 0, 3, None],
    "from": [2, 12, "r", STREAM, 0, [1, 0], "somebody", None],
    "range": [2, 13, "r", STREAM, 0, [1, 0], [2, 0], "somebody", "chain", None],
}


def places(value: list[Any], start: int = 0) -> Iterator[tuple[int, ...]]:
    """The way to each element, also of the arrays inside."""
    for at in range(start, len(value)):
        yield (at,)
        if isinstance(value[at], list):
            yield from ((at, *rest) for rest in places(value[at]))


def changed(request: list[Any], place: tuple[int, ...], to: object) -> list[Any]:
    copy: list[Any] = json.loads(dump(request))
    inner = copy
    for at in place[:-1]:
        inner = inner[at]
    inner[place[-1]] = to
    return copy


@pytest.mark.parametrize("name", REQUESTS)
async def test_whatever_is_wrong_with_a_request_its_answer_has_its_id(
    node: StreamrCore, name: str
) -> None:
    request = REQUESTS[name]
    await node.stream()
    client = node.client()
    for place in places(request, 3):
        for to in BAD:
            frame = changed(request, place, to)
            answers = [one for one in await client.ask(frame) if one[1] != 0]
            assert all(answer[2] == "r" for answer in answers), (frame, answers)
            codes = [answer[4] for answer in answers if answer[1] == 7]
            assert len(codes) <= 1
            assert answers or name.startswith("publish"), frame
    # With elements missing, and with what is no JSON at all from some place on.
    for end in range(3, len(request)):
        answers = [one for one in await client.ask(request[:end]) if one[1] != 0]
        assert all(answer[2] == "r" for answer in answers), (end, answers)
    text = dump(request)
    for cut in range(text.index(b'"r"') + 3, len(text)):
        (error,) = await client.ask(text[:cut])
        assert (error[:3], error[4]) == ([2, 7, "r"], "INVALID_REQUEST")


def wrong(at: int, value: object) -> list[Any]:
    return [2, 8, "r", changed(array(message(1_000)), (at,), value), None]


INVALID: list[list[Any]] = [
    [2, 9, "r", STREAM, "0", None],
    [2, 9, "r", STREAM, -1, None],
    [2, 9, "r", "", 0, None],
    [2, 9, "r", None, 0, None],
    [2, 9, "r", STREAM, 0, 7],
    [2, 10, "r", STREAM, 0.5],
    [2, 10, "r"],
    [2, 11, "r", STREAM, 0, -1, None],
    [2, 11, "r", STREAM, 0, None, None],
    [2, 11, "r", STREAM, 0],
    [2, 12, "r", STREAM, 0, "x", None, None],
    [2, 12, "r", STREAM, 0, [], None, None],
    [2, 12, "r", STREAM, 0, [-1, 0], None, None],
    [2, 13, "r", STREAM, 0, [2, 0], [1, 9], None, None, None],
    [2, 13, "r", STREAM, 0, [1, 0], None, None, None, None],
    [2, 8, "r", None, None],
    [2, 8, "r", "no json", None],
    [2, 8, "r"],
    wrong(0, 33),  # version
    wrong(3, 26),  # message type
    wrong(3, 32),  # of the specification's layout only
    wrong(4, 1),  # content type
    wrong(5, 4),  # encryption type
    wrong(7, ""),  # content
    wrong(7, 5),
    wrong(9, 3),  # signature type
    wrong(2, [1_000, 0]),  # a reference to itself
    [2, 14, "r", STREAM, 0, None],
    [2, 0, "r", array(message(1_000))],
]


@pytest.mark.parametrize("request_", INVALID, ids=str)
async def test_an_invalid_request_is_refused_with_its_id(
    node: StreamrCore, request_: list[Any]
) -> None:
    await node.stream()
    (error,) = await node.client().ask(request_)
    assert (error[:3], error[4]) == ([2, 7, "r"], "INVALID_REQUEST")
    assert error[3]


@pytest.mark.parametrize(
    "request_",
    [
        [1, 11, STREAM, 0, "r", -1, None],
        [1, 11, STREAM, 0, "r", True, 5, None, None],
        [1, 12, STREAM, 0, "r", "x", None, None, None],
        [1, 13, STREAM, 0, "r", [2, 0], [1, 0], None, None, None],
    ],
    ids=str,
)
async def test_version_1_has_its_ids_elsewhere(node: StreamrCore, request_: list[Any]) -> None:
    await node.stream()
    (error,) = await node.client().ask(request_)
    assert (error[:3], error[4]) == ([2, 7, "r"], "INVALID_REQUEST")
    (error,) = await node.client(1, 31).ask(request_)
    assert error[:2] == [1, 7]
