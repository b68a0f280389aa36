"""Publish notes as a NextGraph client, follow them on a second device, and read them again.

    python examples/nextgraph_notes.py edge/ports.json edge/invitation.json

The files are what `rillnode run --ports-file` and `rillnode nextgraph invite` have written. The
keys below are made up; those of a wallet's documents are in the wallet.
"""

import asyncio
import json
import sys
import time
from pathlib import Path

from rillnode import nextgraph

# Secrets of the user, and of those who share the branch.
ALICE = nextgraph.Identity.from_hex("11" * 32)
TOPIC = nextgraph.Identity.from_hex("22" * 32)
STORE, REPO, BRANCH_ID = b"s" * 32, b"r" * 32, b"b" * 32  # public ids
SECRET = b"c" * 32
BRANCH = nextgraph.Branch(REPO, BRANCH_ID, read_cap_key=SECRET)

OVERLAY = nextgraph.inner_overlay(STORE, SECRET)
ACCESS = nextgraph.ReadWriteAccess(OVERLAY, nextgraph.outer_overlay(STORE))
REPO_HASH = nextgraph.repo_hash(REPO)


def note(text: str, after: list[bytes]) -> nextgraph.Object:
    """A commit with a text, which comes after other commits."""
    return nextgraph.make_commit(
        text.encode(),
        author=ALICE,
        branch=BRANCH,
        overlay=OVERLAY,
        convergence_key=nextgraph.convergence_key(STORE, SECRET),
        unix_seconds=time.time(),
        header=nextgraph.CommitHeader(acks=after),
    )


def read(event: nextgraph.Event) -> str:
    """The text of an event's commit."""
    return nextgraph.open_event(event, BRANCH, author=ALICE.public_key).body.decode()


async def main(ports_file: Path, invitation_file: Path) -> None:
    """Be two devices of one user: `laptop` publishes, `phone` follows."""
    ports = json.loads(ports_file.read_text())
    url, broker = f"ws://{ports['nextgraph']}", bytes.fromhex(ports["nextgraph_peer_id"])
    code = nextgraph.parse_invitation(json.loads(invitation_file.read_text())["link"]).code
    # The code registers the user; later connections need none.
    async with (
        await nextgraph.connect(url, broker=broker, user=ALICE, invitation=code) as laptop,
        await nextgraph.connect(url, broker=broker, user=ALICE) as phone,
    ):
        for device in (laptop, phone):
            await device.pin(REPO_HASH, ACCESS, publish=[TOPIC])
        heads: list[bytes] = []
        async with await phone.subscribe(OVERLAY, REPO_HASH, TOPIC.public_key) as events:
            for text in ("one", "two", "three"):
                commit = note(text, heads)
                heads = [commit.reference.id]
                # Returns when it is durable and forwarded.
                published = await laptop.publish(OVERLAY, TOPIC, BRANCH, commit)
                if published.new:
                    print("followed", read(await anext(events)))
                else:  # and nobody gets it again
                    print("there already:", text)
        async for event in phone.sync(OVERLAY, TOPIC.public_key):
            print("stored", read(event))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
