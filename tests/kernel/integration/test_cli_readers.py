"""Commands that print until they are stopped end when nobody reads them any more."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import LIMIT_SECONDS, RunningNode, begun, call, printed
from forked import PIPE
from rillnode.node.cli.failures import Exit


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    running = RunningNode(tmp_path_factory.mktemp("node") / "node.toml")
    printed("stream", "create", "numbers", *running.options)
    assert call("stream", "push", "numbers", *running.options, stdin=b"0\n1\n").returncode == 0
    yield running
    running.kill()


FIRST = {
    "tail": ["stream", "tail", "numbers", "--from", "start"],
    "tail of a consumer": ["stream", "tail", "numbers", "--consumer", "c"],
    "follow": ["stream", "follow", "num*", "--from", "start"],
    "top": ["top", "--interval", "100000"],
}


@pytest.mark.parametrize("verb", FIRST)
def test_a_closed_pipe_is_noticed_at_once(node: RunningNode, verb: str) -> None:
    """No further entry comes that could not be written, and `top` waits for its first look."""
    process = begun(*FIRST[verb], *node.options, stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    if verb != "top":
        assert process.stdout.readline().endswith(b"\n")
    process.stdout.close()
    assert process.wait(LIMIT_SECONDS) == Exit.OK
    assert process.stderr.read() == b""
    process.stderr.close()


def test_a_position_is_not_kept_for_a_reader_that_left(node: RunningNode, tmp_path: Path) -> None:
    """Nobody can tell what it has read of what the pipe had."""
    position = tmp_path / "position"
    follow = ["stream", "follow", "num*", "--position", str(position), *node.options]
    process = begun(*follow, stdout=PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(LIMIT_SECONDS) == Exit.OK
    assert not position.exists()
    process = begun(*follow, stdout=PIPE)
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] != [b"", b""]
    process.send_signal(signal.SIGINT)
    assert process.wait(LIMIT_SECONDS) == Exit.INTERRUPTED
    process.stdout.close()
    assert position.exists()
