"""What is refused, and with which code."""

from collections.abc import Generator
from contextlib import contextmanager

import pytest

from rillnode.codecs.errors import RillnodeError


@contextmanager
def refused(kind: type[RillnodeError], code: str) -> Generator[None]:
    """Expect an error of this kind that has this code."""
    with pytest.raises(kind) as caught:
        yield
    assert caught.value.code == code, caught.value
