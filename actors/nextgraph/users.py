"""The users' actor: who is registered, who is invited, and what administrators ask.

A user is registered once, with a code where the node asks for one; from then on its key is enough.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, assert_never, get_args

from thespian.actors import ActorAddress

from rillnode.actors.log import GetRecord, ListRecords, PutRecords
from rillnode.actors.nextgraph.actor import Question, anew
from rillnode.actors.nextgraph.news import News, NewsActor
from rillnode.actors.nextgraph.records import (
    InvitationKind,
    InvitationRecord,
    User,
    kind_of,
    name_of,
    pack,
    unpack,
)
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
_EXPIRY_MAX: Final = 2**32 - 1

Answered = AdminEmpty | Users | Invitations | Invitation


@dataclass(frozen=True, slots=True)
class Admission(Question[ProtocolCode]):
    """May a client that has proved to speak for `user` come in?"""

    user: bytes
    registration: Registration | None


@dataclass(frozen=True, slots=True)
class Administration(Question[AdminResponse]):
    """An administrator's request, its signature checked."""

    request: AdminRequest


@dataclass(frozen=True, slots=True)
class Invite(Question[Invitation]):
    """Make an invitation; `expires_at` is in ms since 1970, 0 is never."""

    kind: InvitationKind = "unique"
    expires_at: int = 0
    memo: str | None = None


@dataclass(frozen=True, slots=True)
class Expelled:
    """To connections: these users are registered no longer."""

    users: frozenset[bytes]

    def merged(self, later: "Expelled") -> "Expelled":
        """All of them."""
        return Expelled(self.users | later.users)


