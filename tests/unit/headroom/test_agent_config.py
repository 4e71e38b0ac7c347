from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from headroom.agent import config
from headroom.agent.command import options_of
from headroom.agent.config import AgentConfig, ConfigError, load, overlaid, read_credentials

REPOSITORY = Path(__file__).resolve().parents[3]
REFERENCE = (REPOSITORY / "docs" / "reference" / "agent-configuration.md").read_text()
#: The example of the reference names every key.
EXAMPLE = "\n".join(re.findall(r"^```toml\n(.*?)^```", REFERENCE, re.MULTILINE | re.DOTALL)[:1])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "agent.toml"


def loaded(file: Path, text: str) -> AgentConfig:
    file.write_text(text)
    return load(file)


def keys(kind: type[msgspec.Struct]) -> set[str]:
    return set(config._keys(kind))


def test_an_empty_file_says_nothing(file: Path) -> None:
    assert loaded(file, "") == AgentConfig()


def test_the_example_of_the_reference_is_in_form_and_names_every_key(file: Path) -> None:
    assert loaded(file, EXAMPLE).redfish
    assert not [key for key in keys(AgentConfig) if not re.search(rf"\b{key}\b", EXAMPLE)]


def test_every_key_is_described() -> None:
    described = re.findall(r"`\[*(\w+)\]*`", REFERENCE)
    assert not keys(AgentConfig) - set(described)


@pytest.mark.parametrize(
    ("text", "key", "problem"),
    [
        ("nodes = 'x'", "nodes", "did you mean node"),
        ("[storage]\nintervall_s = 5", "storage.intervall_s", "did you mean interval_s"),
        ("[[dcgm]]\nurl='http://a'\nnod='x'", "dcgm[0].nod", "did you mean node"),
        ("zzz = 1", "zzz", "no such key; see docs"),
        ("sample_s = 'often'", "sample_s", "Expected `float`"),
        ("sample_s = 0", "sample_s", "> 0"),
        ("[storage]\ninterval_s = 1", "storage.interval_s", ">= 5"),
        ("[[storage.mounts]]\npath = 'scratch'", "storage.mounts[0].path", "^/"),
        ("[spool]\nfile = 'here'", "spool.file", "^/"),
        ("server = 'oslo'", "server", "is no URL"),
        ("[[dcgm]]\nurl = 'ftp://a'", "dcgm[0].url", "is no URL"),
        ("[[dcgm]]\nurl = 'http://a:b@c'", "dcgm[0].url", "no place for a password"),
        ("[[redfish]]\nurl = 'https://a'\nmeters = []", "redfish[0].meters", "length >= 1"),
        ("[[redfish]]\nurl='https://a'\nmeters=[{meter='m'}]", "redfish.meters", "m needs"),
        (
            "[[redfish]]\nurl='https://a'\nmeters=[{meter='m', power='/x'}]",
            "redfish[0].meters[0].power",
            "/redfish/",
        ),
        (
            "[[redfish]]\nurl='https://a'\n"
            "meters=[{meter='m', chassis='/redfish/v1/Chassis/1'},"
            " {meter='m', power='/redfish/v1/x'}]",
            "redfish.meters",
            "m is given 2 times",
        ),
        ("[ethernet.links]\neth0='x'\neth1='x'", "ethernet.links", "x is given 2 times"),
        ("[infiniband.links]\nmlx5_0='x'", "infiniband.links.mlx5_0", "DEVICE/NUMBER"),
        (
            "[storage]\nmounts=[{path='/a'}, {path='/b', name='/a'}]",
            "storage.mounts",
            "/a is given 2 times",
        ),
    ],
)
def test_what_is_wrong_is_told_with_the_key_and_the_way_out(
    file: Path, text: str, key: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as told:
        loaded(file, text)
    assert str(told.value).startswith(f"{file}: {key}: ")
    assert problem in str(told.value)


def test_what_is_not_toml_is_told_with_its_line(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not TOML: .*line 2"):
        loaded(file, "node = 'x'\nserver\n")


def test_a_file_that_was_named_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "missing.toml")


def test_the_default_file_may_be_missing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "DEFAULT_FILE", file)
    assert load(None) == AgentConfig()
    file.write_text("node = 'n7'")
    assert load(None).node == "n7"


def test_the_command_line_wins(file: Path) -> None:
    given = overlaid(
        loaded(file, "node='a'\nserver='http://a'\npush_s=9\n[spool]\nmax_mb=7\nmax_hours=3"),
        node="b",
        spool_max_mb=8,
        sample_s=2,
    )
    options = options_of(given)
    assert (options.settings.node, options.settings.agent) == ("b", "b")
    assert (options.settings.sample_s, options.settings.push_s) == (2, 9)
    assert (options.spool_max_mb, options.spool_max_hours) == (8, 3)
    assert options.server == "http://a"


def test_an_empty_option_is_one_that_was_not_given(file: Path) -> None:
    assert overlaid(loaded(file, "node='a'"), node="", server="").node == "a"


def test_actuation_may_be_allowed_in_the_file(file: Path) -> None:
    assert options_of(loaded(file, "allow_actuation = true")).allow_actuation
    assert not options_of(AgentConfig()).allow_actuation


def test_an_exporter_on_the_command_line_takes_the_place_of_nvml() -> None:
    given = overlaid(AgentConfig(), node="n1", dcgm="http://127.0.0.1:9400/metrics")
    assert not given.nvml
    assert [(each.url, each.node) for each in given.dcgm] == [
        ("http://127.0.0.1:9400/metrics", "n1")
    ]
    with pytest.raises(ConfigError, match="--dcgm"):
        overlaid(AgentConfig(), dcgm="localhost:9400")


def test_credentials_are_read_from_a_file_that_is_not_for_everybody(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.write_text("username = 'reader'\npassword = 'geheim'\n")
    secrets.chmod(0o640)
    assert read_credentials(secrets).password == "geheim"
    secrets.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod"):
        read_credentials(secrets)


def test_credentials_without_a_password_are_told_without_what_there_is(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.write_text("username = 'reader'\npasswort = 'geheim'\n")
    secrets.chmod(0o600)
    with pytest.raises(ConfigError, match="password") as told:
        read_credentials(secrets)
    assert "geheim" not in str(told.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[traffic]\nenabled = true\n", "[ethernet] links"),
        ("[traffic]\nports = {gossip = [1]}\n", "gossip"),
        ("[traffic]\nports = {log = [0]}\n", "traffic.ports"),
        ("[traffic]\nports = {log = [7], data = [7]}\n", "7 is given 2 times"),
        ("[traffic]\nenabled = true\n[ethernet]\nlinks = {'a b' = 'l'}\n", "interface"),
    ],
)
def test_shares_that_cannot_be_set_are_told(file: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        loaded(file, text)
