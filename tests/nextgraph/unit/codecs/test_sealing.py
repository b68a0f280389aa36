from typing import Final

import pytest
from blake3 import blake3
from msgspec.structs import replace

from nextgraph_support import (
    CONVERGENCE_KEY,
    PEER,
    READ_CAP_KEY,
    REPO,
    TOPIC,
    USER,
    event_content,
    make_commit,
    make_event,
)
from rillnode.codecs.errors import CodecError
from rillnode.codecs.nextgraph.commits import COMMIT_OBJECT, sign_commit
from rillnode.codecs.nextgraph.events import sign_event
from rillnode.codecs.nextgraph.objects import join_object, split_object
from rillnode.codecs.nextgraph.sealing import Branch, open_event, opens

BRANCH: Final = Branch(REPO.public_key, REPO.public_key, READ_CAP_KEY)
STRANGERS: Final = 2_000
"""Of so many keys about four make a chunk of any block that they do not open."""


def test_no_foreign_key_opens_an_event() -> None:
    event, _ = make_event(b"body" * 500)
    assert opens(event, BRANCH)
    for number in range(STRANGERS):
        key = blake3(number.to_bytes(8, "little")).digest()
        assert not opens(event, replace(BRANCH, read_cap_key=key)), number


def test_a_commit_of_another_branch_is_refused() -> None:
    commit, blocks = make_commit(b"body")
    event = sign_event(event_content(blocks, commit.reference.key, 1), TOPIC, PEER)
    assert open_event(event, BRANCH).reference == commit.reference
    content = open_event(event, BRANCH).commit.content
    other = COMMIT_OBJECT.encode(sign_commit(replace(content, branch=TOPIC.public_key), USER))
    made = split_object(other, CONVERGENCE_KEY)
    sent = event_content([*made.blocks, *blocks[1:]], made.reference.key, 1)
    forged = sign_event(sent, TOPIC, PEER)
    assert not opens(forged, BRANCH)
    with pytest.raises(CodecError) as caught:
        open_event(forged, BRANCH)
    assert caught.value.code == "event.branch"


def test_a_commit_of_several_blocks_opens_where_they_are_all_there() -> None:
    commit, blocks = make_commit(b"body")
    content = COMMIT_OBJECT.decode(
        join_object(commit.reference, {commit.reference.id: blocks[0]}, content_bytes_max=4_096)
    ).content
    large = sign_commit(replace(content, perms=[b"p" * 32] * 200), USER)
    made = split_object(COMMIT_OBJECT.encode(large), CONVERGENCE_KEY)
    assert len(made.blocks) > 2
    sent = event_content([*made.blocks, *blocks[1:]], made.reference.key, 1)
    event = sign_event(sent, TOPIC, PEER)
    assert opens(event, BRANCH)
    opened = open_event(event, BRANCH, author=USER.public_key)
    assert (opened.commit, opened.body) == (large, b"\x00\x01body")
    del sent.blocks[1]
    assert not opens(sign_event(sent, TOPIC, PEER), BRANCH)
