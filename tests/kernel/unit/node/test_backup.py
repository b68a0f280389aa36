import errno
import json
import shutil
import signal
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path

import pytest

from forked import Forked
from rillnode.node.backup import (
    BACKUP_VERSION,
    MANIFEST,
    BackupError,
    Manifest,
    Source,
    check_backup,
    make_backup,
    restore_backup,
    source_bytes,
)

ABOUT = Manifest(
    version=BACKUP_VERSION,
    made_at=1,
    software="0",
    store_format=1,
    name="edge",
    identity="00" * 32,
    files=(),
)
FILES = {"000004.sst": b"table" * 1_000, "MANIFEST-000001": b"manifest", "CURRENT": b"current"}


@pytest.fixture
def source(tmp_path: Path) -> Source:
    data = tmp_path / "node" / "data"
    (data / "store").mkdir(parents=True)
    for name, content in FILES.items():
        (data / "store" / name).write_bytes(content)
    for name in ("LOCK", "LOG", "LOG.old.123", "000007.dbtmp"):
        (data / "store" / name).write_bytes(b"unneeded")
    (data / "identity.key").write_text("11" * 32)
    config = tmp_path / "node" / "node.toml"
    config.write_text('name = "edge"\n')
    return Source(store=data / "store", keys=(data / "identity.key",), config=config)


def made(source: Source, tmp_path: Path) -> Path:
    make_backup(source, tmp_path / "backup", ABOUT)
    return tmp_path / "backup"


def contents(home: Path) -> dict[str, bytes]:
    found = (path for path in home.rglob("*") if path.is_file())
    return {str(path.relative_to(home)): path.read_bytes() for path in found}


EXPECTED = {
    **{f"data/store/{name}": content for name, content in FILES.items()},
    "data/identity.key": b"11" * 32,
    "node.toml": b'name = "edge"\n',
}


def test_what_was_backed_up_is_restored(source: Source, tmp_path: Path) -> None:
    done: list[int] = []
    manifest = make_backup(source, tmp_path / "deep" / "backup", ABOUT, done.append)
    assert sum(done) == 2 * source_bytes(source) == 2 * manifest.size
    assert check_backup(tmp_path / "deep" / "backup") == manifest
    restored = restore_backup(tmp_path / "deep" / "backup", tmp_path / "home")
    assert contents(tmp_path / "home") == EXPECTED
    assert (restored.name, restored.identity) == ("edge", "00" * 32)


def test_the_nodes_own_files_may_be_links(source: Source, tmp_path: Path) -> None:
    config = source.config
    assert config is not None
    config.rename(tmp_path / "elsewhere.toml")
    config.symlink_to(tmp_path / "elsewhere.toml")
    restore_backup(made(source, tmp_path), tmp_path / "home")
    assert contents(tmp_path / "home") == EXPECTED
    assert not (tmp_path / "home" / "node.toml").is_symlink()


def test_nobody_else_may_read_a_backup_or_what_is_restored(source: Source, tmp_path: Path) -> None:
    backup = made(source, tmp_path)
    restore_backup(backup, tmp_path / "home")
    for home in (backup, tmp_path / "home"):
        assert home.stat().st_mode & 0o077 == 0
        assert {path.stat().st_mode & 0o077 for path in home.rglob("*") if path.is_file()} == {0}


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("harm", ["changed", "shorter", "missing"])
def test_a_harmed_backup_is_refused_and_leaves_nothing(
    source: Source, tmp_path: Path, name: str, harm: str
) -> None:
    backup = made(source, tmp_path)
    file = backup / name
    content = bytearray(file.read_bytes())
    if harm == "missing":
        file.unlink()
    else:
        content[-1] ^= 1
        file.write_bytes(content if harm == "changed" else content[:-1])
    with pytest.raises(BackupError) as caught:
        check_backup(backup)
    assert caught.value.code == "backup.harmed"
    with pytest.raises(BackupError):
        restore_backup(backup, tmp_path / "home")
    assert not (tmp_path / "home").exists()


