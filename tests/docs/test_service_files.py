"""The unit and the container file hold what they promise, where they cannot be run."""

import configparser
import json
import re
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from doc_support import ROOT
from rillnode import __version__
from rillnode.actors.core.access import GRANT_VERBS
from rillnode.node.cli.command import build_parser
from rillnode.node.cli.failures import Exit
from rillnode.node.cli.run import FAILED_SECONDS_MAX
from rillnode.node.config.loading import check_config, parse_config

pytestmark = pytest.mark.check


UNIT = ROOT / "configs" / "rillnode.service"
CONTAINER = ROOT / "configs" / "Containerfile"
CHART = ROOT / "configs" / "chart"


class _Unit(configparser.RawConfigParser):
    def optionxform(self, optionstr: str) -> str:
        return optionstr


@pytest.fixture
def unit() -> _Unit:
    unit = _Unit(strict=False)
    unit.read(UNIT)
    return unit


@pytest.fixture
def service(unit: _Unit) -> dict[str, str]:
    return dict(unit["Service"])


def test_the_command_of_the_unit_is_one(service: dict[str, str]) -> None:
    _, *argv = service["ExecStart"].split()
    args = build_parser().parse_args(argv)
    assert (str(args.config), str(args.data_dir)) == (
        "/etc/rillnode/node.toml",
        f"/var/lib/{service['StateDirectory']}",
    )
    # Longer than a drain of the node and of its jobs.
    assert int(service["TimeoutStopSec"]) > 40


