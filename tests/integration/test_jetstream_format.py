"""A store in JetStream says in which format it is, and one of another format is refused."""

import pytest

from nats_support import JetStreamDriver, NatsServer, needs_nats
from rillnode.actors.storage.jetstream import format as jetstream_format
from rillnode.codecs.errors import StoreError
from store_support import append, texts

pytestmark = needs_nats


@pytest.mark.parametrize("written_by", [1, 3])
def test_a_store_of_another_format_is_refused_and_left_alone(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch, written_by: int
) -> None:
    monkeypatch.setattr(jetstream_format, "FORMAT_VERSION", written_by)
    driver = JetStreamDriver(nats, "t")
    driver.write(append(b"0"))
    driver.store.close()
    monkeypatch.setattr(jetstream_format, "FORMAT_VERSION", 2)
    with pytest.raises(StoreError, match=f"has format {written_by}, this version reads 2") as found:
        JetStreamDriver(nats, "t")
    assert (found.value.code, found.value.retryable) == ("store.format", False)
    JetStreamDriver(nats, "another").store.close()
    monkeypatch.setattr(jetstream_format, "FORMAT_VERSION", written_by)
    driver = JetStreamDriver(nats, "t")
    assert texts(driver) == [b"0"]
    driver.store.close()
