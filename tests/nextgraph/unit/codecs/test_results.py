from each_row import each_row
from rillnode.codecs.errors import CodecError
from rillnode.codecs.nextgraph.results import (
    NetCode,
    NextGraphError,
    ProtocolCode,
    ResultCode,
    closing_code,
)


def test_codes_are_as_clients_count_them() -> None:
    assert [int(code) for code in ResultCode] == list(range(30))
    assert [int(code) for code in ProtocolCode] == list(range(37))
    assert [int(code) for code in NetCode] == list(range(1, 11))
    assert int(ResultCode.TOPIC_NOT_FOUND) == 15
    assert int(ProtocolCode.USER_NOT_CONNECTED) == 22


@each_row(
    [
        (ProtocolCode.NO_ERROR, 1000, "NoError"),
        (ProtocolCode.IO_ERROR, 4001, "IoError"),
        (ProtocolCode.ACTOR_ERROR, 4003, "ActorError"),
        (ProtocolCode.INVALID_SIGNATURE, 4005, "InvalidSignature"),
        (ProtocolCode.INVALID_PUBLISHER_ADVERT, 4017, "InvalidPublisherAdvert"),
        (ProtocolCode.MUST_BE_ENCRYPTED, 4030, "MustBeEncrypted"),
        (ProtocolCode.DECRYPTION_ERROR, 4032, "DecryptionError"),
        (ProtocolCode.WHERE_IS_THE_MAGIC, 4034, "WhereIsTheMagic"),
        (NetCode.SERIALIZATION_ERROR, 4954, "SerializationError"),
        (NetCode.CLOSING, 4959, "Closing"),
    ]
)
def test_close_codes_are_as_clients_read_them(
    code: ProtocolCode | NetCode, close_code: int, reason: str
) -> None:
    assert code.close_code == close_code
    assert code.reason == reason
    assert closing_code(close_code) is code


@each_row([0, 999, 1001, 1006, 3999, 4037, 4949, 4960, 65_535])
def test_other_close_codes_say_nothing(close_code: int) -> None:
    assert closing_code(close_code) is None


def test_an_error_says_how_to_close() -> None:
    error = NextGraphError(ProtocolCode.INVALID_NONCE, "text", offset=3)
    assert isinstance(error, CodecError)
    assert error.code == "nextgraph.invalid_nonce"
    assert error.closing.close_code == 4035
    assert error.offset == 3
