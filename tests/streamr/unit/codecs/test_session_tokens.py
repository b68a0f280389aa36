"""Session tokens and challenges: what their maker reads, and nothing that anybody else writes."""

import base64

import pytest
from hypothesis import given, strategies as st

from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.limits import STREAMR_INTEGER_MAX, STREAMR_TOKEN_CHARS_MAX
from rillnode.codecs.streamr.session_tokens import (
    Challenge,
    Session,
    challenge_text,
    decode_challenge,
    decode_token,
    derive_key,
    encode_challenge,
    encode_token,
)

KEY = derive_key(b"secret", b"tokens")
ADDRESS = "0x" + "aB" * 20
SESSION = Session(b"12345678", 1_000, 2_000, "eth:0x" + "ab" * 20)

principals = st.text(st.characters(exclude_categories=["Cs"]), max_size=100)
times = st.integers(0, STREAMR_INTEGER_MAX)


def keys_of(_: str) -> list[bytes]:
    return [KEY]


@given(st.binary(min_size=8, max_size=8), times, times, principals)
def test_a_token_says_what_it_was_made_of(
    token_id: bytes, issued_at: int, expires_at: int, principal: str
) -> None:
    session = Session(token_id, issued_at, expires_at, principal)
    token = encode_token(session, KEY)
    assert decode_token(token, keys_of) == session
    assert token.isascii()


def test_a_key_serves_one_purpose_of_one_secret() -> None:
    keys = {derive_key(secret, purpose) for secret in (b"a", b"b") for purpose in (b"x", b"y")}
    assert len(keys) == 4
    for key in keys:
        with pytest.raises(CodecError, match="no session token"):
            decode_token(encode_token(SESSION, key), keys_of)


def test_no_changed_token_is_taken() -> None:
    token = encode_token(SESSION, KEY)
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    for at in range(len(raw)):
        changed = raw[:at] + bytes((raw[at] ^ 1,)) + raw[at + 1 :]
        with pytest.raises(CodecError) as caught:
            decode_token(base64.urlsafe_b64encode(changed).decode().rstrip("="), keys_of)
        assert caught.value.code == "session.token"


@given(st.text(max_size=200) | st.text("AZaz09-_=", max_size=200))
def test_nothing_that_is_made_up_is_taken(text: str) -> None:
    with pytest.raises(CodecError):
        decode_token(text, keys_of)
    with pytest.raises(CodecError):
        decode_challenge(text, ADDRESS, KEY)


def test_a_long_text_is_not_looked_at() -> None:
    with pytest.raises(CodecError):
        decode_token("A" * (STREAMR_TOKEN_CHARS_MAX + 1), keys_of)


@given(times, st.binary(min_size=8, max_size=8))
def test_a_challenge_is_for_one_address_in_any_case(expires_at: int, nonce: bytes) -> None:
    challenge = Challenge(expires_at, nonce)
    text = encode_challenge(challenge, ADDRESS, KEY)
    assert decode_challenge(text, ADDRESS.lower(), KEY) == challenge
    with pytest.raises(CodecError) as caught:
        decode_challenge(text, "0x" + "ac" * 20, KEY)
    assert caught.value.code == "session.challenge"


def test_a_token_is_no_challenge() -> None:
    with pytest.raises(CodecError):
        decode_challenge(encode_token(SESSION, KEY), ADDRESS, KEY)


def test_a_wallet_shows_the_sentence_that_people_know() -> None:
    assert challenge_text("id", ADDRESS) == (
        f"This is a challenge created by Streamr for address {ADDRESS.lower()} to prove"
        " private key ownership by signing this random data with it:\n\nid"
    )
