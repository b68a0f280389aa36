"""The opening of rillnode's own link: Noise XX whose two sides prove Ed25519 identities.

    initiator                                responder
      "rillnode" version u8 suite u8
      frame: e                           ->
                                         <-  frame: e, ee, s, es, proof
      frame: s, se, proof                ->
                                         <-  record: verdict u8 (0: welcome, 1: unknown identity)

A frame is a u16 big-endian length and that many bytes; a record is a frame that holds sealed
bytes. The first ten bytes are the prologue. A proof is an Ed25519 public key (32 bytes) and its
signature (64) over the role, the sender's static key and Noise's hash before the message, so that
it fits this handshake only; the static key is the X25519 form of that same key.

An initiator that expects a node shows its own identity to no other, and the responder takes
nothing before it has accepted the initiator's.
"""

from collections.abc import Callable, Generator
from typing import Final, NamedTuple

from rillnode.codecs.errors import CodecError, HandshakeError
from rillnode.codecs.framing import u16_frame
from rillnode.codecs.keys import (
    PUBLIC_KEY_BYTES,
    SIGNATURE_BYTES,
    Identity,
    identity_text,
    parse_identities,
    verify,
    x25519_form,
)
from rillnode.codecs.noise.cipher import TAG_BYTES, CipherState, Suite
from rillnode.codecs.noise.handshake import DH_BYTES, NoiseHandshake

MAGIC: Final = b"rillnode"
VERSION: Final = 1
PREAMBLE_BYTES: Final = len(MAGIC) + 2

_NAMES: Final = {
    Suite.AESGCM_SHA256: "Noise_XX_25519_AESGCM_SHA256",
    Suite.CHACHAPOLY_SHA256: "Noise_XX_25519_ChaChaPoly_SHA256",
}
_PROOF_BYTES: Final = PUBLIC_KEY_BYTES + SIGNATURE_BYTES
_MESSAGE_1_BYTES: Final = DH_BYTES
_MESSAGE_2_BYTES: Final = DH_BYTES + DH_BYTES + TAG_BYTES + _PROOF_BYTES + TAG_BYTES
_MESSAGE_3_BYTES: Final = DH_BYTES + TAG_BYTES + _PROOF_BYTES + TAG_BYTES
_WELCOME: Final = b"\x00"
_UNKNOWN: Final = b"\x01"
_ROLES: Final = {True: b"rillnode link 1 initiator\0", False: b"rillnode link 1 responder\0"}


class Session(NamedTuple):
    """The outcome of a handshake: keys and identities."""

    sealer: CipherState
    opener: CipherState
    remote_identity: str


Steps = Generator[int, bytes, Session]
"""A handshake: asks for a number of bytes, is sent exactly these, ends with the session."""


class Local(NamedTuple):
    """This side of a handshake, and where it puts what it wants sent."""

    identity: Identity
    output: bytearray
    ephemeral: bytes | None
    rekey_records: int

    def send(self, content: bytes) -> None:
        """Send one frame."""
        self.output.extend(u16_frame(content))

    def handshake(self, suite: Suite, *, initiator: bool) -> NoiseHandshake:
        """Begin."""
        return NoiseHandshake(
            _NAMES[suite],
            initiator=initiator,
            prologue=_preamble(suite),
            static=self.identity.noise_static,
            ephemeral=self.ephemeral,
        )

    def session(self, handshake: NoiseHandshake, suite: Suite, remote: bytes) -> Session:
        """Take what remains of a finished handshake with the identity `remote`."""
        assert handshake.keys is not None
        to_responder, to_initiator = (
            CipherState(key, suite, rekey_records=self.rekey_records) for key in handshake.keys
        )
        identity = identity_text(remote)
        if handshake.initiator:
            return Session(to_responder, to_initiator, identity)
        return Session(to_initiator, to_responder, identity)


