"""Describes places of tables: a directory, or a URL of an object store."""

from pathlib import Path
from urllib.parse import urlsplit


class Location(str):
    """An absolute directory, or a URL such as `s3://bucket/tables`.

    A URL holds no credentials: those come from the environment of the processes that use it.

    Args:
        value: a path or a URL.
    """

    __slots__ = ()

    def __new__(cls, value: object) -> "Location":
        """Take a path or a text as it is, without a slash at its end."""
        text = str(value)
        return super().__new__(cls, text.rstrip("/") or text)

    @property
    def path(self) -> Path | None:
        """The directory, or None for a URL."""
        return None if urlsplit(self).scheme else Path(self)

    def overlaps(self, other: "Location") -> bool:
        """Whether one of two lies in the other, or both are the same."""
        here, there = f"{self}/", f"{other}/"
        return here.startswith(there) or there.startswith(here)
