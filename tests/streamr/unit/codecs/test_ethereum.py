import pytest

from each_row import each_row
from rillnode.codecs.errors import CodecError, ConfigError
from rillnode.codecs.streamr.ethereum import (
    EthereumKey,
    checksum_address,
    keccak256,
    parse_address,
    recover_address,
)

ORDER = "fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141"
SECRET = "4c0883a69102937d6231471b5dbb6204fe5129617082792ae468d01a3f362318"
KEY = EthereumKey.from_hex(SECRET)


def test_keccak_is_not_sha3() -> None:
    # Keccak's and Ethereum's hash of nothing.
    empty = "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"
    assert keccak256(b"").hex() == empty


@pytest.mark.parametrize(
    "address",
    [
        # The examples of EIP-55.
        "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
        "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
        "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB",
        "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
        "0x52908400098527886E0F7030069857D2E4169EE7",
        "0xde709f2102306220921060314715629080e2fb77",
    ],
)
def test_checksum_is_that_of_eip_55(address: str) -> None:
    assert checksum_address(address.lower()) == address
    assert checksum_address("0X" + address[2:].upper()) == address


def test_key_signs_as_wallets_do() -> None:
    # The example of web3.js, eth.accounts: "Some data" under a public key of its documentation.
    assert KEY.address == "0x2c7536E3605D9C16a7a3D7b1898e529396a65c23"
    assert KEY.sign(b"Some data") == (
        "0xb91467e570a6466aa9e9876cbcd013baba02900b8979d43fe208a4a4f339f5fd"
        "6007e74cd82e037b800186422fc2da167c747ef045e5d18a5f5d4300f8e1a0291c"
    )


def test_key_tells_its_secret_only_when_asked() -> None:
    assert repr(KEY) == "EthereumKey(0x2c7536E3605D9C16a7a3D7b1898e529396a65c23)"
    assert KEY.secret_hex == SECRET
    assert EthereumKey.from_hex(f" 0x{SECRET}\n").address == KEY.address


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "key.hex"),
        ("0x", "key.hex"),
        (SECRET[1:], "key.hex"),
        ("g" + SECRET[1:], "key.hex"),
        ("00" * 32, "key.range"),
        (ORDER, "key.range"),
    ],
)
def test_no_key(text: str, code: str) -> None:
    with pytest.raises(ConfigError) as caught:
        EthereumKey.from_hex(text)
    assert caught.value.code == code
    assert SECRET[1:] not in str(caught.value)


def test_key_has_32_bytes() -> None:
    with pytest.raises(ConfigError, match=r"key\.length"):
        EthereumKey(b"short")


@pytest.mark.parametrize("text", ["", "0x", "11" * 20, "0x" + "11" * 19, "0x" + "1g" * 20])
def test_no_address(text: str) -> None:
    with pytest.raises(CodecError, match=r"ethereum\.address"):
        parse_address(text)


def test_address_is_compared_in_lower_case() -> None:
    assert parse_address(KEY.address) == KEY.address.lower()


def test_signer_is_recovered_with_either_half_of_s() -> None:
    signature = KEY.sign(b"data")
    r, s, v = signature[2:66], int(signature[66:130], 16), int(signature[130:], 16)
    other = f"{r}{int(ORDER, 16) - s:064x}{27 + 28 - v:02x}"
    assert recover_address(b"data", signature) == KEY.address.lower()
    assert recover_address(b"data", other) == KEY.address.lower()


def test_signature_names_another_signer_of_another_message() -> None:
    assert recover_address(b"datb", KEY.sign(b"data")) != KEY.address.lower()


@pytest.mark.parametrize("v", ["00", "01", "1a", "1d", "1e", "ff"])
def test_v_is_27_or_28(v: str) -> None:
    with pytest.raises(CodecError, match=r"ethereum\.signature") as caught:
        recover_address(b"data", KEY.sign(b"data")[:-2] + v)
    assert caught.value.offset == 64


@each_row(
    [
        "",
        "0x",
        "0X" + "11" * 65,
        "0x" + "11" * 64,
        "11" * 66,
        "zz" * 65,
        "1\n" * 65,
        "11" * 64 + " 11",
        "11" * 65 + "  ",
        "0x" + "11" * 65 + " ",
        "\u0661" * 130,
    ]
)
def test_no_signature(signature: str) -> None:
    with pytest.raises(CodecError, match=r"ethereum\.signature"):
        recover_address(b"data", signature)


@pytest.mark.parametrize("number", ["00" * 32, "ff" * 32, ORDER])
def test_no_key_can_have_signed(number: str) -> None:
    with pytest.raises(CodecError, match=r"ethereum\.recover"):
        recover_address(b"data", number + "11" * 32 + "1b")
    with pytest.raises(CodecError, match=r"ethereum\.recover"):
        recover_address(b"data", "11" * 32 + number + "1b")
