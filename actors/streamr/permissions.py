"""Streamr's permissions on one stream, and what they are among the grants of its record.

| permission | in `StreamRecord.grants` | what it allows to clients of other protocols |
|---|---|---|
| stream_get | `get` | nothing; here, whoever may do more than create may get |
| stream_publish | `push` | push |
| stream_subscribe | `subscribe`, `pull` | subscribe, pull |
| stream_edit, stream_delete, stream_share | `edit`, `delete`, `share` | nothing |

`admin` stands for all of them; the owner has it. Who has all six without being the owner may not
limit or trim the stream, which Streamr has no words for. A user is an Ethereum address, the name of
an API key, or any other principal as grants name it; a public permission is everybody's.
"""

import hashlib
import re
from collections.abc import Collection
from typing import Final, NamedTuple

from msgspec.structs import replace

from rillnode.actors.core.access import ANONYMOUS, EVERYBODY, Access
from rillnode.actors.log import StreamRecord
from rillnode.actors.streamr.sessions import ETHEREUM
from rillnode.codecs.api_keys import API_KEY
from rillnode.codecs.errors import RequestError
from rillnode.codecs.streamr.limits import STREAMR_INTEGER_MAX, STREAMR_PERMISSIONS_MAX

ADMIN: Final = "admin"

GET: Final = "stream_get"
EDIT: Final = "stream_edit"
DELETE: Final = "stream_delete"
PUBLISH: Final = "stream_publish"
SUBSCRIBE: Final = "stream_subscribe"
SHARE: Final = "stream_share"

_WORDS: Final = {
    GET: ("get",),
    EDIT: ("edit",),
    DELETE: ("delete",),
    PUBLISH: ("push",),
    SUBSCRIBE: ("subscribe", "pull"),
    SHARE: ("share",),
}
OPERATIONS: Final = tuple(_WORDS)

_ADDRESS: Final = re.compile("0x[0-9a-f]{40}")
_PRINCIPAL: Final = re.compile("(?:noise|ockam|nextgraph):[0-9a-f]{64}")
_NAME: Final = re.compile("[A-Za-z0-9._-]{1,64}")


class Permission(NamedTuple):
    """One thing that one user may do; `user` is None for everybody."""

    id: int
    user: str | None
    operation: str


def principal_of(user: str) -> str:
    """Whom a user's text names.

    Raises:
        RequestError: `streamr.user`, nobody.
    """
    lower = user.lower()
    if _ADDRESS.fullmatch(lower):
        return ETHEREUM + lower
    if _PRINCIPAL.fullmatch(user):
        return user
    name = user.removeprefix(API_KEY)
    if _NAME.fullmatch(name):
        return API_KEY + name
    raise RequestError("streamr.user", f"{user[:80]!r} is no user")


def user_of(principal: str) -> str | None:
    """The inverse of `principal_of`; None for everybody."""
    if principal in (EVERYBODY, ANONYMOUS):
        return None
    return principal.removeprefix(ETHEREUM).removeprefix(API_KEY)


def publisher_id_of(principal: str) -> str:
    """What stands as the publisher of a principal's messages.

    An address, or else the hash of the user's name, as released clients have it.
    """
    user = user_of(principal) or ANONYMOUS
    return user if _ADDRESS.fullmatch(user) else hashlib.sha256(user.encode()).hexdigest()


def permissions(record: StreamRecord) -> list[Permission]:
    """The permissions that a stream's own record gives."""
    return [
        _permission(principal, operation)
        for principal, words in record.grants.items()
        for operation in _operations(words)
    ]


def operations(record: StreamRecord, access: Access, principal: str) -> list[str]:
    """All that a principal may do, also by grants for patterns of streams, or as everybody may."""
    words: set[str] = set()
    for who in (principal, EVERYBODY, ANONYMOUS):
        words.update(record.grants.get(who, ()))
        words.update(access.verbs(who, record.name))
    words.discard("create")
    return _operations(words | {"get"}) if words else []


def held(record: StreamRecord, access: Access, principal: str) -> list[Permission]:
    """The same as permissions: those of the record where they are the reason."""
    return [
        _permission(
            next(
                (
                    who
                    for who in (principal, EVERYBODY, ANONYMOUS)
                    if operation in _operations(record.grants.get(who, ()))
                ),
                principal,
            ),
            operation,
        )
        for operation in operations(record, access, principal)
    ]


def allows(record: StreamRecord, access: Access, principal: str, operation: str) -> bool:
    """Whether a principal may do one of OPERATIONS."""
    return operation in operations(record, access, principal)


def grant(record: StreamRecord, principal: str, operation: str) -> StreamRecord:
    """The record with one permission more.

    Raises:
        RequestError: `streamr.permissions`, too many users have some.
    """
    words = record.grants.get(principal, ())
    if len(record.grants) >= STREAMR_PERMISSIONS_MAX and principal not in record.grants:
        text = f"At most {STREAMR_PERMISSIONS_MAX} users may have permissions on one stream"
        raise RequestError("streamr.permissions", text)
    if operation in _operations(words):
        return record
    added = tuple(word for word in _WORDS[operation] if word not in words)
    return replace(record, grants={**record.grants, principal: (*words, *added)})


def granted(principal: str, operation: str) -> Permission:
    """The permission that `grant` gives."""
    return _permission(principal, operation)


def revoke(record: StreamRecord, permission_id: int) -> StreamRecord | None:
    """The record with one permission less; None where it has no such one."""
    for principal, words in record.grants.items():
        held = _operations(words)
        for operation in held:
            if _permission(principal, operation).id == permission_id:
                kept = [word for other in held if other != operation for word in _WORDS[other]]
                grants = {**record.grants, principal: tuple(kept)}
                if not kept:
                    del grants[principal]
                return replace(record, grants=grants)
    return None


def _operations(words: Collection[str]) -> list[str]:
    """What words say, each by itself."""
    return [
        operation for operation, (word, *_) in _WORDS.items() if word in words or ADMIN in words
    ]


def _permission(principal: str, operation: str) -> Permission:
    """A permission's id is made of what it says, so that nothing needs to be kept of it."""
    digest = hashlib.sha256(f"{principal} {operation}".encode()).digest()
    number = int.from_bytes(digest[:8], "big") & STREAMR_INTEGER_MAX
    return Permission(number, user_of(principal), operation)