@pytest.mark.needs("systemd-analyze")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    text = UNIT.read_text(encoding="utf-8")
    copy = tmp_path / UNIT.name
    copy.write_text(text.replace("/opt/rillnode/bin/rillnode", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True, timeout=300
    )
    assert "rillnode.service" not in done.stderr, done.stderr


def test_a_node_that_cannot_go_on_is_started_again_within_a_limit(
    unit: _Unit, service: dict[str, str]
) -> None:
    assert service["Restart"] == "on-failure"
    never = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert never == {Exit.USAGE}
    assert "SuccessExitStatus" not in service
    seconds, starts = (int(unit["Unit"][f"StartLimit{key}"]) for key in ("IntervalSec", "Burst"))
    # So that one that fails at once, and one that takes its time to end, both reach it.
    assert starts * (int(service["RestartSec"]) + FAILED_SECONDS_MAX) < seconds


def test_the_unit_is_hardened(service: dict[str, str]) -> None:
    wanted = {"ProtectSystem": "strict", "NoNewPrivileges": "yes", "CapabilityBoundingSet": ""}
    assert wanted.items() <= service.items()


# The container file ----------------------------------------------------------------------------


def instructions() -> Iterator[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", CONTAINER.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if line.strip():
            name, _, rest = line.partition(" ")
            yield name, rest.strip()


def last_stage() -> dict[str, str]:
    found: dict[str, str] = {}
    for name, rest in instructions():
        found = {name: rest} if name == "FROM" else {**found, name: rest}
    return found


def test_every_instruction_is_one() -> None:
    known = {
        "FROM", "RUN", "WORKDIR", "COPY", "ENV", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL",
        "HEALTHCHECK", "ENTRYPOINT", "CMD",
    }  # fmt: skip
    names = [name for name, _ in instructions()]
    assert set(names) <= known
    assert names[0] == "FROM"


def test_bases_have_a_release_and_packages_leave_no_lists() -> None:
    bases = [rest.split()[0] for name, rest in instructions() if name == "FROM"]
    assert all(re.fullmatch(r"docker\.io/library/debian:[a-z]+-slim", base) for base in bases)
    for name, rest in instructions():
        if name == "RUN" and "apt-get install" in rest:
            assert "--no-install-recommends" in rest
            assert "rm -rf /var/lib/apt/lists/*" in rest


def test_what_is_copied_is_there() -> None:
    copied = [
        path
        for name, rest in instructions()
        if name == "COPY" and not rest.startswith("--from")
        for path in rest.split()[:-1]
    ]
    assert {"src", "node", "actors", "codecs", "transports", "pyproject.toml"} <= set(copied)
    assert all((ROOT / path).exists() for path in copied)


def test_the_process_is_not_root_and_its_health_is_checked() -> None:
    stage = last_stage()
    user, _, group = stage["USER"].partition(":")
    assert int(user) >= 1_000
    assert int(group) >= 1_000
    _, _, command = stage["HEALTHCHECK"].partition("CMD ")
    python, option, script = json.loads(command)
    assert (python, option, "/readyz" in script) == ("python3", "-c", True)
    compile(script, "healthcheck", "exec")


def test_podman_is_told_to_keep_the_health_check() -> None:
    """An image in its own format would have none."""
    for text in (CONTAINER, ROOT / "docs" / "how-to" / "container.md"):
        (build,) = re.findall(
            r"^.*podman build .*$", text.read_text(encoding="utf-8"), re.MULTILINE
        )
        assert "--format docker" in build


def test_the_command_of_the_image_is_one() -> None:
    stage = last_stage()
    *_, program = json.loads(stage["ENTRYPOINT"])
    assert program == "rillnode"
    args = build_parser().parse_args(json.loads(stage["CMD"]))
    assert str(args.config) == f"{stage['VOLUME']}/node.toml"


# Compose and Helm ------------------------------------------------------------------------------


def document(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_compose_runs_the_image_as_the_how_to_does() -> None:
    (service,) = document(ROOT / "configs" / "compose.yaml")["services"].values()
    build = service["build"]
    assert (ROOT / "configs" / build["context"] / build["dockerfile"]).resolve() == CONTAINER
    assert service["volumes"] == [f"data:{last_stage()['VOLUME']}"]
    assert service["ports"] == ["127.0.0.1:4100:4100"]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges"]
    assert int(service["stop_grace_period"].removesuffix("s")) > 40


def helm(*words: str | Path) -> subprocess.CompletedProcess[str]:
    program = Path(sysconfig.get_path("scripts"), "helm")
    return subprocess.run([program, *words], capture_output=True, text=True, timeout=60)


@pytest.fixture
def values(tmp_path: Path) -> Path:
    """The values that the how-to shows, and a principal in the place of its dots."""
    text = (ROOT / "docs" / "how-to" / "container.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```text\n(image: .*?)```", text, re.DOTALL)
    file = tmp_path / "values.yaml"
    file.write_text(block.replace("noise:...", f"noise:{'ab' * 32}"))
    return file


@pytest.mark.needs("helm")
def test_helm_finds_nothing_wrong_with_the_chart(values: Path) -> None:
    done = helm("lint", "--strict", CHART, "-f", values)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.needs("helm")
def test_what_the_chart_makes_is_a_node_that_can_be_reached(values: Path) -> None:
    done = helm("template", "edge", CHART, "-f", values)
    assert done.returncode == 0, done.stderr
    made = {one["kind"]: one for one in yaml.safe_load_all(done.stdout)}
    assert made.keys() == {"ConfigMap", "Service", "StatefulSet"}
    config = parse_config(made["ConfigMap"]["data"]["node.toml"], Path("/etc/rillnode/node.toml"))
    check_config(config)
    assert (config.name, str(config.data_dir)) == ("edge", last_stage()["VOLUME"])
    assert [(one.who, one.may) for one in config.grants] == [(f"noise:{'ab' * 32}", ("admin",))]
    assert [(one.name, one.retain_seconds) for one in config.streams] == [("readings", 604_800)]
    pod = made["StatefulSet"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert container["image"] == "registry.example.org/rillnode:0.1.0"
    (port,) = made["Service"]["spec"]["ports"]
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert ports[port["targetPort"]] == port["port"]
    assert config.noise.listen == f"0.0.0.0:{port['port']}"
    assert made["Service"]["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    mounted = {one["mountPath"] for one in container["volumeMounts"]}
    assert {str(config.data_dir), "/etc/rillnode"} <= mounted


@pytest.mark.needs("helm")
def test_the_chart_refuses_wrong_values(tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("grants: [{who: 5, streams: s, may: [fly]}]")
    done = helm("template", "edge", CHART, "-f", values)
    assert done.returncode == 1
    assert "grants.0.who" in done.stderr
    assert "grants.0.may.0" in done.stderr


def test_the_chart_is_of_this_version_and_runs_the_image() -> None:
    about = document(CHART / "Chart.yaml")
    assert about["version"] == about["appVersion"] == __version__
    values, schema = document(CHART / "values.yaml"), document(CHART / "values.schema.json")
    assert values.keys() <= schema["properties"].keys()
    verbs = schema["properties"]["grants"]["items"]["properties"]["may"]["items"]["enum"]
    assert set(verbs) == set(GRANT_VERBS)
    pod = (CHART / "templates" / "statefulset.yaml").read_text(encoding="utf-8")
    (command,) = re.findall(r"args: (\[.*\])", pod)
    args = build_parser().parse_args(json.loads(command))
    assert f"mountPath: {args.config.parent}\n" in pod
    user = last_stage()["USER"].partition(":")[0]
    assert f"runAsUser: {user}\n" in pod
    assert f"mountPath: {last_stage()['VOLUME']}\n" in pod
    assert int(re.findall(r"terminationGracePeriodSeconds: (\d+)", pod)[0]) > 40
