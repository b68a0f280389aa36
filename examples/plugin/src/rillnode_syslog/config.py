"""The table `[syslog]`: imported wherever a configuration is read that has it."""

from typing import ClassVar

from rillnode.node.config import Listener, PlugInTable
from rillnode.node.config.kinds import HostPort, Name


class SyslogTable(Listener, PlugInTable, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Syslog messages (RFC 5424), over UDP and TCP on the same port.

    Attributes:
        stream: The stream that they go into, as JSON; it is made where it is not there.
    """

    table: ClassVar[str] = "syslog"
    plug_in: ClassVar[str] = "syslog"

    listen: HostPort = "127.0.0.1:5514"
    stream: Name = "syslog"
