from noise.backends.default.ciphers import CryptographyCipher
from noise.backends.default.hashes import Hash

class DefaultNoiseBackend:
    ciphers: dict[str, type[CryptographyCipher]]
    hashes: dict[str, type[Hash]]
