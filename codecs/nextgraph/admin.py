"""The admin protocol: one signed request on a connection of its own, and its answer.

Source: nextgraph-rs 9ea23f60, engine/net/src/types.rs and actors/admin.
"""

from typing import Annotated, Final

from msgspec import Struct

from rillnode.codecs.bare import I64, U16, U32, Codec
from rillnode.codecs.keys import Identity, verify
from rillnode.codecs.nextgraph.bootstrap import Invitation
from rillnode.codecs.nextgraph.types import V0, PublicKey, Signature, SymmetricKey


class UniqueCode(Struct):
    """Registers one user."""

    secret: SymmetricKey


class AdminCode(Struct):
    """Registers an administrator."""

    secret: SymmetricKey


class MultiCode(Struct):
    """Registers any number of users."""

    secret: SymmetricKey


class SetupCode(Struct):
    """Registers the first administrator of a new broker."""

    secret: SymmetricKey


InvitationCode = UniqueCode | AdminCode | MultiCode | SetupCode


class AddUser(Struct):
    """Register a user."""

    user: PublicKey
    is_admin: bool


class DelUser(Struct):
    """Remove a user."""

    user: PublicKey


class ListUsers(Struct):
    """List the administrators, or all others."""

    admins: bool


class ListInvitations(Struct):
    """List invitations of some kinds; of all where none is named."""

    admin: bool
    unique: bool
    multi: bool


class AddInvitation(Struct):
    """Make an invitation; `expiry` counts as commits' timestamps do, 0 is never."""

    invite_code: InvitationCode
    expiry: U32
    memo: str | None
    tos_url: bool


class CreateUser(Struct):
    """Make a user with a key of the broker's choice."""


AdminContent = (
    Annotated[AddUser, V0]
    | Annotated[DelUser, V0]
    | Annotated[ListUsers, V0]
    | Annotated[ListInvitations, V0]
    | Annotated[AddInvitation, V0]
    | Annotated[CreateUser, V0]
)


class AdminRequest(Struct):
    """A signed request of an administrator."""

    id: I64
    content: AdminContent
    sig: Signature
    admin_user: PublicKey
    padding: bytes = b""


class AdminEmpty(Struct):
    """Nothing but the result."""


class Users(Struct):
    """Users' keys."""

    users: list[PublicKey]


class Invitations(Struct):
    """Invitations as (code, expiry, memo)."""

    invitations: list[tuple[InvitationCode, U32, str | None]]


class UserId(Struct):
    """The key of a user that was made."""

    user: PublicKey


class AdminResponse(Struct):
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
