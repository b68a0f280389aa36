"""Reading a configuration: values, precedence, and an error for everything that cannot be."""

from pathlib import Path

import pytest

from deleted_rooms import there
from each_row import each_row
from rillnode.actors.core.access import Grant
from rillnode.actors.core.quotas import Quota
from rillnode.actors.core.streams.rules import StreamRules
from rillnode.actors.log import Retention
from rillnode.codecs.errors import ConfigError
from rillnode.node.config import (
    Config,
    HttpListener,
    Location,
    load_config,
    parse_address,
    parse_config,
)
from rillnode.node.spark.config import sinks_of

CONFIGS = Path(__file__).parents[4] / "configs"
FILE = Path("/etc/rillnode/node.toml")
NAME = 'name = "a"\n'
SINK = '[[sink.spark]]\nname = "bronze"\nstreams = ["*"]\ntable_dir = "tables"\n'
S3_SINK = SINK.replace("tables", "s3://b/tables") + 'checkpoint_dir = "c"\n'
HEX = "0a" * 32


def error_of(text: str, path: Path = FILE) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, path)
    return caught.value


def test_a_name_is_enough() -> None:
    config = parse_config(NAME, FILE)
    assert config.name == "a"
    assert config.noise.address == ("127.0.0.1", 4100)
    assert config.http.address == ("127.0.0.1", 8080)
    assert list(config.listeners()) == ["noise", "http"]
    assert config.grants == ()


def test_paths_are_relative_to_the_file() -> None:
    config = parse_config(NAME + 'identity.key_file = "keys/a.key"\n' + SINK, FILE)
    assert config.data_dir == Path("/etc/rillnode/data")
    assert config.store_dir == Path("/etc/rillnode/data/store")
    assert config.key_file == Path("/etc/rillnode/keys/a.key")
    assert config.admin_key_file == Path("/etc/rillnode/data/admin.key")
    (sink,) = sinks_of(config).spark
    assert sink.table_dir == Location("/etc/rillnode/tables")
    assert sink.checkpoint_path == Path("/etc/rillnode/tables/_checkpoints/bronze")


def test_tables_may_lie_at_urls_and_their_checkpoints_in_directories() -> None:
    text = f'{NAME}{S3_SINK}silver_dir = "s3://b/silver/"\ngold_dir = "gold"\n'
    (sink,) = sinks_of(parse_config(text, FILE)).spark
    assert (sink.table_dir, sink.table_dir.path) == (Location("s3://b/tables"), None)
    assert sink.silver_dir == Location("s3://b/silver")
    assert sink.gold_dir == Location("/etc/rillnode/gold")
    assert sink.checkpoint_path == Path("/etc/rillnode/c")
    assert sink.silver_checkpoint_path == Path("/etc/rillnode/c-silver")


def test_credentials_in_a_url_are_not_shown() -> None:
    text = f'{NAME}{S3_SINK.replace("s3://b", "s3://me:secret@b")}silver_dir = "tables"\n'
    with pytest.raises(ConfigError) as caught:
        parse_config(text, FILE)
    assert "secret" not in str(caught.value)


def test_absolute_and_home_paths_stay() -> None:
    config = parse_config(NAME + 'data_dir = "/var/lib/rillnode/../a"\n', FILE)
    assert config.data_dir == Path("/var/lib/a")
    assert parse_config(NAME + 'data_dir = "~/a"\n', FILE).data_dir == Path.home() / "a"


@pytest.mark.parametrize("table", there("ockam", "streamr", "nextgraph"))
def test_a_listener_is_on_when_its_table_is_present(table: str) -> None:
    assert table in parse_config(f"{NAME}[{table}]\n", FILE).listeners()
    assert table not in parse_config(f"{NAME}[{table}]\nenabled = false\n", FILE).listeners()


def test_noise_and_http_can_be_turned_off() -> None:
    config = parse_config(NAME + "noise.enabled = false\nhttp.enabled = false\n", FILE)
    assert config.listeners() == {}


