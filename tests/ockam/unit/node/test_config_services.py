"""The table of hub services."""

import pytest

from rillnode.actors.ockam.names import SERVICE_NAMES
from rillnode.codecs.errors import ConfigError
from rillnode.node.config import load_config
from rillnode.node.ockam.config import ServicesTable


def test_every_service_is_on_where_the_table_names_no_others() -> None:
    assert ServicesTable().enabled == SERVICE_NAMES
    assert load_config(None, ["name=a"]).tables == ()
    config = load_config(None, ["name=a", "services.enabled=['echo', 'discovery']"])
    assert config.tables == (ServicesTable(enabled=("echo", "discovery")),)
    (none,) = load_config(None, ["name=a", "services.enabled=[]"]).tables
    assert not none.asks


def test_a_service_that_there_is_not_is_an_error_that_names_those_there_are() -> None:
    with pytest.raises(ConfigError) as error:
        load_config(None, ["name=a", "services.enabled=['echo', 'kafka']"])
    assert "services.enabled[1]" in error.value.text
    assert "kafka" in error.value.text
    assert "stream_subscribe" in error.value.text


def test_a_service_named_twice_is_a_mistake() -> None:
    with pytest.raises(ConfigError) as error:
        load_config(None, ["name=a", "services.enabled=['echo', 'echo']"])
    assert error.value.code == "config.conflict"
    assert "services.enabled" in error.value.text
