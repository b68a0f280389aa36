"""No application takes an address of the overlay, whether a node is in one or not."""

import pytest

from rillnode.actors.apps.addresses import check_address
from rillnode.actors.core.principals import unfit_principal
from rillnode.actors.overlay import context, stream_keys, tracker
from rillnode.codecs.errors import RequestError
from rillnode.node.overlay import overlay, released


@pytest.mark.parametrize(
    "address",
    [
        tracker.ADDRESS.decode(),
        context.MEMBER_ADDRESS.decode(),
        f"{stream_keys.ADDRESS_PREFIX.decode()}x",
        f"{overlay.LINK_PREFIX.decode()}x",
        f"{released.TRACKER_PREFIX.decode()}x",
    ],
)
def test_no_application_takes_an_address_of_it(address: str) -> None:
    with pytest.raises(RequestError) as caught:
        check_address(address)
    assert caught.value.code == "address.reserved"


@pytest.mark.parametrize("who", ["streamr:*", "streamr:0xAb#17", "streamr:0xAb#*"])
def test_a_principal_of_its_kind_is_one(who: str) -> None:
    assert unfit_principal(who, granted=True) is None
    assert (unfit_principal(who) is None) is False


@pytest.mark.parametrize("who", ["streamr", "streamr:a b", "streamr:" + "a" * 257])
def test_a_principal_is_not_of_its_kind(who: str) -> None:
    assert unfit_principal(who, granted=True)