def test_a_grant_may_be_for_addresses() -> None:
    text = '[[grant]]\nwho = "anonymous"\naddresses = "greeter*"\nmay = ["send"]\n'
    (table,) = parse_config(NAME + text, FILE).grants
    assert table.grant() == Grant(who="anonymous", addresses="greeter*", may=frozenset({"send"}))


def test_tables_become_what_the_node_works_with() -> None:
    config = parse_config(
        NAME
        + f'[[grant]]\nwho = "noise:{HEX}"\nstreams = "s*"\nmay = ["push", "pull"]\n'
        + '[[stream]]\nname = "s"\npartitions = 4\nretain_seconds = 60\nretain_bytes_max = 1_000\n',
        FILE,
    )
    assert config.grants[0].grant() == Grant(
        who=f"noise:{HEX}", streams="s*", may=frozenset({"push", "pull"})
    )
    assert config.streams[0].partitions == 4
    assert config.streams[0].retention == Retention(seconds=60.0, bytes_max=1_000)


@each_row(
    [
        ("", "config.missing", f"{FILE}: name: missing"),
        ("name = ", "config.syntax", f"{FILE}: not TOML"),
        (
            'name = "a"\n[ockam.channel]\n[ockam.channel]\n',
            "config.syntax",
            "[ockam.channel] stands in the file already: put the keys there (at line 3",
        ),
        (
            'name = "a"\n[[grant]]\n[grant]\n',
            "config.syntax",
            "there may be several, each under a line [[grant]], not [grant] (at line 3",
        ),
        (NAME + "[grant]\n", "config.value", ":2: grant: expected [[grant]], with two brackets"),
        (NAME + "[[http]]\n", "config.value", ":2: http: expected [http], with one pair of"),
        (NAME + "[[grants]]\n", "config.unknown_key", ":2: grants: unknown key; did you mean"),
        (
            NAME + '[http]\non_fatal = "stay"\n',
            "config.unknown_key",
            ":3: http.on_fatal: unknown key; it belongs above the first [table] of the file",
        ),
        (NAME + "nois = 1\n", "config.unknown_key", ":2: nois: unknown key; did you mean noise?"),
        (NAME + "\n[noise]\n\nlissen = 1\n", "config.unknown_key", ":5: noise.lissen: unknown key"),
        (NAME + "[noise]\nlisten = 5\n", "config.value", 'noise.listen: 5: expected "host:port"'),
        (NAME + 'noise.listen = "localhost"\n', "config.value", ":2: noise.listen: 'localhost'"),
        (NAME + 'noise.listen = "a:65536"\n', "config.value", "port 0 to 65535"),
        (NAME + "noise = 5\n", "config.value", ":2: noise: 5: expected a table"),
        (NAME + "data_dir = 5\n", "config.value", ":2: data_dir: 5: expected a path"),
        (NAME + 'data_dir = ""\n', "config.value", ":2: data_dir: '': expected a path"),
        ('name = ""\n', "config.value", ":1: name: '': expected a text that is not empty"),
        (
            NAME + 'on_fatal = "restart"\n',
            "config.value",
            ':2: on_fatal: \'restart\': expected one of "exit", "stay"',
        ),
        (
            NAME + 'store.engine = "sqlite"\n',
            "config.value",
            ":2: store.engine: 'sqlite': expected one of \"jetstream\"",
        ),
        (NAME + 'log.trace = ["noise", "loud"]\n', "config.value", "log.trace[1]: 'loud'"),
        (NAME + 'log.trace = ["log"]\n', "config.value", "the name of another listener's table"),
        (NAME + 'log.level = "loud"\n', "config.value", '"debug", "error", "info", "warning"'),
        (NAME + 'log.levels = { web = "info" }\n', "config.value", "log.levels: expected a table"),
        (
            NAME + '[[grant]]\nwho = "*"\nstreams = "*"\nmay = ["push", "poke"]\n',
            "config.value",
            ":5: grant[0].may[1]: 'poke': expected one of",
        ),
        (
            NAME + '[[grant]]\nwho = "*"\nstreams = "*"\nmay = []\n',
            "config.value",
            ":5: grant[0].may: expected a list of at least one of create",
        ),
        (
            NAME + '[[grant]]\nwho = "*"\nstreams = "*"\nmay = ["push", "push"]\n',
            "config.conflict",
            ":5: grant[0].may: names a verb twice",
        ),
        (
            NAME + '[[grant]]\nwho = "noise:12"\nstreams = "*"\nmay = ["push"]\n',
            "config.value",
            ":3: grant[0].who: 'noise:12': expected noise:HEX",
        ),
        (
            NAME + '[[grant]]\nwho = "*"\nstreams = "a[bc]"\nmay = ["push"]\n',
            "config.value",
            ":4: grant[0].streams: 'a[bc]': a pattern has",
        ),
        (
            NAME + '[[grant]]\nwho = "*"\nmay = ["push"]\n',
            "config.missing",
            "grant[0]: is for nothing: set streams or addresses",
        ),
        (
            NAME + '[[grant]]\nwho = "*"\naddresses = "a"\nmay = ["send", "push"]\n',
            "config.conflict",
            ":5: grant[0].may[1]: 'push' is for streams, and the grant names none",
        ),
        (
            NAME + '[[grant]]\nwho = "*"\nstreams = "s"\naddresses = "a"\nmay = ["push"]\n',
            "config.conflict",
            ":5: grant[0].addresses: nothing in may is for addresses, which have send, serve",
        ),
        (
            NAME + '[[grant]]\nwho = "*"\naddresses = "a[b]"\nmay = ["send"]\n',
            "config.value",
            ":4: grant[0].addresses: 'a[b]': a pattern has",
        ),
        (
            NAME + '[[stream]]\nname = "s"\n[[stream]]\nname = "s"\n',
            "config.conflict",
            ":5: stream[1].name: 's' is the name of stream[0] already",
        ),
        (
            NAME + f'[[stream]]\nname = "{"s" * 513}"\n',
            "config.value",
            "has 513 bytes, at most 512 allowed",
        ),
        (
            NAME + '[[stream]]\nname = "s"\npartitions = 1_025\n',
            "config.value",
            "stream[0].partitions: 1025: expected a whole number from 1 to 1024",
        ),
        (NAME + '[[stream]]\nname = "s"\npartitions = true\n', "config.value", "True: expected"),
        (NAME + SINK + SINK, "config.conflict", ":7: sink.spark[1].name: 'bronze' is the name of"),
        (
            NAME + SINK + SINK.replace("bronze", "x") + "trigger_seconds = 0\n",
            "config.value",
            ":10: sink.spark[1].trigger_seconds: 0: expected a number over 0",
        ),
        (NAME + SINK.replace('["*"]', "[]"), "config.value", "[0].streams: expected a list"),
        (NAME + SINK.replace("bronze", "../x"), "config.value", "'../x': expected 1 to 64 letters"),
        (NAME + SINK + "[noise]\nenabled = false\n", "config.conflict", ":7: noise.enabled: must"),
        (NAME + SINK + 'master = "lokal"\n', "config.value", 'such as "local[2]"'),
        (NAME + SINK + 'driver_memory = "1 GB"\n', "config.value", 'a number and "m" or "g"'),
        (
            NAME
            + SINK
            + 'checkpoint_dir = "c"\n'
            + SINK.replace("bronze", "x")
            + 'checkpoint_dir = "c"\n',
            "config.conflict",
            ":11: sink.spark[1].checkpoint_dir: /etc/rillnode/c is the checkpoint of sink 'bronze'",
        ),
        (NAME + SINK + 'gold_dir = "g"\n', "config.conflict", "gold_dir: is made of silver"),
        (
            NAME + S3_SINK.replace('checkpoint_dir = "c"', ""),
            "config.missing",
            "checkpoint_dir: missing; table_dir is a URL",
        ),
        (
            NAME + S3_SINK.replace("s3://b", "s3://me:secret@b"),
            "config.value",
            'table_dir: expected a URL such as "s3://bucket/tables", without credentials',
        ),
        (NAME + S3_SINK.replace("s3:", "ftp:"), "config.value", "table_dir: expected a URL"),
        (
            NAME + S3_SINK + 'silver_dir = "s3://b/tables/silver"\n',
            "config.conflict",
            "silver_dir: must lie apart from sink.spark[0].table_dir, s3://b/tables",
        ),
        (
            NAME + SINK + 'silver_dir = "tables/silver"\n',
            "config.conflict",
            "silver_dir: must lie apart from sink.spark[0].table_dir, /etc/rillnode/tables",
        ),
        (
            NAME
            + SINK
            + 'silver_dir = "s"\n'
            + SINK.replace("bronze", "x").replace("tables", "s/x"),
            "config.conflict",
            "sink.spark[0].silver_dir: must lie apart from sink.spark[1].table_dir",
        ),
        (
            NAME + f'[[peer]]\nname = "p"\nnoise = "h:1"\nidentity = "{"0A" * 32}"\n',
            "config.value",
            "expected 64 hexadecimal digits in lower case",
        ),
        (
            NAME + f'[[peer]]\nname = "p"\nnoise = "h:0"\nidentity = "{HEX}"\n',
            "config.value",
            "a peer's port cannot be 0",
        ),
        (NAME + '[[peer]]\nname = "p"\n', "config.conflict", ":2: peer[0]: needs either noise"),
        (
            NAME + f'[[peer]]\nname = "p"\nockam = "h:1"\nnoise = "h:2"\nidentity = "{HEX}"\n',
            "config.conflict",
            ":2: peer[0]: needs either noise and identity, or ockam",
        ),
        (
            NAME + '[[peer]]\nname = "p"\nnoise = "h:1"\n',
            "config.missing",
            "peer[0].identity: noise and identity need each other",
        ),
        (
            NAME + f'[[peer]]\nname = "p"\nockam = "h:1"\nidentity = "{HEX}"\n',
            "config.conflict",
            ":5: peer[0].identity: noise and identity need each other",
        ),
        (
            NAME + '[[peer]]\nname = "a;b"\nockam = "h:1"\n',
            "config.value",
            ":3: peer[0].name: 'a;b': expected 1 to 64 letters",
        ),
        (
            NAME + '[[peer]]\nname = "p"\nockam = "h:1"\nwho = ["*", "me"]\n',
            "config.value",
            ":5: peer[0].who[1]: 'me': expected noise:HEX",
        ),
        (
            NAME + '[[peer]]\nname = "p"\nockam = "h:1"\ndialect = "u32"\n',
            "config.value",
            ':5: peer[0].dialect: \'u32\': expected one of "2024", "u16"',
        ),
        (
            NAME + f'[[peer]]\nname = "p"\nnoise = "h:1"\nidentity = "{HEX}"\ndialect = "2024"\n',
            "config.conflict",
            ":6: peer[0].dialect: is of ockam",
        ),
        (
            NAME + '[ockam.channel]\nkey_file = "data/admin.key"\n',
            "config.conflict",
            ":3: ockam.channel.key_file: /etc/rillnode/data/admin.key is a key of another kind",
        ),
        (
            NAME + ('[[peer]]\nname = "p"\nockam = "h:1"\n' * 2).replace('p"', 'q"', 1),
            "config.conflict",
            ":7: peer[1].ockam: h:1 is the address of peer[0] already",
        ),
        (
            NAME + "[noise]\nidle_ping_seconds = 60\n",
            "config.conflict",
            ":3: noise.idle_ping_seconds: must be less than idle_close_seconds (60)",
        ),
    ]
)
def test_what_cannot_be_is_refused_with_line_and_key(text: str, code: str, said: str) -> None:
    error = error_of(text)
    assert error.code == code
    assert said in error.text
    assert error.context["file"] in (str(FILE), "")


