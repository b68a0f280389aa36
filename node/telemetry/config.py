"""The table of `node.toml` that says where spans go."""

from typing import Annotated, ClassVar

from msgspec import Meta

from rillnode.node.config.plug_in_table import PlugInTable

CollectorUrl = Annotated[
    str,
    Meta(
        pattern=r"^https?://[^\s/?#]+(/[^\s?#]*)?$",
        title='"http://host:port" or "https://host:port"',
    ),
]


class TelemetryTable(PlugInTable, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """OpenTelemetry spans of what the node does, batch by batch. Needs the extra `telemetry`.

    Attributes:
        enabled: Whether the node makes spans.
        endpoint: URL of the collector, which takes OTLP over HTTP.
        sample_ratio: Share of the traces begun at this node that are kept; other nodes decide about
            theirs.
    """

    table: ClassVar[str] = "telemetry"
    plug_in: ClassVar[str] = "telemetry"

    enabled: bool = False
    endpoint: CollectorUrl = "http://127.0.0.1:4318"
    sample_ratio: Annotated[float, Meta(ge=0, le=1, title="a number from 0 to 1")] = 1.0
