"""The job of a sink whose cluster cannot reach the node: streams of a node into files of ranges.

    python -m rillnode.node.spark.export CONFIG.json [--watch-stdin]

It is started, watched, given keys and parked as a Spark job is, and asks the node the same: ends,
ranges, and to save what is durable in files. Files are carried to the cluster by other means; there
the Spark job reads them. When as many bytes lie in the directory as may, nothing is written until
some are taken away; meanwhile the node holds the entries back, up to `hold_bytes_max`.

A crash after a file was written and before the node has saved it writes its entries once more, into
a file that may end elsewhere; who reads them takes each entry once.
"""

import argparse
import json
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from rillnode.actors.log.directories import replace_file
from rillnode.actors.spark.sink_job import CONFIGURATION_CODE, PASSING_CODE
from rillnode.codecs.entries import Block
from rillnode.codecs.errors import ConfigError, RequestError, RillnodeError, TransportError
from rillnode.node.spark.files import locked
from rillnode.node.spark.job_config import ExportConfig, read_config
from rillnode.node.spark.jobs import add_stdin, run_job
from rillnode.node.spark.offsets import Offset, Range, check_ends, of_streams, ranges_between
from rillnode.node.spark.range_files import list_files, write_range
from rillnode.node.spark.ranges import ask, fetch_ranges

FILE_BYTES_MAX: Final = 16_777_216
"""About the size of a file: what the job holds in memory of it. Own choice."""
LOCK_SECONDS: Final = 60.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the export until it is told to stop; returns its exit code."""
    text = "Write a node's streams to files for a cluster that cannot reach it."
    return run_job("rillnode.node.spark.export", text, _run, arguments, add_stdin)


def _run(options: argparse.Namespace, stop: threading.Event) -> tuple[str, int]:
    try:
        config = read_config(options.config, ExportConfig)
        with locked(Path(config.work_dir) / "job.lock", seconds=LOCK_SECONDS):
            Export(config).run(stop)
    except (RillnodeError, OSError) as error:
        return str(error), _exit_code(error)
    return "", 0


class Export:
    """Writes what is new of every partition, round by round."""

    def __init__(self, config: ExportConfig) -> None:
        self._config = config
        self._options = config.client_options
        self._directory = Path(config.directory)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._state = Path(config.work_dir) / "exported.json"
        self._offset = self._load_offset()

    def run(self, stop: threading.Event) -> None:
        """Go on until `stop` is set."""
        while not stop.is_set():
            self.step(stop)
            stop.wait(self._config.trigger_seconds)

    def step(self, stop: threading.Event) -> None:
        """One round: write what the ends of now hold back, save it at the node, report.

        Raises:
            RequestError: `sink.reset`, a stream was made anew.
            TransportError: the node is not reached.
        """
        ends, created = ask(self._options, lambda client: (client.ends(), client.created()))
        self._note_created(created)
        positions = self._offset.positions
        check_ends(positions, ends)
        end = {key: until for key, (_, until) in ends.items()}
        used = self._used_bytes()
        rows = files = 0
        ranges = of_streams(ranges_between(positions, end, ends), created)
        for part, blocks in self._pieces(ranges):
            if used >= self._config.bytes_max or stop.is_set():
                break
            key = (part.stream, part.partition)
            used += write_range(self._directory, key, part.start, part.until, blocks)
            positions[key] = part.until
            self._save()
            rows += 0 if part.gap else part.until - part.start
            files += 1
        ask(self._options, lambda client: client.commit(self._offset))
        behind = sum(max(0, until - positions.get(key, 0)) for key, until in end.items())
        report: dict[str, object] = {
            "state": "full" if used >= self._config.bytes_max else "running",
            "rows": rows,
            "files": files,
            "rows_behind": behind,
            "directory_bytes": used,
        }
        ask(self._options, lambda client: client.report(report))

    def _pieces(self, ranges: list[Range]) -> Iterator[tuple[Range, list[Block] | None]]:
        """What goes into a file each: a gap, or blocks of about a file's size."""
        for item in ranges:
            held: list[Block] = []
            size, start = 0, item.start
            for part, blocks in fetch_ranges(self._options, [item]):
                if part.gap:
                    if held:
                        yield item._replace(start=start, until=part.start), held
                    yield part, None
                    held, size, start = [], 0, part.until
                    continue
                held += blocks
                size += sum(len(block.value) for block in blocks)
                if size >= FILE_BYTES_MAX:
                    yield item._replace(start=start, until=part.until), held
                    held, size, start = [], 0, part.until
            if held:
                yield item._replace(start=start), held

    def _used_bytes(self) -> int:
        files = list_files(self._directory).values()
        return sum(file.size for of_partition in files for file in of_partition)

    def _note_created(self, created: dict[str, int]) -> None:
        """Note new streams, and refuse those made anew: files could not tell the two apart."""
        anew = self._offset.made_anew(created)
        if anew:
            raise RequestError(
                "sink.reset",
                f"stream {min(anew)!r} was removed and made anew. Give the sink a new name and a "
                "new directory to write the new one's entries",
            )
        known = {**self._offset.created, **created}
        if known != self._offset.created:
            self._offset = self._offset._replace(created=known)
            self._save()

    def _load_offset(self) -> Offset:
        try:
            document: object = json.loads(self._state.read_bytes())
        except FileNotFoundError:
            return Offset({}, {})
        except ValueError as error:
            raise ConfigError("export.state", f"{self._state} is damaged: {error}") from None
        return Offset.from_json(document, str(self._state))

    def _save(self) -> None:
        """Remember what is in files: the directory may be emptied at any time."""
        replace_file(self._state, json.dumps(self._offset.to_json()).encode())


def _exit_code(error: Exception) -> int:
    match error:
        case ConfigError():
            return CONFIGURATION_CODE
        case TransportError() | OSError():
            # Disks that are full or away pass as nodes do.
            return PASSING_CODE
        case _:
            return 1


if __name__ == "__main__":
    sys.exit(main())