def test_every_conflict_is_reported_at_once() -> None:
    text = NAME + '[http]\nlisten = "127.0.0.1:4100"\n[ockam]\nlisten = "0.0.0.0:5000"\n'
    rows = error_of(text).text.splitlines()
    assert [row.partition(": ")[0] for row in rows] == [f"{FILE}:5", f"{FILE}:3"]


@pytest.mark.parametrize("table", [*there("ockam", "streamr", "nextgraph"), "http"])
@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "[::]", "node.example.org"])
def test_data_in_clear_beyond_loopback_needs_a_word(table: str, host: str) -> None:
    text = f'{NAME}[{table}]\nlisten = "{host}:5000"\n'
    error = error_of(text)
    assert error.code == "config.plain"
    assert "allow_plain = true" in error.text
    assert table in parse_config(text + "allow_plain = true\n", FILE).listeners()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "[::1]", "localhost"])
def test_loopback_may_be_plain(host: str) -> None:
    assert parse_config(f'{NAME}http.listen = "{host}:5000"\n', FILE).http.address.loopback


def test_noise_is_encrypted_and_may_listen_anywhere() -> None:
    assert parse_config(f'{NAME}noise.listen = "0.0.0.0:5000"\n', FILE)


def test_tls_takes_the_place_of_allow_plain(tmp_path: Path) -> None:
    text = NAME + '[http]\nlisten = "0.0.0.0:443"\ntls_cert = "c.pem"\ntls_key = "k.pem"\n'
    assert f"no such file: {tmp_path}/c.pem" in error_of(text, tmp_path / "node.toml").text
    for name in ("c.pem", "k.pem"):
        (tmp_path / name).write_text("")
    assert parse_config(text, tmp_path / "node.toml").http.tls_cert == tmp_path / "c.pem"
    half = text.replace('tls_key = "k.pem"\n', "")
    assert "tls_cert and tls_key need each other" in error_of(half, tmp_path / "node.toml").text