def change(backup: Path, **values: object) -> None:
    path = backup / MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize("path", ["../escaped", "/etc/escaped", "data/../../x", "", "a//b", "."])
def test_a_manifest_cannot_lead_outside(source: Source, tmp_path: Path, path: str) -> None:
    backup = made(source, tmp_path)
    change(backup, files=[{"path": path, "size": 0, "sha256": ""}])
    with pytest.raises(BackupError, match="names a file outside") as caught:
        restore_backup(backup, tmp_path / "home")
    assert caught.value.code == "backup.harmed"


def test_a_link_in_a_backup_is_not_followed(source: Source, tmp_path: Path) -> None:
    backup = made(source, tmp_path)
    (backup / "node.toml").unlink()
    (backup / "node.toml").symlink_to(tmp_path / "node" / "node.toml")
    with pytest.raises(BackupError):
        restore_backup(backup, tmp_path / "home")
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "backup.harmed"),
        ("[]", "backup.harmed"),
        ('{"version": 1}', "backup.harmed"),
        ('{"version": 2, "unheard": "of"}', "backup.version"),
    ],
)
def test_what_a_manifest_cannot_be(source: Source, tmp_path: Path, text: str, code: str) -> None:
    backup = made(source, tmp_path)
    (backup / MANIFEST).write_text(text)
    with pytest.raises(BackupError) as caught:
        restore_backup(backup, tmp_path / "home")
    assert caught.value.code == code


def test_a_directory_that_is_no_backup(tmp_path: Path) -> None:
    with pytest.raises(BackupError) as caught:
        check_backup(tmp_path)
    assert caught.value.code == "backup.none"


