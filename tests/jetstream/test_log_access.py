"""Servers that want to know who connects, and show who they are."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from certificates import make_certificate
from jetstream.support import Site, appended, open_only, options_of, pair_of
from nats_operator import Account, Operator
from nats_support import needs_nats, running_nats
from rillnode.actors.log.shared.port import LogLost
from rillnode.codecs.errors import StoreError
from rillnode.node.testing.contract.shared_logs import Client, opened, until

pytestmark = needs_nats


@pytest.mark.parametrize("scheme", ["nats", "tls"])
async def test_who_has_credentials_gets_in_over_tls(site: Site, scheme: str) -> None:
    servers = (site.server.url.replace("nats:", f"{scheme}:"),)
    async with opened(pair_of(site.options, servers=servers)) as client:
        large = b"x" * client.log.frame_bytes_max
        await client.append(0, b"a", large)
        assert client.log.describe()["tls"] is True
        await asyncio.to_thread(site.server.kill)
        await asyncio.to_thread(site.server.start)
        sequence = await appended(client, 0, b"b")
        assert (await client.read(0, sequence - 1, 1))[0].data == b"b"


async def test_each_account_has_logs_of_its_own(tmp_path: Path) -> None:
    accounts = Account(), Account()
    with running_nats(tmp_path / "nats", *Operator(tmp_path, *accounts).settings) as server:
        files = [one.credentials(tmp_path / f"{n}.creds") for n, one in enumerate(accounts)]

        options = options_of(server)
        async with (
            opened(pair_of(options, credentials=files[0])) as one,
            opened(pair_of(options, credentials=files[1])) as other,
        ):
            assert one.opened.identity != other.opened.identity
            await one.append(0, b"a")
            assert (await other.log.span(0)).last == 0


@pytest.mark.parametrize("wrong", ["none", "stranger", "expired", "damaged", "missing", "poor"])
def test_wrong_credentials_are_refused_with_what_to_do(site: Site, wrong: str) -> None:
    file = site.directory / "wrong.creds"
    credentials: Path | None = file
    if wrong == "none":
        credentials = None
    elif wrong == "stranger":
        Account().credentials(file)
    elif wrong == "expired":
        site.account.credentials(file, seconds=-60.0)
    elif wrong == "damaged":
        file.write_text("something else")
    elif wrong == "poor":
        site.poor.credentials(file)
    reason = "not enabled for account" if wrong == "poor" else "credentials_file"
    with pytest.raises(StoreError, match=reason) as caught:
        asyncio.run(open_only(site.options, credentials=credentials))
    assert "credentials_file" in caught.value.text
    assert (caught.value.code, caught.value.retryable) == ("store.denied", False)


def test_a_server_whose_certificate_is_not_trusted_is_not_used(site: Site, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other, _ = make_certificate(tmp_path / "other")
    for tls_ca in (None, other):
        with pytest.raises(LogLost, match=r"not trusted .* see tls_ca"):
            asyncio.run(open_only(site.options, tls_ca=tls_ca))
    with pytest.raises(StoreError, match="tls_ca"):
        asyncio.run(open_only(site.options, tls_ca=tmp_path / "none"))


def test_a_server_without_tls_is_not_used_where_it_is_demanded(tmp_path: Path) -> None:
    certificate, _ = make_certificate(tmp_path)
    with (
        running_nats(tmp_path / "nats") as server,
        pytest.raises(LogLost, match="does not offer TLS"),
    ):
        asyncio.run(open_only(options_of(server), tls_ca=certificate))


async def test_a_client_shows_its_certificate(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    with running_nats(
        tmp_path / "nats",
        f'tls {{ cert_file: "{certificate}", key_file: "{key}", ca_file: "{certificate}", '
        "verify: true }",
    ) as server:
        options = replace(options_of(server), tls_ca=certificate)

        async with opened(pair_of(options, tls_cert=certificate, tls_key=key)) as client:
            await client.append(0, b"a")
        with pytest.raises((LogLost, StoreError)):
            await open_only(options)


async def test_who_is_not_let_in_any_more_is_told_and_gets_in_again_with_renewed_credentials(
    site: Site,
) -> None:
    file = site.directory / "short.creds"
    site.account.credentials(file, seconds=3.0)
    async with opened(pair_of(site.options, credentials=file)) as client:
        await client.append(0, b"a")
        error = await until(lambda: refusal(client), lambda said: said is not None)
        assert error is not None
        assert (error.code, error.retryable) == ("store.denied", True)
        assert "credentials_file" in error.text
        # Its operator writes new ones.
        site.account.credentials(file)
        await until(lambda: refusal(client), lambda said: said is None)


async def test_a_password_that_was_changed_lets_nobody_in(tmp_path: Path) -> None:
    def write(password: str) -> None:
        text = f"authorization {{ user: u, password: {json.dumps(password)} }}\n"
        (tmp_path / "auth.conf").write_text(text)

    write("p%/@")
    with running_nats(tmp_path / "nats", "include ../auth.conf") as server:
        options = options_of(server)

        url = server.url.replace("//", "//u:p%25%2F%40@")
        with pytest.raises(StoreError, match="Authorization Violation") as caught:
            await open_only(options, servers=(server.url.replace("//", "//u:secret@"),))
        assert "secret" not in str(caught.value)
        async with opened(pair_of(options, servers=(url,))) as client:
            await client.append(0, b"a")
            assert "p%" not in str(client.log.describe())
            write("other")
            server.reload()
            error = await until(lambda: refusal(client), lambda said: said is not None)
            assert error is not None
            assert error.code == "store.denied"
            write("p%/@")
            server.reload()
            await until(lambda: refusal(client), lambda said: said is None)


@pytest.mark.parametrize(
    ("denied", "code"),
    [("$JS.API.STREAM.CREATE.>", "store.denied"), ("$JS.API.>", "store.denied"), ("t.log.>", "")],
)
async def test_subjects_that_are_not_allowed_are_told(
    tmp_path: Path, denied: str, code: str
) -> None:
    permissions = f"{{ publish: {{ deny: [{json.dumps(denied)}] }} }}"
    with running_nats(
        tmp_path / "nats",
        f"authorization {{ users: [{{ user: u, password: p, permissions: {permissions} }}] }}",
    ) as server:
        options = replace(options_of(server), servers=(server.url.replace("//", "//u:p@"),))

        if code:
            with pytest.raises(StoreError, match="Permissions Violation") as caught:
                await open_only(options)
            assert (caught.value.code, caught.value.retryable) == (code, False)
            return
        async with opened(pair_of(options)) as client:
            with pytest.raises(StoreError, match="Permissions Violation") as caught:
                await client.log.append(0, b"a")
            assert caught.value.code == "store.denied"
            # The connection stands.
            assert (await client.log.span(0)).last == 0


@pytest.mark.parametrize("denied", ["_INBOX.>", "t.news.>"])
async def test_subscriptions_that_are_not_allowed_are_told(tmp_path: Path, denied: str) -> None:
    permissions = f"{{ subscribe: {{ deny: [{json.dumps(denied)}] }} }}"
    with running_nats(
        tmp_path / "nats",
        f"authorization {{ users: [{{ user: u, password: p, permissions: {permissions} }}] }}",
    ) as server:
        options = replace(options_of(server), servers=(server.url.replace("//", "//u:p@"),))

        if denied == "_INBOX.>":
            with pytest.raises(StoreError, match="Permissions Violation for Subscription"):
                await open_only(options)
            return
        async with opened(pair_of(options)) as client:
            error = await until(lambda: refusal(client), lambda said: said is not None)
            assert error is not None
            assert "Permissions Violation for Subscription" in error.text


async def refusal(client: Client) -> StoreError | None:
    """Why a frame is refused; None if it is stored."""

    async def attempt() -> StoreError | bool:
        try:
            return await client.log.append(0, b"x") < 0
        except StoreError as error:
            return error
        except LogLost:
            return True

    said = await until(attempt, lambda said: said is not True)
    return said if isinstance(said, StoreError) else None