@pytest.mark.parametrize(
    ("first", "second", "clash"),
    [
        ("127.0.0.1:5000", "127.0.0.1:5000", True),
        ("0.0.0.0:5000", "127.0.0.1:5000", True),
        ("127.0.0.1:5000", "127.0.0.2:5000", False),
        ("127.0.0.1:0", "127.0.0.1:0", False),
    ],
)
def test_two_listeners_cannot_share_a_port(first: str, second: str, clash: bool) -> None:
    text = f'{NAME}noise.listen = "{first}"\nhttp.listen = "{second}"\n'
    if clash:
        assert "is taken by noise.listen" in error_of(text).text
    else:
        parse_config(text, FILE)


@each_row(
    [
        "*", "anonymous", "noise:*", f"noise:{HEX}", f"ockam:{HEX}", "ockam:*", "apikey:grafana",
        "apikey:*",
    ]
)  # fmt: skip
def test_principals_of_every_kind_are_known(who: str) -> None:
    text = f'{NAME}[[grant]]\nwho = "{who}"\nstreams = "*"\nmay = ["pull"]\n'
    assert parse_config(text, FILE).grants[0].who == who


@pytest.mark.parametrize("who", ["", "bob", "node", "sink/bronze", f"noise:{HEX}0", "noise", "x:*"])
def test_other_principals_are_refused(who: str) -> None:
    error = error_of(f'{NAME}[[grant]]\nwho = "{who}"\nstreams = "*"\nmay = ["pull"]\n')
    assert "grant[0].who" in error.text


