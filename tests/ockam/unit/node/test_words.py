"""No application takes an address of Ockam's services, whether they are on or not."""

import pytest

from rillnode.actors.apps.addresses import check_address
from rillnode.actors.ockam import pub_sub, static_forwarding
from rillnode.actors.ockam.catalog import addresses_of
from rillnode.actors.ockam.names import SERVICE_NAMES
from rillnode.codecs.errors import RequestError


@pytest.mark.parametrize(
    "address",
    [
        *(address.decode() for name in SERVICE_NAMES for address in addresses_of(name)),
        static_forwarding.API_ADDRESS.decode(),
        f"{static_forwarding.PREFIX.decode()}x",
        f"{pub_sub.PREFIX.decode()}x",
        "SC_listener",
        "api",
    ],
)
def test_no_application_takes_an_address_of_it(address: str) -> None:
    with pytest.raises(RequestError) as caught:
        check_address(address)
    assert caught.value.code == "address.reserved"
