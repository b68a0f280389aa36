"""Users: who comes in, with which invitation, and what administrators may do."""

import pytest

from coroutines import run_with
from nextgraph_broker import INNER, NO_CODE, Broker, identity, pin, with_broker
from rillnode.actors.nextgraph.context import Registration
from rillnode.actors.nextgraph.records import InvitationKind
from rillnode.actors.nextgraph.users import Invite
from rillnode.codecs.nextgraph.admin import (
    AddInvitation,
    AddUser,
    AdminContent,
    AdminEmpty,
    AdminResponse,
    CreateUser,
    DelUser,
    Invitations,
    ListInvitations,
    ListUsers,
    MultiCode,
    UniqueCode,
    Users,
    sign_admin_request,
)
from rillnode.codecs.nextgraph.bootstrap import Invitation
from rillnode.codecs.nextgraph.commits import commit_timestamp
from rillnode.codecs.nextgraph.results import ProtocolCode, ResultCode
from rillnode.codecs.nextgraph.start import AuthResult, Registration as Wish

NONE = ProtocolCode.NO_ERROR


async def come_in(broker: Broker, user: str, wish: Wish | None) -> ProtocolCode:
    """Try to come in; what is told, which is also how the connection is closed."""
    client = broker.peer(user, registration=wish)
    await client.settle()
    (said,) = client.said
    assert isinstance(said, AuthResult)
    code = ProtocolCode(said.result)
    assert client.wire.closed == (None if code is NONE else (code.close_code, code.reason))
    return code


async def invite(broker: Broker, kind: InvitationKind, expires_at: int = 0) -> Wish:
    """An invitation, as a wish to be registered with it."""
    made = await broker.core.system.ask(broker.context.users, Invite(kind, expires_at))
    assert isinstance(made, Invitation)
    assert made.bootstrap == broker.context.bootstrap()
    return Wish(made.code)


@pytest.mark.parametrize(
    ("mode", "wish", "code"),
    [
        ("open", NO_CODE, NONE),
        ("open", None, NONE),
        ("open", Wish(b"?" * 32), NONE),
        ("invitation", NO_CODE, ProtocolCode.INVITATION_REQUIRED),
        ("invitation", Wish(b"?" * 32), ProtocolCode.INVITATION_REQUIRED),
        ("invitation", None, ProtocolCode.ACCESS_DENIED),
        ("closed", NO_CODE, ProtocolCode.ACCESS_DENIED),
        ("closed", None, ProtocolCode.ACCESS_DENIED),
        ("closed", Wish(b"?" * 32), ProtocolCode.ACCESS_DENIED),
    ],
)
def test_who_is_not_registered_comes_in_as_configured(
    mode: Registration, wish: Wish | None, code: ProtocolCode
) -> None:
    async def test(broker: Broker) -> None:
        assert await come_in(broker, "alice", wish) is code

    with_broker(test, registration=mode)


@run_with(registration="invitation")
async def test_an_invitation_for_one_is_good_once_and_its_user_stays(broker: Broker) -> None:
    wish = await invite(broker, "unique")
    assert await come_in(broker, "alice", wish) is NONE
    assert await come_in(broker, "bob", wish) is ProtocolCode.INVITATION_REQUIRED
    await broker.restart()
    for again in (wish, NO_CODE, None):
        assert await come_in(broker, "alice", again) is NONE


@run_with(registration="invitation")
async def test_two_who_come_at_once_with_one_invitation_are_not_both_let_in(broker: Broker) -> None:
    wish = await invite(broker, "unique")
    clients = [broker.peer(name, registration=wish) for name in ("alice", "bob", "carol")]
    for _ in range(4):
        for client in clients:
            for frame in client.dialogue.take_output():
                client.events.messages_received([frame])
        await broker.core.settle()
        for client in clients:
            frames, client.wire.sent = client.wire.sent, []
            client.said += [s for f in frames if (s := client.dialogue.receive(f)) is not None]
    results = sorted(client.said[0].result for client in clients)
    assert results == [NONE, *[ProtocolCode.INVITATION_REQUIRED] * 2]


@run_with(registration="invitation")
async def test_an_invitation_for_many_ends_when_it_expires(broker: Broker) -> None:
    wish = await invite(broker, "multi", broker.core.clock.now_ms() + 60_000)
    for name in ("alice", "bob"):
        assert await come_in(broker, name, wish) is NONE
    broker.core.clock.advance(61.0)
    assert await come_in(broker, "carol", wish) is ProtocolCode.EXPIRED


# Administrators ----------------------------------------------------------------------------------