def test_lines_are_right_after_values_of_many_lines() -> None:
    text = (
        NAME
        + 'data_dir = """\\\n  [noise]\n  x = 1\n"""\n'
        + '[[grant]]\nwho = "*" # [x\nstreams = "#]"\nmay = [\n  "push", # ]\n  "pull",\n]\n'
        + "[http]\nlisten = 1\n"
    )
    assert f"{FILE}:14: http.listen" in error_of(text).text


def test_patterns_and_quotas_become_what_actors_work_with() -> None:
    config = parse_config(
        NAME
        + '[[stream]]\nname = "logs/*"\npartitions_max = 2\nretain_seconds = 60\n'
        + '[[stream]]\nname = "logs/kept"\npartitions = 4\n'
        + '[[quota]]\nwho = "anonymous"\nstreams_max = 3\npush_bytes_per_second = 5\n',
        FILE,
    )
    rules = StreamRules(table.rule for table in config.streams)
    rule = rules.find("logs/any")
    assert (rule.retention, rule.partitions_max) == (Retention(seconds=60.0), 2)
    assert rules.find("logs/kept").partitions_max == 1_024
    assert [table.is_pattern for table in config.streams] == [True, False]
    assert config.quotas[0].quota == Quota(who="anonymous", streams_max=3, push_bytes_per_second=5)


