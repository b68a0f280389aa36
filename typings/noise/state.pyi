from noise.backends.default.keypairs import KeyPair25519

class CipherState:
    k: bytes

class SymmetricState:
    h: bytes

class HandshakeState:
    symmetric_state: SymmetricState
    e: KeyPair25519
    rs: KeyPair25519
    def write_message(
        self, payload: bytes | bytearray, message_buffer: bytearray
    ) -> tuple[CipherState, CipherState] | None: ...
    def read_message(
        self, message: bytes | bytearray, payload_buffer: bytearray
    ) -> tuple[CipherState, CipherState] | None: ...
