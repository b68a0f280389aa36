"""The generations of released nodes: how each writes, and which of them understand each other.

    generation   packages   form     control  message  counters   dials             duplicates
    13           to 17      OBJECT   1        31       no         URL?address=      1000
    19           18, 19     OBJECT   2        32       yes        URL/ws?address=   1002
    22           20 to 22   ARRAY    2        32       yes        URL/ws?address=   1002

Packages from 23 on reach each other by WebRTC, which nothing here speaks.

Source: frames of streamr-network 13.0.0, 19.1.0 and 22.1.0, and how these close a second link.
"""

import re
from typing import Final, NamedTuple

from rillnode.codecs.errors import CodecError
from rillnode.codecs.streamr.network import Form, Frame


class Generation(NamedTuple):
    """The frames of one generation of nodes.

    Attributes:
        name: the newest release of it that was tried.
        version: what their frames name as the package, in the form OBJECT.
        control: version of the control layer.
        message: newest version of messages that they read.
        path: what follows the URL that is dialled.
        duplicate_code: with which a second link of one pair of nodes is closed (RFC 6455).
        counted: instructions are numbered.
    """

    name: str
    form: Form
    version: str
    control: int
    message: int
    path: str
    duplicate_code: int
    counted: bool = True


GENERATIONS: Final = {
    "13": Generation("13", Form.OBJECT, "13.0.0", 1, 31, "", 1000, counted=False),
    "19": Generation("19", Form.OBJECT, "19.1.0", 2, 32, "/ws", 1002),
    "22": Generation("22", Form.ARRAY, "", 2, 32, "/ws", 1002),
}
_NEWEST: Final = GENERATIONS["22"]
_CONTROL_1_MAJOR_MAX: Final = 17
_MAJOR: Final = re.compile(r"([0-9]{1,4})\.")


def generation_of(frame: Frame) -> Generation:
    """The generation of who has written a frame.

    Raises:
        CodecError: `network.form`, no released node writes so.
    """
    if frame.form is Form.ARRAY:
        return _NEWEST
    major = _MAJOR.match(frame.version) if frame.form is Form.OBJECT else None
    if major is None:
        raise CodecError("network.form", "no frame of a released node")
    return GENERATIONS["13" if int(major[1]) <= _CONTROL_1_MAJOR_MAX else "19"]


def duplicate_code(path: str) -> int:
    """With which code to close a second link of who has dialled a path: as it would do itself."""
    known = _NEWEST if path.endswith(_NEWEST.path) else GENERATIONS["13"]
    return known.duplicate_code
