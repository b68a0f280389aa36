"""NextGraph: peers, and commits and events to send, as tests make them."""

from rillnode.codecs.keys import Identity
from rillnode.codecs.nextgraph.blocks import Block
from rillnode.codecs.nextgraph.broker_dialogue import BrokerDialogue
from rillnode.codecs.nextgraph.client_dialogue import AppLogin, ClientDialogue, ClientLogin
from rillnode.codecs.nextgraph.commits import (
    COMMIT_OBJECT,
    HEADER_OBJECT,
    CommitContent,
    CommitHeader,
    Quorum,
    sign_commit,
)
from rillnode.codecs.nextgraph.events import Event, EventContent, crypt_event_key, sign_event
from rillnode.codecs.nextgraph.objects import Object, split_object
from rillnode.codecs.nextgraph.start import ClientInfo, ClientType, Registration
from rillnode.codecs.nextgraph.types import ForwardedPeer

BROKER = Identity.from_seed(b"broker".ljust(32, b"."))
PEER = Identity.from_seed(b"peer".ljust(32, b"."))
USER = Identity.from_seed(b"user".ljust(32, b"."))
CLIENT = Identity.from_seed(b"client".ljust(32, b"."))
TOPIC = Identity.from_seed(b"topic".ljust(32, b"."))
REPO = Identity.from_seed(b"repo".ljust(32, b"."))
NONCE = b"n" * 32
CONVERGENCE_KEY = b"k" * 32
READ_CAP_KEY = b"r" * 32

INFO = ClientInfo(ClientType.NODE_SERVICE, "{}", "1", 0, 0)
LOGIN = ClientLogin(user=USER, client=CLIENT, info=INFO, registration=Registration(None))
APP_LOGIN = AppLogin(user=None, info=INFO)


def broker(*, discoverable: bool = False) -> BrokerDialogue:
    return BrokerDialogue(BROKER, nonce=NONCE, discoverable=discoverable)


def exchange(near: ClientDialogue, far: BrokerDialogue) -> tuple[object, object]:
    """Carry frames until neither side has any; return what each gave its owner last."""
    to_near: object = None
    to_far: object = None
    while True:
        there, back = near.take_output(), far.take_output()
        if not there and not back:
            return to_near, to_far
        for frame in there:
            to_far = far.receive(frame) or to_far
        for frame in back:
            to_near = near.receive(frame) or to_near


def joined() -> tuple[ClientDialogue, BrokerDialogue]:
    """Both sides of a connection whose client is admitted."""
    near, far = ClientDialogue(PEER, BROKER.public_key, LOGIN), broker()
    exchange(near, far)
    far.admit()
    exchange(near, far)
    return near, far


def make_commit(body: bytes, header: CommitHeader | None = None) -> tuple[Object, list[Block]]:
    """A commit, and all blocks of its event, the commit's root first."""
    content = split_object(b"\x00\x01" + body, CONVERGENCE_KEY)
    commit = CommitContent(
        author=b"a" * 32,
        branch=REPO.public_key,
        perms=[],
        header_keys=None,
        quorum=Quorum.NO_SIGNING,
        timestamp=0,
        metadata=b"",
        body=content.reference,
    )
    made = split_object(
        COMMIT_OBJECT.encode(sign_commit(commit, USER)),
        CONVERGENCE_KEY,
        header=None if header is None else HEADER_OBJECT.encode(header),
    )
    return made, made.blocks + content.blocks


def event_content(blocks: list[Block], commit_key: bytes, seq: int) -> EventContent:
    """What PEER says in an event on TOPIC that carries a commit of REPO's main branch."""
    key = crypt_event_key(
        commit_key,
        repo_id=REPO.public_key,
        branch_id=REPO.public_key,
        read_cap_key=READ_CAP_KEY,
        publisher=PEER.public_key,
        seq=seq,
    )
    publisher = ForwardedPeer(PEER.public_key)
    return EventContent(TOPIC.public_key, publisher, seq, blocks, [], key)


def make_event(
    body: bytes = b"body", *, seq: int = 1, header: CommitHeader | None = None
) -> tuple[Event, bytes]:
    """An event by PEER on TOPIC, and its commit's id."""
    commit, blocks = make_commit(body, header)
    content = event_content(blocks, commit.reference.key, seq)
    return sign_event(content, TOPIC, PEER), commit.reference.id