@each_row(
    [
        (
            '[[stream]]\nname = "a*"\n',
            ":3: stream[0].name: 'a*' is a pattern and creates no stream",
        ),
        (
            '[[stream]]\nname = "a*"\npartitions = 2\nretain_seconds = 1\n',
            ":4: stream[0].partitions: 'a*' is a pattern and creates no stream",
        ),
        ('[[stream]]\nname = "a[b]*"\nretain_seconds = 1\n', ":3: stream[0].name: 'a[b]*'"),
        (
            '[[stream]]\nname = "s"\npartitions = 3\npartitions_max = 2\n',
            ":5: stream[0].partitions_max: must be at least partitions (3)",
        ),
        (
            '[[stream]]\nname = "a*"\nretain_seconds = 1\n'
            '[[stream]]\nname = "a?b"\nretain_seconds = 1\n',
            ":6: stream[1].name: 'a?b' is never reached: 'a*' stands before it",
        ),
        (
            '[[stream]]\nname = "a*"\nretain_seconds = 1\n'
            '[[stream]]\nname = "a*"\nretain_seconds = 1\n',
            ":6: stream[1].name: 'a*' is the name of stream[0] already",
        ),
        ('[[quota]]\nwho = "anonymous"\n', ":2: quota[0]: limits nothing"),
        ('[[quota]]\nwho = "me"\nstreams_max = 1\n', ":3: quota[0].who: 'me': expected noise:HEX"),
        ('[[quota]]\nwho = "*"\nstreams_max = 0\n', ":4: quota[0].streams_max: 0: expected"),
        (
            '[[quota]]\nwho = "*"\nstreams_max = 1\n[[quota]]\nwho = "noise:*"\nstreams_max = 1\n',
            ":6: quota[1].who: 'noise:*' is never reached: '*' stands before it",
        ),
    ]
)
def test_patterns_and_quotas_without_a_sense_are_told(text: str, said: str) -> None:
    assert said in error_of(NAME + text).text


def test_narrow_patterns_may_stand_before_wide_ones() -> None:
    names = ["a?", "a??", "?b*", "a*b", "a*", "*"]
    tables = "".join(f'[[stream]]\nname = "{name}"\nretain_seconds = 1\n' for name in names)
    assert len(parse_config(NAME + tables, FILE).streams) == len(names)


OF_PLUG_IN = {"overlay-node": "overlay", "tracker": "overlay"}
"""The plug-ins of examples that are not called by their names."""

NODES = [
    file
    for file in sorted(CONFIGS.glob("*.toml"))
    if not file.name.startswith("sim-") and there(OF_PLUG_IN.get(file.stem, file.stem))
]
"""The others are scenarios of simulations, which have tests of their own."""


@pytest.mark.parametrize("file", NODES, ids=lambda file: file.name)
def test_every_example_loads_and_can_run(file: Path) -> None:
    assert load_config(file).name


def test_the_examples_are_all_there() -> None:
    names = {file.stem for file in CONFIGS.glob("*.toml")}
    assert {"minimal", "standalone", "ockam", "spark", "landing"} <= names


