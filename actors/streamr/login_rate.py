"""Limits the logins of one remote address."""

from collections import OrderedDict
from ipaddress import IPv6Address, ip_address
from typing import Final

from rillnode.codecs.streamr.limits import STREAMR_LOGIN_ADDRESSES_MAX

_MINUTE: Final = 60.0
_NETWORK_BITS: Final = 64
"""Of an IPv6 address, what one customer of a provider has for himself is the rest."""


class LoginRate:
    """Counts logins by remote address; a minute's share may be used up at once.

    The address that has not asked for longest is forgotten when there are too many.

    Args:
        per_minute: logins allowed to each address.
    """

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        # By address: what is left, and when that was so, in seconds that never go back.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def admit(self, remote: str, now: float) -> bool:
        """Count a login at `now`, or refuse it."""
        key = _network(remote)
        left, since = self._left.pop(key, (float(self._per_minute), now))
        left = min(left + (now - since) * self._per_minute / _MINUTE, float(self._per_minute))
        admitted = left >= 1.0
        self._left[key] = (left - admitted, now)
        if len(self._left) > STREAMR_LOGIN_ADDRESSES_MAX:
            self._left.popitem(last=False)
        return admitted


def _network(remote: str) -> str:
    try:
        address = ip_address(remote)
    except ValueError:
        return remote
    if isinstance(address, IPv6Address):
        mapped = address.ipv4_mapped
        if mapped is None:
            return f"{int(address) >> _NETWORK_BITS:x}"
        return str(mapped)
    return remote
