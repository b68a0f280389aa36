"""The table of hub services."""

import pytest

from rillnode.actors.ockam.names import SERVICE_NAMES
from rillnode.codecs.errors import ConfigError
from rillnode.node.config import load_config


def test_every_service_is_on_unless_others_are_named() -> None:
    assert load_config(None, ["name=a"]).services.enabled == SERVICE_NAMES
    config = load_config(None, ["name=a", "services.enabled=['echo', 'discovery']"])
    assert config.services.enabled == ("echo", "discovery")
    assert load_config(None, ["name=a", "services.enabled=[]"]).services.enabled == ()


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
