"""Makes what `nsc` makes: an operator, accounts and users of NATS, as signed JSON web tokens.

Sources: NATS documentation, "JWT Authentication" (chain of trust, claims); the form of the files is
that of nats-server's `operator`, `resolver_preload` and of a client's `.creds`.
"""

import base64
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import nkeys  # type: ignore[import-untyped]

_ALL = -1
_ACCOUNT_LIMITS = {
    name: _ALL
    for name in (
        "subs", "data", "payload", "imports", "exports", "conn", "leaf",
        "mem_storage", "disk_storage", "streams", "consumer",
    )
}  # fmt: skip


class Party:
    """Somebody who has a key and signs what others may.

    Attributes:
        public: the public key, as NATS writes it.
        seed: the private one.
    """

    def __init__(self, prefix: int) -> None:
        # The package has no types.
        keys: Any = nkeys
        self.seed: bytes = keys.encode_seed(os.urandom(32), prefix)
        self._pair: Any = keys.from_seed(bytearray(self.seed))
        self.public: str = bytes(self._pair.public_key).decode()

    def token(self, subject: "Party", name: str, claims: dict[str, Any], **more: Any) -> str:
        """What this party says of another one."""
        body: dict[str, Any] = {
            "jti": "", "iat": int(time.time()), "iss": self.public,
            "name": name, "sub": subject.public, "nats": {"version": 2, **claims}, **more,
        }  # fmt: skip
        digest = hashlib.sha256(json.dumps(body).encode()).digest()
        body["jti"] = base64.b32encode(digest).decode().rstrip("=")
        head = _part(json.dumps({"typ": "JWT", "alg": "ed25519-nkey"}).encode())
        text = f"{head}.{_part(json.dumps(body).encode())}"
        return f"{text}.{_part(self._pair.sign(text.encode()))}"


class Operator:
    """An operator with accounts.

    Attributes:
        settings: the lines of a server's configuration that let in users of its accounts.
    """

    def __init__(self, directory: Path, *accounts: "Account") -> None:
        self._party = Party(nkeys.PREFIX_BYTE_OPERATOR)
        file = directory / "operator.jwt"
        file.write_text(self._party.token(self._party, "operator", {"type": "operator"}))
        # JetStream itself needs an account for what the servers tell each other.
        system = Account(jetstream=False)
        preload = "\n".join(
            f"{one.party.public}: {one.token_by(self._party)}" for one in (system, *accounts)
        )
        self.settings = (
            f"operator: {json.dumps(str(file))}",
            f"system_account: {system.party.public}",
            "resolver: MEMORY",
            f"resolver_preload: {{\n{preload}\n}}",
        )


class Account:
    """An account, with JetStream or without."""

    def __init__(self, *, jetstream: bool = True) -> None:
        self.party = Party(nkeys.PREFIX_BYTE_ACCOUNT)
        self._limits = {**_ACCOUNT_LIMITS, "wildcards": True}
        if not jetstream:
            self._limits |= {"mem_storage": 0, "disk_storage": 0}

    def token_by(self, operator: Party) -> str:
        """The operator's token for it."""
        claims = {"type": "account", "limits": self._limits, "default_permissions": {}}
        return operator.token(self.party, "account", claims)

    def credentials(self, file: Path, *, seconds: float | None = None) -> Path:
        """Write the file of a new user, whose token ends after so long."""
        user = Party(nkeys.PREFIX_BYTE_USER)
        limits = {"subs": _ALL, "data": _ALL, "payload": _ALL}
        claims: dict[str, Any] = {"type": "user", "pub": {}, "sub": {}, **limits}
        more = {} if seconds is None else {"exp": int(time.time() + seconds)}
        token = self.party.token(user, "node", claims, **more)
        file.write_text(
            f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n"
            "------END USER NKEY SEED------\n"
        )
        file.chmod(0o600)
        return file


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