def initiate(local: Local, node_identity: str | None, suite: Suite) -> Steps:
    """The side that dials; any node is the right one where none is expected."""
    expected = None if node_identity is None else parse_identities(node_identity)
    handshake = local.handshake(suite, initiator=True)
    local.output.extend(_preamble(suite))
    local.send(handshake.write(b""))

    said = handshake.hash
    remote = _proved(handshake, said, handshake.read((yield from _frame(_MESSAGE_2_BYTES))))
    if expected is not None and remote not in expected:
        wanted = " or ".join(one.hex() for one in expected)
        raise HandshakeError(
            "noise.wrong_node",
            f"the node there is {remote.hex()}, not {wanted}: check the address and the "
            "node's identity; if both are right, something sits between",
        )
    local.send(handshake.write(_proof(local.identity, handshake)))

    session = local.session(handshake, suite, remote)
    verdict = session.opener.open((yield from _frame(len(_WELCOME) + TAG_BYTES)))
    if verdict != _WELCOME:
        raise HandshakeError(
            "noise.unknown_identity",
            f"the node does not know {local.identity.public_hex}: add a [[grant]] with "
            f'who = "noise:{local.identity.public_hex}" to its configuration',
        )
    return session


def respond(local: Local, accept: Callable[[str], bool]) -> Steps:
    """The side that listens; `accept` says whether it knows a proved identity (hex)."""
    suite = _parse_preamble((yield PREAMBLE_BYTES))
    handshake = local.handshake(suite, initiator=False)
    handshake.read((yield from _frame(_MESSAGE_1_BYTES)))
    local.send(handshake.write(_proof(local.identity, handshake)))

    said = handshake.hash
    remote = _proved(handshake, said, handshake.read((yield from _frame(_MESSAGE_3_BYTES))))
    session = local.session(handshake, suite, remote)
    accepted = accept(session.remote_identity)
    local.send(session.sealer.seal(_WELCOME if accepted else _UNKNOWN))
    if not accepted:
        raise HandshakeError(
            "noise.unknown_identity",
            f"no grant names noise:{session.remote_identity}",
            identity=session.remote_identity,
        )
    return session


def _preamble(suite: Suite) -> bytes:
    return MAGIC + bytes((VERSION, suite))


def _parse_preamble(preamble: bytes) -> Suite:
    version, suite = preamble[len(MAGIC) :]
    if not preamble.startswith(MAGIC):
        raise HandshakeError("noise.preamble", "the peer does not speak rillnode's link protocol")
    if version != VERSION:
        raise HandshakeError(
            "noise.version", f"the peer speaks version {version} of the link, this is {VERSION}"
        )
    try:
        return Suite(suite)
    except ValueError:
        raise HandshakeError("noise.suite", f"cipher suite {suite} is unknown") from None


def _frame(size: int) -> Generator[int, bytes, bytes]:
    """Take a frame of exactly `size` bytes: every handshake message has one size only."""
    header = yield 2
    if int.from_bytes(header) != size:
        raise HandshakeError("noise.frame", "the peer does not speak rillnode's link protocol")
    return (yield size)


def _proof(identity: Identity, handshake: NoiseHandshake) -> bytes:
    """What goes into this side's next message."""
    said = _statement(handshake.initiator, handshake.static_public, handshake.hash)
    return identity.public_key + identity.sign(said)


def _proved(handshake: NoiseHandshake, said_hash: bytes, proof: bytes) -> bytes:
    """Check the peer's proof; return its public key.

    `said_hash` is Noise's hash before the message that the proof came in.
    """
    public_key, signature = proof[:PUBLIC_KEY_BYTES], proof[PUBLIC_KEY_BYTES:]
    said = _statement(not handshake.initiator, handshake.remote_static, said_hash)
    if not verify(public_key, said, signature):
        raise HandshakeError("noise.proof", "the peer does not hold the identity that it claims")
    try:
        same_key = x25519_form(public_key) == handshake.remote_static
    except CodecError:
        same_key = False
    if not same_key:
        raise HandshakeError("noise.proof", "the peer's static key is not that of its identity")
    return public_key


def _statement(initiator: bool, static_public: bytes, said_hash: bytes) -> bytes:
    return _ROLES[initiator] + static_public + said_hash
