import time
from dataclasses import replace

import pytest

from fake_sink import FakeSink
from rillnode.codecs.errors import HandshakeError, RequestError, TransportError
from rillnode.node.spark import ranges
from rillnode.node.spark.ranges import ClientOptions, RangeClient, ask


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


def both(*sinks: FakeSink) -> ClientOptions:
    """How to reach several sinks that stand for nodes with the same streams."""
    options = [sink.serve() for sink in sinks]
    return replace(options[0], url=",".join(one.url for one in options))


def test_tasks_begin_at_all_nodes_in_turn() -> None:
    options = ClientOptions(url="noise://a:1, noise://b:2", node_identity="x", key_file="k")
    assert [node.url for node in options.nodes] == ["noise://a:1", "noise://b:2"]
    firsts = [options.beginning_at(number).nodes[0].url for number in range(3)]
    assert firsts == ["noise://a:1", "noise://b:2", "noise://a:1"]
    files = ClientOptions(url="file:///a,b", node_identity="", key_file="", sink="s")
    assert files.beginning_at(1).nodes == (files,)


def test_another_node_answers_in_the_place_of_one_that_is_lost() -> None:
    a, b = FakeSink(), FakeSink()
    b.append("s", [b"x", b"y"])
    options = both(a, b)
    a.close()
    started = time.monotonic()
    for _ in range(3):
        assert ask(options, lambda client: client.ends()) == {("s", 0): (0, 2)}
    assert time.monotonic() - started < ranges.RETRY_SECONDS / 4
    b.close()


def test_what_may_succeed_later_is_asked_of_the_next_node(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    a, b = FakeSink(), FakeSink()
    options = both(a, b)
    asked: list[RangeClient] = []

    def question(client: RangeClient) -> str:
        asked.append(client)
        if len(asked) < 4:
            raise RequestError("client.behind", "not yet", retryable=True)
        return "answer"

    assert ask(options, question) == "answer"
    assert asked[0] is not asked[1]
    assert asked[0] is asked[2]
    assert len(waits) == 1
    a.close()
    b.close()
