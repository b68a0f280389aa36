"""Says which number the kind of NextGraph's events has in stored blocks."""

from typing import Final

NUMBER: Final = 2
