"""A NextGraph document of the tests: who writes it, where it stands, and its commits."""

from typing import Final

from rillnode import nextgraph


def identity(name: str) -> nextgraph.Identity:
    """The same one for a name in every run."""
    return nextgraph.Identity.from_seed(name.encode().ljust(32, b"."))


ALICE: Final = identity("alice")
TOPIC: Final = identity("topic")
BRANCH: Final = nextgraph.Branch(
    repo_id=identity("repo").public_key, id=identity("branch").public_key, read_cap_key=b"r" * 32
)
STORE: Final = identity("store").public_key
SECRET: Final = b"s" * 32
INNER: Final = nextgraph.inner_overlay(STORE, SECRET)
ACCESS: Final = nextgraph.ReadWriteAccess(INNER, nextgraph.outer_overlay(STORE))
CONVERGENCE: Final = nextgraph.convergence_key(STORE, SECRET)
REPO: Final = nextgraph.repo_hash(BRANCH.repo_id)


def commit(body: bytes, after: list[bytes] | None = None) -> nextgraph.Object:
    """A commit of Alice's to the document, after those of such ids."""
    return nextgraph.make_commit(
        body,
        author=ALICE,
        branch=BRANCH,
        overlay=INNER,
        convergence_key=CONVERGENCE,
        unix_seconds=1_700_000_000,
        header=None if after is None else nextgraph.CommitHeader(acks=after),
    )
