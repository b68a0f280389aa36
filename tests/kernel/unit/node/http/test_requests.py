"""What is read of requests: media types that clients accept."""

from contextlib import nullcontext

import pytest
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from rillnode.codecs.errors import RequestError
from rillnode.node.http.answers import status_of
from rillnode.node.http.requests import accepted, media_type, segment

OFFERED = ("application/x-ndjson", "application/jsonl", "application/cbor")


@pytest.mark.parametrize(
    ("accept", "best"),
    [
        (None, 0),
        ("*/*", 0),
        ("", None),
        ("application/*", 0),
        ("application/cbor", 2),
        ("APPLICATION/CBOR", 2),
        ("application/cbor;q=0.5, application/jsonl;q=0.4", 2),
        ("application/cbor;q=0.5,*/*;q=0.1", 2),
        ("*/*, application/x-ndjson;q=0", 1),
        ("application/cbor; profile=x; q=0.2", 2),
        ("text/html,application/xhtml+xml,*/*;q=0.8", 0),
        ("text/html", None),
        ("*/*;q=0", None),
        ("application/cbor;q=0.0", None),
        ("application/cbor;q=9", 2),
        (",;,q=1", None),
        ("x" * 5_000, None),
    ],
)
def test_the_best_of_what_is_accepted(accept: str | None, best: int | None) -> None:
    request = make_mocked_request("GET", "/", headers={} if accept is None else {"Accept": accept})
    if best is None:
        with pytest.raises(RequestError) as caught:
            accepted(request, OFFERED)
        assert (status_of(caught.value), caught.value.code) == (406, "http.accept")
    else:
        assert accepted(request, OFFERED) == OFFERED[best]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/a/s", "s"),
        ("/a/x%2Fy", "x/y"),
        ("/a/%C3%A9", "\u00e9"),
        ("/a/..", ".."),
        ("/a/a+b", "a+b"),
    ],
)
def test_a_segment_is_decoded_once(path: str, name: str) -> None:
    assert segment(make_mocked_request("GET", path), 2) == name


@pytest.mark.parametrize("path", ["/a/%FF", "/a/%C3"])
def test_a_segment_that_is_no_text_is_refused(path: str) -> None:
    with pytest.raises(RequestError, match="UTF-8"):
        segment(make_mocked_request("GET", path), 2)


@pytest.mark.parametrize(
    ("name", "values", "taken"),
    [
        ("Content-Encoding", (), True), ("Content-Encoding", ("identity",), True),
        ("Content-Encoding", ("gzip",), False), ("Content-Encoding", ("identity", "gzip"), False),
        ("Content-Encoding", ("identity, br",), False),
        ("Transfer-Encoding", ("Chunked",), True), ("Transfer-Encoding", ("gzip, chunked",), False),
        ("Transfer-Encoding", ("gzip", "chunked"), False),
    ],
)  # fmt: skip
def test_a_body_that_is_encoded_is_refused(
    name: str, values: tuple[str, ...], *, taken: bool
) -> None:
    headers = CIMultiDict([(name, value) for value in values])
    request = make_mocked_request("POST", "/", headers=headers)
    with nullcontext() if taken else pytest.raises(RequestError, match=name):
        assert media_type(request) == ""
