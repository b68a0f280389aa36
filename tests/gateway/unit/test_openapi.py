"""The OpenAPI document: valid, made anew, and of the very paths that are served."""

import json
import re
from typing import Any

import pytest

import generate
import openapi_document
from rillnode.node.gateway.plugin import ROUTES, Gateway

DOCUMENT: dict[str, Any] = json.loads(generate.SERVED.read_text("utf-8"))


@pytest.mark.check
def test_it_is_as_the_code_says() -> None:
    assert generate.SERVED.read_text("utf-8") == openapi_document.served(), (
        "run `python docs/generate.py`"
    )


def test_it_is_valid() -> None:
    validator = pytest.importorskip("openapi_spec_validator")
    validator.validate(DOCUMENT)


def test_it_has_what_is_served() -> None:
    described = {
        (method.upper(), path): one["operationId"]
        for path, operations in DOCUMENT["paths"].items()
        for method, one in operations.items()
    }
    assert described == {(method, path): handler for method, path, handler in ROUTES}
    assert all(callable(getattr(Gateway, handler)) for handler in described.values())


def test_every_path_says_its_names_and_its_errors() -> None:
    for path, operations in DOCUMENT["paths"].items():
        names = set(re.findall(r"\{(\w+)\}", path))
        for one in operations.values():
            in_path = {each["name"] for each in one["parameters"] if each["in"] == "path"}
            assert in_path == names
            for status, answer in one["responses"].items():
                media = set(answer["content"])
                assert (media == {"application/problem+json"}) is (int(status) >= 400)
