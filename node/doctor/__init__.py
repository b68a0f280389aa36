"""Checks a machine and a configuration for what a node would suffer from."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from rillnode.node.config import Config
from rillnode.node.doctor import files, machine, software
from rillnode.node.doctor.finding import Finding as Finding, State as State
from rillnode.node.installed import DOCTOR, installed, load

Look = Callable[[], Iterator[Finding]]


def examine(config: Config, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Look at everything, and tell of each thing as it was looked at; takes some seconds.

    Nothing is changed: a small file is written into the data directory and removed again.
    """
    looks: tuple[Look, ...] = (
        software.python,
        partial(software.packages, config),
        machine.clock,
        partial(machine.open_files, config),
        partial(machine.ports, config),
        partial(files.room, config),
        partial(files.sync_time, config),
        partial(files.keys, config),
        *(partial(load(DOCTOR, name), config, environ) for name in installed(DOCTOR)),
    )
    for look in looks:
        yield from look()