class UsersActor(NewsActor):
    """The users and invitations of a broker."""

    followed = "user"
    essential = True

    def started(self) -> None:
        """Hear of other nodes' users from now on."""
        self.listen()

    async def handle(
        self, message: Admission | Administration | Invite | News, sender: ActorAddress | None
    ) -> None:
        """Take clients at the door, administrators, and who was removed at another node."""
        match message:
            case Admission():
                await self.reply(sender, anew(partial(self._admit, message)))
            case Administration():
                await self.reply(sender, self._administer(message.request))
            case Invite():
                await self.reply(sender, self._invite(message))
            case News(name=name, value=value):
                if value is None:
                    self._disconnect(bytes.fromhex(name))
            case _:
                assert_never(message)

    # At the door -----------------------------------------------------------------------------

    async def _admit(self, admission: Admission) -> ProtocolCode:
        user, registration = admission.user, admission.registration
        mode = self._context.registration
        if await self._user(user) is not None:
            return ProtocolCode.NO_ERROR
        code = None if registration is None else registration.code
        if mode == "open":
            # Nobody needs a code, but with one a user may become an administrator.
            if code is None or await self._redeem(user, code) is not ProtocolCode.NO_ERROR:
                await self.write(PutRecords(records=[self._registered(user, admin=False)]))
            return ProtocolCode.NO_ERROR
        if mode == "closed" or registration is None:
            return ProtocolCode.ACCESS_DENIED
        return ProtocolCode.INVITATION_REQUIRED if code is None else await self._redeem(user, code)

    async def _redeem(self, user: bytes, secret: bytes) -> ProtocolCode:
        get = GetRecord(key=name_of("invitation", secret))
        await self.read(get)
        if get.value is None:
            return ProtocolCode.INVITATION_REQUIRED
        invitation = unpack(get.value, InvitationRecord)
        if 0 < invitation.expires_at <= self._context.streams.clock.now_ms():
            return ProtocolCode.EXPIRED
        records = [self._registered(user, admin=invitation.kind in ("admin", "setup"))]
        if invitation.kind != "multi":
            records.append((get.key, None))
        # At another node somebody else may bring it.
        await self.write(PutRecords(records=records, seen=[(get.key, get.version)]))
        return ProtocolCode.NO_ERROR

    async def _user(self, user: bytes) -> User | None:
        get = GetRecord(key=name_of("user", user))
        await self.read(get)
        return None if get.value is None else unpack(get.value, User)

    def _registered(self, user: bytes, *, admin: bool) -> tuple[str, bytes | None]:
        now_ms = self._context.streams.clock.now_ms()
        return name_of("user", user), pack(User(admin=admin, registered_at=now_ms))

    # Invitations -----------------------------------------------------------------------------

    async def _invite(self, invite: Invite) -> Invitation:
        secret = self._context.streams.entropy(32)
        record = InvitationRecord(kind=invite.kind, expires_at=invite.expires_at, memo=invite.memo)
        await self._put_invitation(secret, record)
        return self._invitation(secret)

    async def _put_invitation(self, secret: bytes, record: InvitationRecord) -> None:
        await self.write(PutRecords(records=[(name_of("invitation", secret), pack(record))]))

    def _invitation(self, secret: bytes) -> Invitation:
        return Invitation(self._context.bootstrap(), secret, None, None)

    # Administrators --------------------------------------------------------------------------

    async def _administer(self, request: AdminRequest) -> AdminResponse:
        admin = await self._user(request.admin_user)
        result: Answered | ProtocolCode = ProtocolCode.ACCESS_DENIED
        if admin is not None and admin.admin:
            result = await self._administered(request)
        if isinstance(result, ProtocolCode):
            return AdminResponse(request.id, result, AdminEmpty())
        return AdminResponse(request.id, ProtocolCode.NO_ERROR, result)

    async def _administered(self, request: AdminRequest) -> Answered | ProtocolCode:
        match request.content:
            case AddUser(user=user, is_admin=is_admin):
                if await self._user(user) is not None:
                    return ProtocolCode.ALREADY_EXISTS
                await self.write(PutRecords(records=[self._registered(user, admin=is_admin)]))
                return AdminEmpty()
            case DelUser(user=user):
                return await self._expel(user)
            case ListUsers(admins=admins):
                users = await self._list("user", lambda v: unpack(v, User).admin == admins)
                return Users([user for user, _ in users])
            case ListInvitations() as content:
                return await self._list_invitations(content)
            case AddInvitation(invite_code=code, expiry=expiry, memo=memo):
                expires_at = _expires_at(expiry)
                record = InvitationRecord(kind=kind_of(code), expires_at=expires_at, memo=memo)
                await self._put_invitation(code.secret, record)
                return self._invitation(code.secret)
            case CreateUser():
                # Its key would be for a verifier here to use, and there is none.
                return ProtocolCode.OTHER_ERROR

    async def _expel(self, user: bytes) -> Answered | ProtocolCode:
        if await self._user(user) is None:
            return ProtocolCode.NOT_FOUND
        await self.write(PutRecords(records=[(name_of("user", user), None)]))
        self._disconnect(user)
        return AdminEmpty()

    def _disconnect(self, user: bytes) -> None:
        # All are told: one may have been let in that has not heard of it yet.
        for connection in self._context.connections:
            self.system.post(connection, Expelled(frozenset([user])))

    async def _list_invitations(self, content: ListInvitations) -> Invitations:
        wanted: set[InvitationKind] = set()
        wanted.update(("admin", "setup") if content.admin else ())
        wanted.update(("unique",) if content.unique else ())
        wanted.update(("multi",) if content.multi else ())
        if not wanted:  # NextGraph's own tools ask for all so
            wanted.update(get_args(InvitationKind))
        rows: list[tuple[InvitationCode, int, str | None]] = []
        for secret, value in await self._list("invitation", lambda _: True):
            record = unpack(value, InvitationRecord)
            if record.kind in wanted:
                rows.append((record.code(secret), _expiry(record.expires_at), record.memo))
        return Invitations(rows)

    async def _list(
        self, family: str, wanted: Callable[[bytes], bool]
    ) -> list[tuple[bytes, bytes]]:
        """Key and value of records of a family, each named by one key."""
        found: list[tuple[bytes, bytes]] = []
        prefix, after = name_of(family, ""), ""
        while len(found) < LISTED_MAX:
            listing = ListRecords(prefix=prefix, after=after)
            await self.read(listing)
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
    """The expiry that messages have for that; the nearest, where theirs do not reach so far."""
    minutes = (expires_at - TIMESTAMP_EPOCH_SECONDS * 1_000) // _MINUTE_MS
    return expires_at and min(max(1, minutes), _EXPIRY_MAX)