def test_addresses_are_read_and_written_alike() -> None:
    for text in ("127.0.0.1:4100", "[::1]:0", "node.example.org:65535"):
        assert str(parse_address(text)) == text
    assert parse_address("[::1]:5") == ("::1", 5)
    for text in ("", "4100", ":4100", "a:", "a:b", "a:-1", "a:65536", "a:٣"):
        with pytest.raises(ValueError, match="expected"):
            parse_address(text)


def test_every_wrong_value_is_told_at_once(tmp_path: Path) -> None:
    text = """nam = "x"
[strem]
a = 1
[noise]
listen = 5
[[grant]]
who = "noise:x"
may = ["puhs"]
[[grant]]
may = ["push"]
[ockam.channel]
idle_seconds = -1
"""
    with pytest.raises(ConfigError) as caught:
        parse_config(text, tmp_path / "node.toml")
    told = caught.value.text.splitlines()
    assert [line.removeprefix(f"{tmp_path}/node.toml").split(": ")[:2] for line in told] == [
        [":1", "nam"],
        [":2", "strem"],
        [":5", "noise.listen"],
        [":8", "grant[0].may[0]"],
        [":9", "grant[1].who"],
        [":12", "ockam.channel.idle_seconds"],
        ["", "name"],
    ]


def test_what_rules_find_is_told_beside_wrong_values(tmp_path: Path) -> None:
    text = """name = "x"
data_dir = 5
[noise]
listen = "0.0.0.0:99999"
[http]
listen = "0.0.0.0:8080"
port = 3
[[stream]]
name = "a"
retain_seconds = "7d"
[[stream]]
name = "b"
[[stream]]
name = "b"
[[peer]]
name = "x y"
noise = "host"
[[grant]]
who = "noise:abc"
streams = "*"
may = ["push"]
"""
    with pytest.raises(ConfigError) as caught:
        parse_config(text, tmp_path / "node.toml")
    told = caught.value.text.splitlines()
    assert [line.removeprefix(f"{tmp_path}/node.toml:").split(": ", 2)[:2] for line in told] == [
        ["2", "data_dir"],
        ["7", "http.port"],
        ["10", "stream[0].retain_seconds"],
        ["17", "peer[0].noise"],
        ["4", "noise.listen"],
        ["6", "http.listen"],
        ["19", "grant[0].who"],
        ["14", "stream[2].name"],
    ]
    assert "'7d': expected a number of seconds over 0" in told[2]
    assert told[-1].endswith("'b' is the name of stream[1] already")


@pytest.mark.parametrize(
    "text",
    [
        # Nothing is said of a table by way of another that cannot be read.
        pytest.param(
            'name = "x"\n[noise]\nlisten = 5\n[overlay]\nadvertise = "a:1"\n',
            marks=pytest.mark.needs("overlay"),
        ),
        pytest.param(
            'name = "x"\n[http]\nallow_plain = 1\n[streamr]\nlisten = "127.0.0.1:8080"\n',
            marks=pytest.mark.needs("streamr"),
        ),
        'name = "x"\nnoise = 3\n',
        "name = 3\ngrant = [1]\n",
    ],
)
def test_a_table_that_cannot_be_read_is_no_reason_for_further_problems(
    tmp_path: Path, text: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, tmp_path / "node.toml")
    wrong = 1 + text.startswith("name = 3")
    assert len(caught.value.text.splitlines()) == wrong


def test_an_embedded_node_has_no_listener_and_is_called_like_its_directory(tmp_path: Path) -> None:
    config = Config.embedded(tmp_path / "app-data", on_fatal="exit")
    assert (config.name, config.data_dir, config.on_fatal) == (
        "app-data", tmp_path / "app-data", "exit",
    )  # fmt: skip
    assert config.listeners() == {}
    assert Config.embedded("x", name="y", http=HttpListener()).listeners() == {
        "http": HttpListener()
    }
