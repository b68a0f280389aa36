"""The users' actor: who is registered, who is invited, and what administrators ask.

A user is registered once, with a code where the node asks for one; from then on its key is enough.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, assert_never

from rillnode.actors.engine.system import Cell
from rillnode.actors.nextgraph.context import BrokerContext
from rillnode.actors.nextgraph.errands import Errand, Found, Steps, anew
from rillnode.actors.nextgraph.news import NewsActor
from rillnode.actors.nextgraph.records import (
    InvitationKind,
    InvitationRecord,
    User,
    kind_of,
    name_of,
    pack,
    unpack,
)
from rillnode.actors.storage import GetRecord, ListRecords, Operation, PutRecords
from rillnode.codecs.nextgraph.admin import (
    AddInvitation,
    AddUser,
    AdminEmpty,
    AdminRequest,
    AdminResponse,
    CreateUser,
    DelUser,
    InvitationCode,
    Invitations,
    ListInvitations,
    ListUsers,
    Users,
)
from rillnode.codecs.nextgraph.bootstrap import Invitation
from rillnode.codecs.nextgraph.commits import TIMESTAMP_EPOCH_SECONDS
from rillnode.codecs.nextgraph.results import ProtocolCode
from rillnode.codecs.nextgraph.start import Registration

LISTED_MAX: Final = 10_000
"""Users or invitations in one answer."""

_MINUTE_MS: Final = 60_000

Answered = AdminEmpty | Users | Invitations | Invitation


@dataclass(slots=True, eq=False)
class Admission(Errand):
    """May a client that has proved to speak for `user` come in? Result: `code`."""

    user: bytes = b""
    registration: Registration | None = None
    code: ProtocolCode = ProtocolCode.BROKER_ERROR


@dataclass(slots=True, eq=False)
class Administration(Errand):
    """What an administrator asks, its signature checked; result: `response`."""

    request: AdminRequest | None = None
    response: AdminResponse | None = None


@dataclass(slots=True, eq=False)
class Invite(Errand):
    """Make an invitation; result: `invitation`. `expires_at` is in ms since 1970, 0 is never."""

    kind: InvitationKind = "unique"
    expires_at: int = 0
    memo: str | None = None
    invitation: Invitation | None = None


@dataclass(frozen=True, slots=True)
class Expelled:
    """To connections: this user is registered no longer."""

    user: bytes


class UsersActor(NewsActor):
    """One per broker."""

    followed = "user"
    essential = True

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context.streams.store)
        self._context = context

    def handle(
        self, message: Admission | Administration | Invite | Operation, sender: Cell | None
    ) -> None:
        """Take clients at the door, and administrators."""
        match message:
            case Admission():
                self.in_order(self._admit(message), message.fail)
            case Administration():
                self.in_order(self._administer(message), message.fail)
            case Invite():
                self.in_order(self._invite(message), message.fail)
            case Operation():
                self.complete(message)
            case _:
                assert_never(message)

    def heard(self, name: str, value: bytes | None) -> None:
        """Disconnect a user that was removed at another node."""
        if value is None:
            self._disconnect(bytes.fromhex(name))

    # At the door -----------------------------------------------------------------------------

    def _admit(self, admission: Admission) -> Steps:
        verdict = partial(self._verdict, admission.user, admission.registration)
        admission.code = yield from anew(verdict)
        admission.done()

    def _verdict(self, user: bytes, registration: Registration | None) -> Found[ProtocolCode]:
        mode = self._context.registration
        if (yield from self._user(user)) is not None:
            return ProtocolCode.NO_ERROR
        if mode == "open":
            yield (PutRecords(records=[self._registered(user, admin=False)]),)
            return ProtocolCode.NO_ERROR
        if mode == "closed" or registration is None:
            return ProtocolCode.ACCESS_DENIED
        if registration.code is None:
            return ProtocolCode.INVITATION_REQUIRED
        return (yield from self._redeem(user, registration.code))

    def _redeem(self, user: bytes, secret: bytes) -> Found[ProtocolCode]:
        get = GetRecord(key=name_of("invitation", secret))
        yield (get,)
        if get.value is None:
            return ProtocolCode.INVITATION_REQUIRED
        invitation = unpack(get.value, InvitationRecord)
        if 0 < invitation.expires_at <= self._context.streams.clock.now_ms():
            return ProtocolCode.EXPIRED
        records = [self._registered(user, admin=invitation.kind in ("admin", "setup"))]
        if invitation.kind != "multi":
            records.append((get.key, None))
        # At another node somebody else may bring it.
        yield (PutRecords(records=records, seen=[(get.key, get.version)]),)
        return ProtocolCode.NO_ERROR

    def _user(self, user: bytes) -> Found[User | None]:
        get = GetRecord(key=name_of("user", user))
        yield (get,)
        return None if get.value is None else unpack(get.value, User)

    def _registered(self, user: bytes, *, admin: bool) -> tuple[str, bytes | None]:
        now_ms = self._context.streams.clock.now_ms()
        return name_of("user", user), pack(User(admin=admin, registered_at=now_ms))

    # Invitations -----------------------------------------------------------------------------

    def _invite(self, invite: Invite) -> Steps:
        secret = self._context.streams.entropy(32)
        record = InvitationRecord(kind=invite.kind, expires_at=invite.expires_at, memo=invite.memo)
        yield from self._put_invitation(secret, record)
        invite.invitation = self._invitation(secret)
        invite.done()

    def _put_invitation(self, secret: bytes, record: InvitationRecord) -> Steps:
        yield (PutRecords(records=[(name_of("invitation", secret), pack(record))]),)

    def _invitation(self, secret: bytes) -> Invitation:
        return Invitation(self._context.bootstrap(), secret, None, None)

    # Administrators --------------------------------------------------------------------------

    def _administer(self, asked: Administration) -> Steps:
        request = asked.request
        assert request is not None
        admin = yield from self._user(request.admin_user)
        result: Answered | ProtocolCode = ProtocolCode.ACCESS_DENIED
        if admin is not None and admin.admin:
            result = yield from self._carry_out(request)
        if isinstance(result, ProtocolCode):
            asked.response = AdminResponse(request.id, result, AdminEmpty())
        else:
            asked.response = AdminResponse(request.id, ProtocolCode.NO_ERROR, result)
        asked.done()

    def _carry_out(self, request: AdminRequest) -> Found[Answered | ProtocolCode]:
        match request.content:
            case AddUser(user=user, is_admin=is_admin):
                yield (PutRecords(records=[self._registered(user, admin=is_admin)]),)
                return AdminEmpty()
            case DelUser(user=user):
                return (yield from self._expel(user))
            case ListUsers(admins=admins):
                users = yield from self._list("user", lambda v: unpack(v, User).admin == admins)
                return Users([user for user, _ in users])
            case ListInvitations() as content:
                return (yield from self._list_invitations(content))
            case AddInvitation(invite_code=code, expiry=expiry, memo=memo):
                expires_at = _expires_at(expiry)
                record = InvitationRecord(kind=kind_of(code), expires_at=expires_at, memo=memo)
                yield from self._put_invitation(code.secret, record)
                return self._invitation(code.secret)
            case CreateUser():
                # Its key would be for a verifier here to use, and there is none.
                return ProtocolCode.OTHER_ERROR

    def _expel(self, user: bytes) -> Found[Answered | ProtocolCode]:
        if (yield from self._user(user)) is None:
            return ProtocolCode.NOT_FOUND
        yield (PutRecords(records=[(name_of("user", user), None)]),)
        self._disconnect(user)
        return AdminEmpty()

    def _disconnect(self, user: bytes) -> None:
        # All are told: one may have been let in that has not heard of it yet.
        for connection in self._context.connections:
            self.system.post(connection, Expelled(user))

    def _list_invitations(self, content: ListInvitations) -> Found[Invitations]:
        wanted: set[InvitationKind] = set()
        wanted.update(("admin", "setup") if content.admin else ())
        wanted.update(("unique",) if content.unique else ())
        wanted.update(("multi",) if content.multi else ())
        rows: list[tuple[InvitationCode, int, str | None]] = []
        for secret, value in (yield from self._list("invitation", lambda _: True)):
            record = unpack(value, InvitationRecord)
            if record.kind in wanted:
                rows.append((record.code(secret), _expiry(record.expires_at), record.memo))
        return Invitations(rows)

    def _list(
        self, family: str, wanted: Callable[[bytes], bool]
    ) -> Found[list[tuple[bytes, bytes]]]:
        """Key and value of records of a family, each named by one key."""
        found: list[tuple[bytes, bytes]] = []
        prefix, after = name_of(family, ""), ""
        while len(found) < LISTED_MAX:
            listing = ListRecords(prefix=prefix, after=after)
            yield (listing,)
            for name, value in listing.records:
                if wanted(value):
                    found.append((bytes.fromhex(name.removeprefix(prefix)), value))
            if len(listing.records) < listing.limit:
                break
            after = listing.records[-1][0]
        return found[:LISTED_MAX]


def _expires_at(expiry: int) -> int:
    """Milliseconds since 1970 of an expiry as messages have it."""
    return expiry and TIMESTAMP_EPOCH_SECONDS * 1_000 + expiry * _MINUTE_MS


def _expiry(expires_at: int) -> int:
    return expires_at and max(1, (expires_at - TIMESTAMP_EPOCH_SECONDS * 1_000) // _MINUTE_MS)
