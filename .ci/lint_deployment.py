"""Lints compose file and chart, and checks what the chart renders: see lint-deployment."""

import sys
import tomllib
from pathlib import Path
from typing import Any

import compose_spec
import helm_python
import kubernetes_validate
import yaml

CONFIGS = Path("configs")
CHART = CONFIGS / "chart"
KUBERNETES = ("1.29", "1.32", "1.35")
GRANT = {"who": "noise:" + "ab" * 32, "streams": "*", "may": ["create", "push"]}
VALUES: tuple[dict[str, Any], ...] = (
    {},
    {
        "grants": [GRANT, {"who": "*", "addresses": 'a"b', "may": ["send"]}],
        "config": '[[stream]]\nname = "s"\nretain_seconds = 60\n',
        "storage": {"className": "fast"},
        "service": {"type": "LoadBalancer"},
        "nodeName": 'a "name"',
    },
)
"""What the chart is rendered with."""


def main() -> int:
    """Print what is wrong; 1 if anything is."""
    wrong: list[str] = []
    compose_spec.PyCompose.from_yaml((CONFIGS / "compose.yaml").read_text())
    for values in VALUES:
        found = helm_python.lint(str(CHART), values=values, strict=True)
        wrong += found["errors"]
        rendered = helm_python.Chart.load(CHART).render(values, name="edge")
        for name, text in rendered.items():
            for document in filter(None, yaml.safe_load_all(text)):
                for version in KUBERNETES:
                    kubernetes_validate.validate(document, version, strict=True)
                if document["kind"] == "ConfigMap":
                    tomllib.loads(document["data"]["node.toml"])
                print(f"{name}: {document['kind']}")
    try:
        helm_python.Chart.load(CHART).validate_schema({"grants": [{"who": "*"}]})
        wrong.append("a grant for nothing is taken")
    except helm_python.HelmValuesError:
        pass
    print("\n".join(wrong) or "compose file and chart are well")
    return 1 if wrong else 0


sys.exit(main())
