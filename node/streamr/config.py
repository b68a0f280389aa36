"""Tables of the `streamr` listener."""

from typing import Annotated

from msgspec import Meta, Struct

from rillnode.node.config.kinds import KeyHex, Name


class ApiKeyTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A key that Streamr clients log in with in place of an Ethereum key.

    `rillnode apikey new NAME` makes one and shows it once. Grants call its holder `apikey:NAME`.

    Attributes:
        name: Who holds the key.
        hash: SHA-256 of the key, in hexadecimal.
    """

    name: Annotated[Name, Meta(examples=["dashboard"])]
    hash: Annotated[KeyHex, Meta(examples=["00" * 32])]