def test_nothing_is_overwritten(source: Source, tmp_path: Path) -> None:
    backup = made(source, tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    (home / "mine").write_text("precious")
    attempts = (
        partial(restore_backup, backup, home),
        partial(make_backup, source, home, ABOUT),
        partial(make_backup, source, home / "mine", ABOUT),
    )
    for attempt in attempts:
        with pytest.raises(BackupError) as caught:
            attempt()
        assert caught.value.code == "backup.occupied"
    assert contents(home) == {"mine": b"precious"}


def test_an_empty_directory_is_taken(source: Source, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    restore_backup(made(source, tmp_path), tmp_path / "home")
    assert contents(tmp_path / "home") == EXPECTED


@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_followed_to_an_empty_directory(
    source: Source, tmp_path: Path, there: bool
) -> None:
    """As where a backup's disk is reached by a link."""
    disk, home = tmp_path / "disk" / "home", tmp_path / "home"
    disk.parent.mkdir()
    if there:
        disk.mkdir()
    home.symlink_to(disk)
    restore_backup(made(source, tmp_path), home)
    assert home.is_symlink()
    assert contents(disk) == EXPECTED


MOUNTED = """
    import errno, subprocess, sys
    from pathlib import Path
    from rillnode.node.backup import BackupError, restore_backup

    backup, home, *options = sys.argv[1:]
    subprocess.run(["mount", *options, home], check=True)
    copied = []
    try:
        restore_backup(Path(backup), Path(home), copied.append)
    except BackupError as error:
        assert not copied
        print(error)
    restore_backup(Path(backup), Path(home) / "edge")
"""


@pytest.mark.parametrize("kind", ["another file system", "bound"])
def test_a_mount_point_is_refused_before_any_work(
    source: Source, tmp_path: Path, kind: str
) -> None:
    """As a container's volume is: nothing can be renamed to it."""
    space = ("unshare", "--map-root-user", "--mount")
    if shutil.which("unshare") is None or subprocess.run((*space, "true")).returncode:
        pytest.skip("needs a mount namespace")
    backup, home, other = made(source, tmp_path), tmp_path / "home", tmp_path / "other"
    home.mkdir()
    other.mkdir()
    options = ("--bind", str(other)) if kind == "bound" else ("-t", "tmpfs", "tmpfs")
    script = textwrap.dedent(MOUNTED)
    run = subprocess.run(
        (*space, sys.executable, "-c", script, str(backup), str(home), *options),
        stdout=subprocess.PIPE, text=True, check=True, timeout=300,
    )  # fmt: skip
    assert "is a mount point" in run.stdout
    assert "[backup.occupied]" in run.stdout
    assert not [*tmp_path.glob(".*")]
    if kind == "bound":
        assert contents(other / "edge") == EXPECTED


def test_nothing_is_restored_into_the_backup(source: Source, tmp_path: Path) -> None:
    backup = made(source, tmp_path)
    before = contents(backup)
    (tmp_path / "link").symlink_to(backup)
    for home in (backup / "x", tmp_path / "link" / "data" / "x", tmp_path / "a" / ".." / "backup"):
        with pytest.raises(BackupError, match="lies in the backup") as caught:
            restore_backup(backup, home)
        assert caught.value.code == "backup.occupied"
    assert contents(backup) == before
    assert not (backup / "data" / "x").exists()


def test_what_fails_leaves_nothing(source: Source, tmp_path: Path) -> None:
    """It would hold secret keys, and the room that was missing."""
    backup = made(source, tmp_path)
    before = contents(tmp_path)

    def full(size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    attempts = (
        partial(restore_backup, backup, tmp_path / "home", full),
        partial(make_backup, source, tmp_path / "home", ABOUT, full),
    )
    for attempt in attempts:
        with pytest.raises(BackupError, match="No space left") as caught:
            attempt()
        assert caught.value.code == "backup.failed"
        assert contents(tmp_path) == before


# Killed --------------------------------------------------------------------------------------

KILLED_AFTER = """
    import os, signal, sys
    from pathlib import Path
    from rillnode.node import backup
    ABOUT = backup.Manifest(version=1, made_at=1, software="0", store_format=1, name="edge",
                            identity="", files=())

    verb, first, second, calls = sys.argv[1:]
    left = [int(calls)]

    def on_bytes(size):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    if verb == "backup":
        data = Path(first) / "data"
        source = backup.Source(store=data / "store", keys=(data / "identity.key",),
                               config=Path(first) / "node.toml")
        backup.make_backup(source, Path(second), ABOUT, on_bytes)
    else:
        backup.restore_backup(Path(first), Path(second), on_bytes)
"""


def killed(verb: str, first: Path, second: Path, calls: int) -> None:
    """Do it in a process that kills itself in the middle, after so many pieces."""
    script = textwrap.dedent(KILLED_AFTER)
    process = Forked("-c", script, verb, first, second, str(calls))
    assert process.wait(300.0) == -signal.SIGKILL


@pytest.mark.parametrize("calls", [1, 3, 5, 7, 10])
def test_a_killed_backup_leaves_nothing_under_its_name_and_can_be_repeated(
    source: Source, tmp_path: Path, calls: int
) -> None:
    killed("backup", tmp_path / "node", tmp_path / "backup", calls)
    assert not (tmp_path / "backup").exists()
    assert contents(tmp_path / "node" / "data" / "store").items() >= FILES.items()
    restore_backup(made(source, tmp_path), tmp_path / "home")
    assert contents(tmp_path / "home") == EXPECTED
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("calls", [1, 3, 5])
def test_a_killed_restore_leaves_nothing_under_its_name_and_can_be_repeated(
    source: Source, tmp_path: Path, calls: int
) -> None:
    backup = made(source, tmp_path)
    killed("restore", backup, tmp_path / "home", calls)
    assert not (tmp_path / "home").exists()
    check_backup(backup)
    restore_backup(backup, tmp_path / "home")
    assert contents(tmp_path / "home") == EXPECTED
    assert not list(tmp_path.glob(".*"))
