"""Tests what is known of all streams without asking the store."""

from rillnode.actors.core.access import EVERYBODY, Access
from rillnode.actors.core.streams.context import StreamRemoved
from rillnode.actors.log import StreamRecord
from rillnode.actors.streamr.catalogue import Catalogue

ALICE = "eth:0x" + "aa" * 20


def record(name: str, called: str | None = None, **grants: tuple[str, ...]) -> StreamRecord:
    attributes = {} if called is None else {"name": called}
    given = {ALICE if who == "alice" else EVERYBODY: may for who, may in grants.items()}
    return StreamRecord(name=name, id=1, attributes=attributes, grants=given)


def test_streams_are_found_by_what_they_are_called() -> None:
    catalogue = Catalogue(Access())
    for one in (record("a", "weather"), record("b", "weather"), record("c")):
        catalogue.tell(one)
    assert catalogue.named("weather") == {"a", "b", "weather"}
    assert catalogue.named("c") == {"c"}
    catalogue.tell(record("a", "wind"))
    catalogue.tell(StreamRemoved(record("b")))
    assert catalogue.named("weather") == {"weather"}
    assert catalogue.named("wind") == {"a", "wind"}
    catalogue.tell(record("a"))
    assert catalogue.named("wind") == {"wind"}


def test_grants_follow_the_records() -> None:
    access = Access()
    catalogue = Catalogue(access)
    catalogue.tell(record("a", alice=("admin",)))
    assert access.allows(ALICE, "push", "a")
    catalogue.tell(record("a", alice=("pull",), everybody=("subscribe",)))
    assert access.verbs(ALICE, "a") == {"pull", "subscribe"}
    assert access.verbs("anonymous", "a") == {"subscribe"}
    assert access.granted(ALICE) == {"a"}
    catalogue.tell(StreamRemoved(record("a")))
    assert not access.verbs(ALICE, "a")
    assert access.granted(ALICE) == set()
