"""Tests who may see stream contents."""

from pathlib import Path

import pytest
from aiohttp.test_utils import make_mocked_request

from rillnode.codecs.errors import ConfigError, RequestError
from rillnode.node.config import HttpListener
from rillnode.node.http.answers import status_of
from rillnode.node.http.gate import Gate

TOKEN = "t" * 32


def gate(tmp_path: Path, *, token: str | None = None, listen: str = "127.0.0.1:8080") -> Gate:
    file = None
    if token is not None:
        file = tmp_path / "token"
        file.write_text(token + "\n")
        file.chmod(0o600)
    return Gate(HttpListener(listen=listen, token_file=file, allow_plain=True))


def refusal(gate: Gate, **headers: str) -> tuple[int, str] | None:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        gate.check(make_mocked_request("GET", "/", headers={"Host": "127.0.0.1:8080", **named}))
    except RequestError as error:
        return status_of(error), error.code
    return None


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost:1", "[::1]:8080", "127.9.9.9"])
def test_programs_of_this_machine_see_data(tmp_path: Path, host: str) -> None:
    one = gate(tmp_path)
    assert one.terms == "open"
    assert refusal(one, Host=host) is None


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", ""]
)
def test_a_foreign_name_that_leads_here_does_not(tmp_path: Path, host: str) -> None:
    assert refusal(gate(tmp_path), Host=host) == (403, "http.host")


@pytest.mark.parametrize("site", ["cross-site", "same-site", "anything"])
def test_other_sites_pages_see_nothing(tmp_path: Path, site: str) -> None:
    for token in (None, TOKEN):
        asked = {"Sec_Fetch_Site": site, "Authorization": f"Bearer {TOKEN}"}
        assert refusal(gate(tmp_path, token=token), **asked) == (403, "http.cross_site")


@pytest.mark.parametrize(
    "name",
    ["Forwarded", "Via", "X_Real_IP", "X_Forwarded_For", "x_forwarded_host", "X_Forwarded_Proto"],
)
def test_what_comes_through_a_proxy_is_not_of_this_machine(tmp_path: Path, name: str) -> None:
    assert refusal(gate(tmp_path), **{name: "127.0.0.1"}) == (403, "http.no_token")


def test_elsewhere_a_token_is_needed(tmp_path: Path) -> None:
    one = gate(tmp_path, listen="0.0.0.0:8080")
    assert one.terms == "closed"
    assert refusal(one) == (403, "http.no_token")


def test_who_has_the_token_sees_data_by_any_name(tmp_path: Path) -> None:
    one = gate(tmp_path, token=TOKEN, listen="0.0.0.0:8080")
    assert one.terms == "token"
    assert refusal(one, Host="node.example", Authorization=f"Bearer {TOKEN}") is None
    for wrong in ("", "Bearer", f"Bearer {TOKEN}x", f"bearer {TOKEN}", TOKEN, "Bearer ü"):
        assert refusal(one, Authorization=wrong) == (401, "http.token")
    assert refusal(one) == (401, "http.token")


@pytest.mark.parametrize("text", ["short", "with a space in it and long enough..", "ü" * 40, ""])
def test_a_token_that_is_none_is_an_error_that_does_not_repeat_it(
    tmp_path: Path, text: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        gate(tmp_path, token=text)
    assert caught.value.code == "key.format"
    assert not text or text not in str(caught.value)


def test_a_token_that_others_may_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        Gate(HttpListener(token_file=tmp_path / "token"))
