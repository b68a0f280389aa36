"""The kinds of values in `node.toml`: what a key may be, and how errors and references call it.

A title is what an error says the value must be; examples stand in a new `node.toml` for keys that
have no default.
"""

from typing import Annotated, Literal

from msgspec import Meta

from rillnode.codecs.limits import PARTITIONS_MAX
from rillnode.node.config.location import Location

Name = Annotated[str, Meta(min_length=1, title="a text that is not empty")]
HostPort = Annotated[
    str,
    Meta(
        pattern=r"^(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]/]+):[0-9]{1,5}$",
        title='"host:port", port 0 to 65535 ("[::1]:4100" for IPv6)',
    ),
]
KeyHex = Annotated[
    str, Meta(pattern=r"^[0-9a-f]{64}$", title="64 hexadecimal digits in lower case")
]
KeysHex = Annotated[
    str,
    Meta(
        pattern=r"^[0-9a-f]{64}(,[0-9a-f]{64})*$",
        title="64 hexadecimal digits in lower case; several keys have commas between them",
    ),
]
Seconds = Annotated[float, Meta(gt=0)]
Days = Annotated[float, Meta(gt=0, le=100_000, title="a number of days")]
SecondsOrNever = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Partitions = Annotated[int, Meta(ge=1, le=PARTITIONS_MAX)]
TableLocation = Annotated[
    Location, Meta(title='a directory, or a URL such as "s3://bucket/tables"')
]
Layer = Literal["codecs", "transports", "actors", "node"]
Level = Literal["debug", "info", "warning", "error"]
OnFatal = Literal["exit", "stay"]
