import pytest
from msgspec.structs import replace

from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.message import decode_message, encode_message
from rillnode.codecs.streamr.signing import (
    Verdict,
    sign_message,
    signed_legacy_text,
    signed_specification_text,
    signed_text,
    verify_message,
)
from rillnode.codecs.streamr.stream_message import (
    MessageId,
    MessageRef,
    SignatureType,
    StreamMessage,
)
from streamr_keys_support import PUBLISHER, STRANGER

MESSAGE = StreamMessage(
    id=MessageId("stream", 7, 1000, 2, PUBLISHER.address, "chain"),
    content='{"a":1}',
    previous=MessageRef(900, 1),
)
SIGNED = sign_message(MESSAGE, PUBLISHER)
LOWER = PUBLISHER.address.lower()


def test_signed_texts_have_their_fields_in_order() -> None:
    assert signed_text(MESSAGE) == f'stream710002{LOWER}chain9001{{"a":1}}'
    assert signed_legacy_text(MESSAGE) == f'stream1000{LOWER}{{"a":1}}'
    assert signed_specification_text(MESSAGE) == f'stream71000{LOWER}{{"a":1}}'


def test_absent_predecessor_is_nothing_and_absent_sequence_null() -> None:
    assert signed_text(replace(MESSAGE, previous=None)) == f'stream710002{LOWER}chain{{"a":1}}'
    message = replace(MESSAGE, previous=MessageRef(900, None))
    assert signed_text(message) == f'stream710002{LOWER}chain900null{{"a":1}}'


def test_new_group_key_is_signed_as_it_is_written() -> None:
    message = replace(MESSAGE, new_group_key='[ "k","aa"]')
    assert signed_text(message).endswith('{"a":1}[ "k","aa"]')


@pytest.mark.parametrize("version", [30, 31, 32])
def test_signature_holds_in_every_version(version: int) -> None:
    assert verify_message(decode_message(encode_message(SIGNED, version))) is Verdict.VALID


@pytest.mark.parametrize(
    "changed",
    [
        replace(SIGNED, content='{"a":2}'),
        replace(SIGNED, previous=None),
        replace(SIGNED, new_group_key='["k","aa"]'),
        replace(SIGNED, id=SIGNED.id._replace(partition=8)),
        replace(SIGNED, id=SIGNED.id._replace(sequence=3)),
        replace(SIGNED, id=SIGNED.id._replace(publisher_id=STRANGER.address)),
        replace(SIGNED, signature_type=SignatureType.ETH_LEGACY),
    ],
)
def test_change_is_found(changed: StreamMessage) -> None:
    assert verify_message(changed) is Verdict.FORGED


def test_publisher_is_compared_without_case() -> None:
    for publisher_id in (LOWER, "0X" + LOWER[2:].upper()):
        message = replace(SIGNED, id=SIGNED.id._replace(publisher_id=publisher_id))
        assert verify_message(message) is Verdict.VALID


def test_legacy_signature_holds_with_and_without_partition() -> None:
    released = sign_message(MESSAGE, PUBLISHER, SignatureType.ETH_LEGACY)
    assert released.signature == PUBLISHER.sign(signed_legacy_text(MESSAGE).encode())
    assert verify_message(released) is Verdict.VALID
    text = signed_specification_text(MESSAGE).encode()
    assert verify_message(replace(released, signature=PUBLISHER.sign(text))) is Verdict.VALID
    assert verify_message(replace(released, signature=SIGNED.signature)) is Verdict.FORGED


@pytest.mark.parametrize(
    ("message", "verdict"),
    [
        (MESSAGE, Verdict.UNSIGNED),
        (replace(SIGNED, signature_type=3), Verdict.UNKNOWN_TYPE),
        (replace(SIGNED, signature=None), Verdict.MALFORMED),
        (replace(SIGNED, signature="0xzz"), Verdict.MALFORMED),
        (replace(SIGNED, content="\ud800"), Verdict.MALFORMED),
        (replace(SIGNED, id=SIGNED.id._replace(publisher_id="me")), Verdict.MALFORMED),
    ],
)
def test_what_is_no_signature(message: StreamMessage, verdict: Verdict) -> None:
    assert verify_message(message) is verdict


@pytest.mark.parametrize(
    ("message", "signature_type", "code"),
    [
        (
            replace(MESSAGE, id=MESSAGE.id._replace(publisher_id=STRANGER.address)),
            SignatureType.ETH,
            "signature.publisher",
        ),
        (MESSAGE, SignatureType.NONE, "signature.type"),
        (replace(MESSAGE, content="\ud800"), SignatureType.ETH, "codec.utf8"),
    ],
)
def test_what_cannot_be_signed(
    message: StreamMessage, signature_type: SignatureType, code: str
) -> None:
    with pytest.raises(CodecError) as caught:
        sign_message(message, PUBLISHER, signature_type)
    assert caught.value.code == code


def test_clients_before_version_4_tell_another_length_of_text_that_is_not_ascii() -> None:
    # Written by streamr-client 3.1.3 (ethers 4.0.49), which counts UTF-16 units.
    text = (
        '[31,["1wZ29yNNZ9Z8cntsZdbArg",0,1795303655191,0,'
        '"0xb8CE9ab6943e0eCED004cDe8e3bBed6568B2Fa01","mJ83jXroocNIoXIQSjSe"],[1795303654169,0],27,'
        '0,"{\\"i\\":1,\\"text\\":\\"h\u00e4 \u20ac\\",\\"f\\":1.5,\\"nul\\":null}",2,'
        '"0xa0f1c700a76ced469781e22bbccc46efb4c41e1e5e854869fe7c00815f72e850'
        '3972da687eabafebf284a9a6c6899b27b3ee2378519fc776f3025ac822e23caa1c"]'
    )
    written = decode_message(text)
    assert verify_message(written) is Verdict.VALID
    changed = replace(written, content=written.content.replace("1.5", "2.5"))
    assert verify_message(changed) is Verdict.FORGED
