from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

class Figure:
    def __init__(
        self, *, figsize: tuple[float, float] = ..., layout: str = ..., facecolor: str = ...
    ) -> None: ...
    def subplots(
        self,
        nrows: int = ...,
        ncols: int = ...,
        *,
        height_ratios: Sequence[float] = ...,
        squeeze: bool = ...,
    ) -> Any: ...
    def suptitle(
        self, t: str, *, fontsize: float = ..., x: float = ..., ha: str = ...
    ) -> object: ...
    def add_subplot(self) -> Any: ...
    def colorbar(
        self,
        mappable: object,
        *,
        ax: object,
        shrink: float = ...,
        pad: float = ...,
        label: str = ...,
    ) -> object: ...
    def savefig(
        self,
        fname: str | Path | TextIO,
        *,
        dpi: int = ...,
        format: str = ...,
        metadata: Mapping[str, str | None] = ...,
    ) -> None: ...
