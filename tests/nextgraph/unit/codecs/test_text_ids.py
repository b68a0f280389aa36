import pytest

from each_row import each_row
from rillnode.codecs.errors import CodecError
from rillnode.codecs.nextgraph.text_ids import format_id, from_base64url, parse_id, to_base64url


@pytest.mark.parametrize("key", [bytes(32), b"\xff" * 32, bytes(range(32))])
def test_ids_come_back(key: bytes) -> None:
    text = format_id(key)
    assert len(text) == 44
    assert text.endswith("A")
    assert parse_id(text) == key


@each_row(
    [
        ("", "text.id"),
        ("A" * 43, "text.id"),
        ("A" * 45, "text.id"),
        ("A" * 43 + "B", "text.id"),  # a tag that there is not
        ("A" * 40 + "AA==", "text.base64"),
        ("A" * 43 + "\n", "text.base64"),
        ("A" * 43 + "+", "text.base64"),
        ("A" * 43 + "\xe9", "text.base64"),
    ]
)
def test_what_is_no_id_is_refused(text: str, code: str) -> None:
    with pytest.raises(CodecError) as caught:
        parse_id(text)
    assert caught.value.code == code


def test_base64_has_one_form() -> None:
    for data in (b"", b"a", b"ab", b"abc"):
        assert from_base64url(to_base64url(data)) == data
    for text in ("A", "AB", "AA=", "A A", "AA*A"):
        with pytest.raises(CodecError):
            from_base64url(text)
