"""The admin protocol: one signed request on a connection of its own, and its answer.

Source: nextgraph-rs 9ea23f60, engine/net/src/types.rs and actors/admin.
"""

from dataclasses import dataclass
from typing import Annotated, Final

from rillnode.codecs.bare import I64, U16, U32, Codec
from rillnode.codecs.keys import Identity, verify
from rillnode.codecs.nextgraph.bootstrap import Invitation
from rillnode.codecs.nextgraph.types import V0, PublicKey, Signature, SymmetricKey


@dataclass(slots=True)
class UniqueCode:
    """Registers one user."""

    secret: SymmetricKey


@dataclass(slots=True)
class AdminCode:
    """Registers an administrator."""

    secret: SymmetricKey


@dataclass(slots=True)
class MultiCode:
    """Registers any number of users."""

    secret: SymmetricKey


@dataclass(slots=True)
class SetupCode:
    """Registers the first administrator of a new broker."""

    secret: SymmetricKey


InvitationCode = UniqueCode | AdminCode | MultiCode | SetupCode


@dataclass(slots=True)
class AddUser:
    """Register a user."""

    user: PublicKey
    is_admin: bool


@dataclass(slots=True)
class DelUser:
    """Remove a user."""

    user: PublicKey


@dataclass(slots=True)
class ListUsers:
    """List the administrators, or all others."""

    admins: bool


@dataclass(slots=True)
class ListInvitations:
    """List invitations of some kinds."""

    admin: bool
    unique: bool
    multi: bool


@dataclass(slots=True)
class AddInvitation:
    """Make an invitation; `expiry` counts as commits' timestamps do, 0 is never."""

    invite_code: InvitationCode
    expiry: U32
    memo: str | None
    tos_url: bool


@dataclass(slots=True)
class CreateUser:
    """Make a user with a key of the broker's choice."""


AdminContent = (
    Annotated[AddUser, V0]
    | Annotated[DelUser, V0]
    | Annotated[ListUsers, V0]
    | Annotated[ListInvitations, V0]
    | Annotated[AddInvitation, V0]
    | Annotated[CreateUser, V0]
)


@dataclass(slots=True)
class AdminRequest:
    """A signed request of an administrator."""

    id: I64
    content: AdminContent
    sig: Signature
    admin_user: PublicKey
    padding: bytes = b""


@dataclass(slots=True)
class AdminEmpty:
    """Nothing but the result."""


@dataclass(slots=True)
class Users:
    """Users' keys."""

    users: list[PublicKey]


@dataclass(slots=True)
class Invitations:
    """Invitations as (code, expiry, memo)."""

    invitations: list[tuple[InvitationCode, U32, str | None]]


@dataclass(slots=True)
class UserId:
    """The key of a user that was made."""

    user: PublicKey


@dataclass(slots=True)
class AdminResponse:
    """The answer; `result` is a `results.ProtocolCode`."""

    id: I64
    result: U16
    content: AdminEmpty | Users | Invitations | Annotated[Invitation, V0] | UserId
    padding: bytes = b""


_CONTENT: Final[Codec[AdminContent]] = Codec(AdminContent)


def sign_admin_request(content: AdminContent, admin: Identity) -> AdminRequest:
    """Ask as an administrator."""
    return AdminRequest(0, content, admin.sign(_CONTENT.encode(content)), admin.public_key)


def admin_request_holds(request: AdminRequest) -> bool:
    """Whether the request is signed by who it is from; not whether that is an administrator."""
    return verify(request.admin_user, _CONTENT.encode(request.content), request.sig)
