"""One thing that was looked at."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A checked thing, how it is, and what to do.

    Attributes:
        state: `warn`: a node runs, worse than it could; `fail`: it does not, or is not safe.
        advice: what to do; empty where all is well.
    """

    check: str
    state: State
    text: str
    advice: str = ""
