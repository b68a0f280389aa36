import json

import pytest

from nextgraph_support import BROKER
from rillnode.codecs.errors import CodecError
from rillnode.codecs.nextgraph.bootstrap import (
    BootstrapContent,
    BoxPrivate,
    BoxPublicDyn,
    BrokerServer,
    BrokerServerType,
    Domain,
    Invitation,
    Localhost,
    Public,
    bootstrap_document,
    invitation_link,
    parse_invitation,
)
from rillnode.codecs.nextgraph.types import BindAddress, IPv4, IPv6

V4 = BindAddress(1_440, IPv4(b"\x0a\x00\x00\x01"))
V6 = BindAddress(443, IPv6(bytes(15) + b"\x01"))


def server(kind: BrokerServerType) -> BrokerServer:
    return BrokerServer(kind, can_verify=False, can_forward=True, peer_id=BROKER.public_key)


def test_the_document_is_as_clients_read_it() -> None:
    document = bootstrap_document(BootstrapContent([server(Localhost(14_400))]), None)
    numbers = ",".join(map(str, BROKER.public_key))
    assert document.decode() == (
        '{"V0":{"bootstrap":{"servers":[{"server_type":{"Localhost":14400},"can_verify":false,'
        f'"can_forward":true,"peer_id":{{"Ed25519PubKey":[{numbers}]}}}}]}},'
        '"registration_url":null}}'
    )


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        (Domain("broker.example:8443"), {"Domain": "broker.example:8443"}),
        (BoxPrivate([V4]), {"BoxPrivate": [{"port": 1440, "ip": {"IPv4": [10, 0, 0, 1]}}]}),
        (Public([V6]), {"Public": [{"port": 443, "ip": {"IPv6": [0] * 15 + [1]}}]}),
        (BoxPublicDyn([]), {"BoxPublicDyn": []}),
    ],
)
def test_all_kinds_of_servers_are_shown(kind: BrokerServerType, shown: object) -> None:
    content = BootstrapContent([server(kind), server(Localhost(1))])
    document = json.loads(bootstrap_document(content, "https://broker.example/terms"))
    assert document["V0"]["registration_url"] == "https://broker.example/terms"
    first, second = document["V0"]["bootstrap"]["servers"]
    assert first["server_type"] == shown
    assert second["peer_id"] == {"Ed25519PubKey": list(BROKER.public_key)}


@pytest.mark.parametrize(
    "kind", [Localhost(0), Domain("b"), BoxPrivate([V4, V6]), BoxPublicDyn([])]
)
def test_invitations_come_back(kind: BrokerServerType) -> None:
    for code, name, url in ((b"c" * 32, "Café", "https://b/"), (None, None, None)):
        invitation = Invitation(BootstrapContent([server(kind)]), code, name, url)
        link = invitation_link("http://localhost:1440", invitation)
        assert invitation_link("http://localhost:1440/", invitation) == link
        assert link.startswith("http://localhost:1440/#/i/A")
        assert parse_invitation(link) == invitation
        assert parse_invitation(link.removeprefix("http://localhost:1440/#/i/")) == invitation


@pytest.mark.parametrize("link", ["", "http://localhost/#/i/", "http://localhost", "A", "AAAA*"])
def test_what_is_no_invitation_is_refused(link: str) -> None:
    with pytest.raises(CodecError):
        parse_invitation(link)


def test_invitations_are_short() -> None:
    with pytest.raises(CodecError) as caught:
        parse_invitation("A" * 65_537)
    assert caught.value.code == "invitation.size"
