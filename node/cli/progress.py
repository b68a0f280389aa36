"""A progress bar on a terminal's stderr; nothing elsewhere."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rillnode.node.cli.terminal import Terminal


@contextmanager
def progress(terminal: Terminal, title: str, total: int) -> Generator[Callable[[int], None]]:
    """Show how many of `total` bytes are done; what is yielded is told of each further number."""
    if terminal.quiet or not terminal.err.isatty():
        yield lambda size: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    console = Console(file=terminal.err, highlight=False, _environ=terminal.environ)
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as shown:
        task = shown.add_task(title, total=total)
        yield lambda size: shown.advance(task, size)