async def administer(broker: Broker, user: str, content: AdminContent) -> AdminResponse:
    """Ask as an administrator, on a connection of its own."""
    visitor = await broker.visit(sign_admin_request(content, identity(f"user {user}")))
    (response,) = visitor.said
    assert isinstance(response, AdminResponse)
    assert visitor.wire.closed == (1_000, "NoError")
    return response


def key(user: str) -> bytes:
    return identity(f"user {user}").public_key


@run_with(registration="invitation")
async def test_administrators_add_list_and_remove_users(broker: Broker) -> None:
    assert await come_in(broker, "root", await invite(broker, "admin")) is NONE
    added = await administer(broker, "root", AddUser(key("alice"), False))
    assert (added.result, added.content) == (NONE, AdminEmpty())
    for user in ("alice", "root"):
        again = await administer(broker, "root", AddUser(key(user), False))
        assert (again.result, again.content) == (ProtocolCode.ALREADY_EXISTS, AdminEmpty())
    listed = await administer(broker, "root", ListUsers(False))
    assert listed.content == Users([key("alice")])
    listed = await administer(broker, "root", ListUsers(True))
    assert listed.content == Users([key("root")])
    client = await broker.client("alice")
    removed = await administer(broker, "root", DelUser(key("alice")))
    assert removed.result == NONE
    await broker.core.settle()
    assert client.wire.closed == (4_007, "AccessDenied")
    again = await administer(broker, "root", DelUser(key("alice")))
    assert again.result == ProtocolCode.NOT_FOUND
    assert await come_in(broker, "alice", NO_CODE) is ProtocolCode.INVITATION_REQUIRED


@run_with(registration="invitation")
async def test_administrators_make_and_list_invitations(broker: Broker) -> None:
    await come_in(broker, "root", await invite(broker, "setup"))
    expiry = commit_timestamp(broker.core.clock.now_ms() / 1_000 + 3_600)
    code = MultiCode(b"m" * 32)
    made = await administer(broker, "root", AddInvitation(code, expiry, "for all", False))
    assert made.content == Invitation(broker.context.bootstrap(), b"m" * 32, None, None)
    code_for_one = UniqueCode(b"u" * 32)
    await administer(broker, "root", AddInvitation(code_for_one, 0, None, False))
    listed = await administer(broker, "root", ListInvitations(False, False, True))
    assert listed.content == Invitations([(code, expiry, "for all")])
    listed = await administer(broker, "root", ListInvitations(True, True, False))
    assert listed.content == Invitations([(code_for_one, 0, None)])
    listed = await administer(broker, "root", ListInvitations(False, False, False))
    assert listed.content == Invitations([(code, expiry, "for all"), (code_for_one, 0, None)])
    assert await come_in(broker, "alice", Wish(b"u" * 32)) is NONE


@run_with(registration="open")
async def test_where_everybody_may_register_an_invitation_counts_as_well(broker: Broker) -> None:
    results: dict[InvitationKind, ProtocolCode]
    results = {"unique": ProtocolCode.ACCESS_DENIED, "admin": NONE}
    for kind, result in results.items():
        wish = await invite(broker, kind)
        assert await come_in(broker, kind, wish) is NONE
        assert (await administer(broker, kind, ListUsers(True))).result == result
        assert await come_in(broker, f"{kind} again", wish) is NONE
    late = await invite(broker, "admin", expires_at=1)
    assert await come_in(broker, "late", late) is NONE
    listed = await administer(broker, "admin", ListUsers(True))
    assert listed.content == Users([key("admin")])


@pytest.mark.parametrize(("expires_at", "expiry"), [(1, 1), (2**63 - 1, 2**32 - 1)])
def test_an_expiry_that_messages_cannot_say_is_listed_as_the_nearest_one(
    expires_at: int, expiry: int
) -> None:
    async def test(broker: Broker) -> None:
        await come_in(broker, "root", await invite(broker, "admin"))
        wish = await invite(broker, "unique", expires_at)
        assert wish.code is not None
        listed = await administer(broker, "root", ListInvitations(True, True, True))
        assert listed.content == Invitations([(UniqueCode(wish.code), expiry, None)])

    with_broker(test, registration="invitation")


@run_with(registration="invitation")
async def test_nobody_else_administers_and_no_user_is_made_without_a_verifier(
    broker: Broker,
) -> None:
    await come_in(broker, "root", await invite(broker, "admin"))
    await broker.client("root")
    refused = await administer(broker, "alice", ListUsers(True))
    assert (refused.result, refused.content) == (ProtocolCode.ACCESS_DENIED, AdminEmpty())
    made = await administer(broker, "root", CreateUser())
    assert (made.result, made.content) == (ProtocolCode.OTHER_ERROR, AdminEmpty())


async def test_who_has_come_in_is_served(broker: Broker) -> None:
    client = await broker.client()
    assert (await client.ask(INNER, pin()))[0][0] == ResultCode.OK
