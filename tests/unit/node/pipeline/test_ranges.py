import pytest

from fake_sink import FakeSink
from rillnode.codecs.errors import HandshakeError, RequestError, TransportError
from rillnode.node.pipeline import ranges
from rillnode.node.pipeline.ranges import RangeClient, ask


def test_a_connection_is_made_once_and_kept() -> None:
    sink = FakeSink()
    first = ask(sink.local_options, lambda client: client)
    assert ask(sink.local_options, lambda client: client) is first
    assert sink.opened == 1


def test_a_lost_connection_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    sink = FakeSink()
    failures = [TransportError("tcp.lost", "lost"), TransportError("tcp.lost", "lost")]

    def question(client: RangeClient) -> str:
        if failures:
            raise failures.pop()
        return "answer"

    assert ask(sink.local_options, question) == "answer"
    assert (sink.opened, sink.closed) == (3, 2)
    assert len(waits) == 2


@pytest.mark.parametrize(
    "error", [HandshakeError("noise.refused", "refused"), RequestError("sink.range", "no")]
)
def test_a_refusal_is_not_tried_again(error: Exception) -> None:
    sink = FakeSink()

    def question(client: RangeClient) -> None:
        raise error

    with pytest.raises(type(error)):
        ask(sink.local_options, question)
    assert sink.opened == 1


def test_a_node_that_stays_away_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "RETRY_SECONDS", 0.0)
    sink = FakeSink()
    options = sink.serve()
    sink.close()
    with pytest.raises(TransportError, match="not reachable"):
        ask(options, lambda client: client.ends())
