import pytest
from msgspec.structs import replace

from nextgraph_support import BROKER, PEER, READ_CAP_KEY, REPO, TOPIC, make_commit, make_event
from rillnode.codecs.nextgraph.adverts import check_publisher_advert, sign_publisher_advert
from rillnode.codecs.nextgraph.commits import CommitHeader, commit_header
from rillnode.codecs.nextgraph.events import EVENT, Event, check_event, crypt_event_key, sign_event
from rillnode.codecs.nextgraph.results import NextGraphError, ProtocolCode
from rillnode.codecs.nextgraph.types import DirectPeer, ObfuscatedPeer, PeerId

ORDER = 2**252 + 27742317777372353535851937790883648493
IDENTITY_POINT = b"\x01" + bytes(31)


def refused(event: Event) -> None:
    with pytest.raises(NextGraphError) as caught:
        check_event(event)
    assert caught.value.closing is ProtocolCode.INVALID_SIGNATURE


def test_events_come_back_and_hold() -> None:
    event, commit = make_event(header=CommitHeader(acks=[b"a" * 32]))
    assert EVENT.decode(EVENT.encode(event)) == event
    assert check_event(event) == (PEER.public_key, EVENT.encode(event))
    assert commit_header(event.content.blocks).acks == [b"a" * 32]
    assert len(commit) == 32


def test_what_was_changed_does_not_hold() -> None:
    event, _ = make_event()
    refused(replace(event, content=replace(event.content, seq=2)))
    refused(replace(event, content=replace(event.content, blocks=event.content.blocks[::-1])))
    refused(replace(event, topic_sig=event.peer_sig))
    refused(replace(event, peer_sig=event.topic_sig))
    refused(sign_event(event.content, PEER, PEER))
    refused(sign_event(event.content, TOPIC, TOPIC))


@pytest.mark.parametrize("publisher", [DirectPeer(PEER.public_key), ObfuscatedPeer(b"d" * 32)])
def test_publishers_are_clients(publisher: PeerId) -> None:
    event, _ = make_event()
    refused(sign_event(replace(event.content, publisher=publisher), TOPIC, PEER))


def test_an_event_has_a_commit_and_its_body() -> None:
    event, _ = make_event()
    refused(sign_event(replace(event.content, blocks=event.content.blocks[:1]), TOPIC, PEER))
    refused(sign_event(replace(event.content, blocks=[]), TOPIC, PEER))


def test_signatures_are_strict() -> None:
    event, _ = make_event()
    scalar = int.from_bytes(event.topic_sig[32:], "little") + ORDER
    again = event.topic_sig[:32] + scalar.to_bytes(32, "little")
    refused(replace(event, topic_sig=again))
    # Anything is signed by a key of small order, where that is not refused.
    content = replace(event.content, topic=IDENTITY_POINT)
    forged = sign_event(content, TOPIC, PEER)
    refused(replace(forged, topic_sig=IDENTITY_POINT + bytes(32)))


def test_the_key_opens_for_readers_of_the_branch() -> None:
    event, _ = make_event(seq=7)
    made, _ = make_commit(b"body")

    def opened(seq: int, read_cap_key: bytes) -> bytes:
        return crypt_event_key(
            event.content.key,
            repo_id=REPO.public_key,
            branch_id=REPO.public_key,
            read_cap_key=read_cap_key,
            publisher=PEER.public_key,
            seq=seq,
        )

    assert opened(7, READ_CAP_KEY) == made.reference.key
    assert opened(8, READ_CAP_KEY) != made.reference.key
    assert opened(7, b"o" * 32) != made.reference.key


def test_adverts_are_for_one_broker_and_by_the_topic_s_owner() -> None:
    advert = sign_publisher_advert(TOPIC, BROKER.public_key)
    check_publisher_advert(advert, BROKER.public_key)
    with pytest.raises(NextGraphError) as caught:
        check_publisher_advert(advert, PEER.public_key)
    assert caught.value.closing is ProtocolCode.INVALID_PUBLISHER_ADVERT
    stolen = replace(advert, content=replace(advert.content, topic=PEER.public_key))
    with pytest.raises(NextGraphError) as caught:
        check_publisher_advert(stolen, BROKER.public_key)
    assert caught.value.closing is ProtocolCode.INVALID_SIGNATURE
