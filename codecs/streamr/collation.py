"""The order that JavaScript's `localeCompare` gives, for text in ASCII.

Released nodes compare their URLs by it where two links cross. It is the root collation of Unicode's
CLDR, which the locale `en` and most others leave as it is for ASCII: signs come before digits and
digits before letters, all in the order of `_CHARACTERS`; capitals count only between texts that are
alike else, where the first one that differs decides and the small letter is less. Control
characters count for nothing, but for those of white space.

Text outside ASCII has no rule there that could be kept here: it sorts behind all of ASCII, by code
point. No such text comes from outside, as URLs of nodes are ASCII.

Source: ICU 78.2 as in Node.js 20; Unicode Technical Standard 35, part 5, Root Collation.
"""

from typing import Final

_CHARACTERS: Final = (
    "\t\n\v\f\r _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789abcdefghijklmnopqrstuvwxyz"
)
_WEIGHTS: Final = {
    written: at
    for at, character in enumerate(_CHARACTERS)
    for written in (character, character.upper())
}
_ASCII: Final = 0x80

CollationKey = tuple[tuple[int, ...], tuple[bool, ...]]


def collation_key(text: str) -> CollationKey:
    """What two texts are to be compared by; equal for texts that `localeCompare` holds equal."""
    counted = [char for char in text if char in _WEIGHTS or ord(char) >= _ASCII]
    weights = tuple(_WEIGHTS.get(char, ord(char)) for char in counted)
    return weights, tuple("A" <= char <= "Z" for char in counted)
