from noise.backends.default.backend import DefaultNoiseBackend
from noise.backends.default.keypairs import KeyPair25519
from noise.state import HandshakeState

class NoiseProtocol:
    prologue: bytes | None
    initiator: bool | None
    keypairs: dict[str, KeyPair25519 | None]
    handshake_state: HandshakeState
    def __init__(self, protocol_name: bytes, backend: DefaultNoiseBackend) -> None: ...
    def validate(self) -> None: ...
    def initialise_handshake_state(self) -> None: ...
