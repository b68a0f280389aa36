"""Logins: challenges, API keys, tokens, and tokens that were logged out."""

from collections.abc import Callable, Iterator, Mapping
from itertools import count

import pytest

from link_support import ManualClock
from rillnode.actors.core.rights import Rights
from rillnode.actors.streamr.sessions import OpenChallenge, Sessions, SessionSettings
from rillnode.codecs.api_keys import hash_of
from rillnode.codecs.errors import CodecError, RequestError
from rillnode.codecs.streamr.ethereum import EthereumKey
from rillnode.codecs.streamr.limits import STREAMR_CHALLENGE_SECONDS

KEY = EthereumKey(b"\7" * 32)
STRANGER = EthereumKey(b"\11" * 32)
TOKEN_KEY = b"k" * 32
REMOTE = "192.0.2.1"


class Logins:
    """Sessions on a clock moved by hand."""

    def __init__(
        self,
        clock: ManualClock | None = None,
        *,
        token_seconds: float = 3_600.0,
        logins_per_minute: int = 1_000,
        api_keys: Mapping[str, str] | None = None,
    ) -> None:
        numbers: Iterator[int] = count(1)
        self.clock = clock or ManualClock()
        self.sessions = Sessions(
            SessionSettings(TOKEN_KEY, token_seconds, logins_per_minute, api_keys or {}),
            self.clock,
            lambda size: next(numbers).to_bytes(size, "big"),
            Rights(),
        )

    def open(self, key: EthereumKey = KEY) -> OpenChallenge:
        return self.sessions.challenge(key.address, REMOTE)

    def answer(self, opened: OpenChallenge, key: EthereumKey = KEY, address: str = "") -> str:
        signature = key.sign(opened.text.encode())
        return self.sessions.answer(opened.id, address or key.address, signature, REMOTE).text

    def log_in(self) -> str:
        return self.answer(self.open())


def refused(call: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(RequestError) as caught:
        call(*arguments)
    return caught.value.code


def test_a_signed_challenge_gives_a_token_of_the_address() -> None:
    logins = Logins()
    opened = logins.open()
    assert KEY.address.lower() in opened.text
    assert opened.id in opened.text
    assert opened.expires_at == logins.clock.now_ms() + STREAMR_CHALLENGE_SECONDS * 1_000
    assert logins.sessions.principal_of(logins.answer(opened)) == f"eth:{KEY.address.lower()}"


def test_a_challenge_is_good_for_one_login() -> None:
    logins = Logins()
    opened = logins.open()
    logins.answer(opened)
    assert refused(logins.answer, opened) == "session.refused"
    # Base64 has other texts for the same bytes.
    other = opened._replace(id=opened.id + "=")
    assert refused(logins.answer, other) == "session.refused"


def test_a_refused_answer_uses_no_challenge_up() -> None:
    logins = Logins()
    opened = logins.open()
    assert refused(logins.answer, opened, STRANGER, KEY.address) == "session.refused"
    assert logins.answer(opened)


def test_a_challenge_ends() -> None:
    logins = Logins()
    opened = logins.open()
    logins.clock.advance(STREAMR_CHALLENGE_SECONDS)
    assert refused(logins.answer, opened) == "session.refused"


def test_what_is_wrong_with_an_answer_is_not_told() -> None:
    logins, elsewhere = Logins(), Logins()
    elsewhere.open()
    sign = KEY.sign
    opened = logins.open()
    for challenge, address, signature in (
        (opened.id, STRANGER.address, sign(opened.text.encode())),
        (opened.id, KEY.address, sign(b"another text")),
        (opened.id, KEY.address, "0x12"),
        (opened.id, "nobody", sign(opened.text.encode())),
        (elsewhere.open().id, KEY.address, sign(opened.text.encode())),
        ("", KEY.address, ""),
        ("\u20ac" * 50, KEY.address, "\ud800"),
    ):
        answer = logins.sessions.answer
        assert refused(answer, challenge, address, signature, REMOTE) == "session.refused"


def test_a_challenge_is_for_an_address() -> None:
    with pytest.raises(CodecError):
        Logins().sessions.challenge("nobody", REMOTE)


def test_a_token_ends() -> None:
    logins = Logins(token_seconds=10.0)
    token = logins.log_in()
    logins.clock.advance(9.9)
    assert logins.sessions.principal_of(token)
    logins.clock.advance(0.1)
    assert refused(logins.sessions.principal_of, token) == "session.invalid"


def test_without_a_token_one_is_anonymous() -> None:
    logins = Logins()
    assert logins.sessions.principal_of(None) == "anonymous"
    for text in ("", "x", "A" * 100_000, "\u20ac"):
        assert refused(logins.sessions.principal_of, text) == "session.invalid"


def test_a_token_outlives_the_node_and_a_challenge_does_not() -> None:
    first = Logins()
    token, opened = first.log_in(), first.open()
    second = Logins(first.clock)
    second.sessions._challenge_key = b"another"  # pyright: ignore[reportPrivateUsage]
    assert second.sessions.principal_of(token) == f"eth:{KEY.address.lower()}"
    assert refused(second.answer, opened) == "session.refused"


def test_an_api_key_is_known_by_its_hash() -> None:
    logins = Logins(api_keys={hash_of("the key"): "dashboard"})
    token = logins.sessions.log_in_with_key("the key", REMOTE).text
    assert logins.sessions.principal_of(token) == "apikey:dashboard"
    for wrong in ("", hash_of("the key"), "dashboard", "\ud800"):
        login = logins.sessions.log_in_with_key
        assert refused(login, wrong, REMOTE) == "session.api_key"


def test_a_key_that_is_taken_back_takes_its_tokens_along() -> None:
    first = Logins(api_keys={hash_of("k"): "a"})
    token = first.sessions.log_in_with_key("k", REMOTE).text
    second = Logins(first.clock, api_keys={hash_of("k"): "b"})
    assert refused(second.sessions.principal_of, token) == "session.invalid"


# Logging out ---------------------------------------------------------------------------------


def test_a_logout_ends_one_token_and_outlives_the_node() -> None:
    logins = Logins()
    token, other = logins.log_in(), logins.log_in()
    logins.sessions.revoke(token)
    assert refused(logins.sessions.principal_of, token) == "session.invalid"
    assert refused(logins.sessions.revoke, token) == "session.invalid"
    assert logins.sessions.principal_of(other)
    restarted = Logins(logins.clock)
    for name, value in logins.sessions.revocations.unsaved(10):
        restarted.sessions.revocations.learn(name, value, now_ms=0)
    assert refused(restarted.sessions.principal_of, token) == "session.invalid"
    assert restarted.sessions.principal_of(other)
