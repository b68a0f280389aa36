"""Lines of entries, sent as they are found."""

from collections.abc import AsyncIterator

import pytest
from aiohttp.test_utils import make_mocked_request

from rillnode.codecs.errors import RequestError
from rillnode.node.http.browsing import sent_lines


async def lines(error: Exception | None, *, after: int) -> AsyncIterator[bytes]:
    for _ in range(after):
        yield b"{}\n"
    if error is not None:
        raise error


@pytest.mark.parametrize(
    "error", [ConnectionResetError(), RequestError("store.slow", "later"), TimeoutError()]
)
async def test_what_ends_too_early_is_cut_off_and_no_failure_of_the_node(error: Exception) -> None:
    request = make_mocked_request("GET", "/")
    await sent_lines(request, lines(error, after=1))
    assert request.transport is not None
    request.transport.abort.assert_called_once()  # type: ignore[attr-defined]


async def test_what_is_refused_before_the_first_line_is_told() -> None:
    refusal = RequestError("stream.unknown", "none")
    with pytest.raises(RequestError):
        await sent_lines(make_mocked_request("GET", "/"), lines(refusal, after=0))
