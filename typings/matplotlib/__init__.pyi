from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

Colour = tuple[float, float, float, float]

colormaps: Mapping[str, Callable[[int], Colour]]

def rc_context(rc: Mapping[str, object]) -> AbstractContextManager[None]: ...
