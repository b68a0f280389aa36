import os
import subprocess
import sys

import pytest

from rillnode.node.spark.jobs import quiet_stderr, without_noise

WORKERS_END = b"""\
Traceback (most recent call last):
  File "/venv/pyspark.zip/pyspark/daemon.py", line 264, in manager
  File "/venv/pyspark.zip/pyspark/daemon.py", line 95, in worker
BrokenPipeError: [Errno 32] Broken pipe
"""
OTHERS = b"""\
Traceback (most recent call last):
  File "/venv/pyspark.zip/pyspark/daemon.py", line 264, in manager
    something()
ModuleNotFoundError: No module named 'x'
"""
OURS = b"""\
Traceback (most recent call last):
  File "job.py", line 1, in main
BrokenPipeError: [Errno 32] Broken pipe
"""


@pytest.mark.parametrize("text", [b"one\ntwo\n", OTHERS, OURS, OURS[:50], b"\n  indented\n"])
def test_what_says_something_is_kept(text: bytes) -> None:
    assert b"".join(without_noise(text.splitlines(keepends=True))) == text


def test_noise_is_left_out_wherever_it_stands() -> None:
    start = b"WARNING: Using incubator modules: jdk.incubator.vector\n"
    text = start + b"a\n" + WORKERS_END + b"b\n" + WORKERS_END + OTHERS
    assert b"".join(without_noise(text.splitlines(keepends=True))) == b"a\nb\n" + OTHERS


def test_noise_of_workers_that_end_among_each_others_lines_is_left_out() -> None:
    head, *frames, last = WORKERS_END.splitlines(keepends=True)
    body = b"".join(frames)
    for mixed in (head + head + body + last + body + last, head + body + head + last + body + last):
        text = b"a\n" + mixed + b"b\n"
        assert b"".join(without_noise(text.splitlines(keepends=True))) == b"a\nb\n"
        other = b"a\n" + mixed[: -len(last)] + b"ValueError: no\n"
        assert b"".join(without_noise(other.splitlines(keepends=True))) == other


def test_children_are_filtered_and_the_last_word_is_not_lost(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with quiet_stderr():
        script = f"import os; os.write(2, {WORKERS_END!r} + b'kept\\n')"
        subprocess.run([sys.executable, "-c", script], check=True)
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "kept\nafter\n"


def test_a_job_goes_on_where_nobody_can_take_its_lines() -> None:
    script = (
        "import os, sys\n"
        "from rillnode.node.spark.jobs import quiet_stderr\n"
        "with quiet_stderr():\n"
        "    for _ in range(2_000):\n"
        "        os.write(2, b'a line that a full disk does not take' * 3 + bytes([10]))\n"
        "print('done')\n"
    )
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=full, timeout=60
        )
    assert done.stdout == b"done\n"
