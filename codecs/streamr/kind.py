"""Says which number the kind of Streamr's messages has in stored blocks."""

from typing import Final

NUMBER: Final = 1
