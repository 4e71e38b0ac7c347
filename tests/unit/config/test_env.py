from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from config import env


def test_a_missing_setting_names_itself_and_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANTED", raising=False)
    with pytest.raises(env.SettingError, match="WANTED is not set: do this"):
        env.required("WANTED", "do this")


@pytest.mark.parametrize("text", ["1", "true", "Yes", " on "])
def test_words_for_true(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SWITCH", text)
    assert env.boolean("SWITCH", default=False) is True


@pytest.mark.parametrize("text", ["0", "FALSE", "no", "off"])
def test_words_for_false(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SWITCH", text)
    assert env.boolean("SWITCH", default=True) is False


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (lambda: env.boolean("IT", default=False), "maybe"),
        (lambda: env.integer("IT", 1, at_least=1), "many"),
        (lambda: env.integer("IT", 1, at_least=1), "1.5"),
        (lambda: env.integer("IT", 1, at_least=1), "0"),
        (lambda: env.decimal("IT", 1.0, at_least=0.5), "0.4"),
        (lambda: env.decimal("IT", 1.0, at_least=0.5), "nan"),
        (lambda: env.choice("IT", "a", ["a", "b"]), "c"),
    ],
)
def test_a_value_that_cannot_be_used_names_its_setting(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[], object], text: str
) -> None:
    monkeypatch.setenv("IT", text)
    with pytest.raises(env.SettingError, match=rf"IT=.*{text}"):
        read()


def test_an_empty_value_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IT", "")
    assert env.boolean("IT", default=True) is True
    assert env.integer("IT", 7, at_least=1) == 7
    assert env.choice("IT", "b", ["a", "b"]) == "b"


def test_a_choice_is_taken_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IT", "debug")
    assert env.choice("IT", "INFO", ["DEBUG", "INFO"]) == "DEBUG"


def test_a_list_is_split_at_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTS", "a.example, b.example ,")
    assert env.strings("HOSTS", []) == ["a.example", "b.example"]


def test_a_database_url_is_taken_apart() -> None:
    found = env.database("postgresql://us%40er:p%2Fw@db.example:6543/head%20room")
    assert found["USER"] == "us@er"
    assert found["PASSWORD"] == "p/w"
    assert (found["HOST"], found["PORT"], found["NAME"]) == ("db.example", "6543", "head room")


@pytest.mark.parametrize("url", ["mysql://a@b/c", "postgresql://a@b", "postgresql://a@b:x/c"])
def test_a_database_url_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(env.SettingError, match="DATABASE_URL"):
        env.database(url)


def test_a_password_is_not_quoted_in_the_refusal() -> None:
    with pytest.raises(env.SettingError) as caught:
        env.database("postgresql://user:hunter2@host:port/name")
    assert "hunter2" not in str(caught.value)


def test_the_environment_wins_over_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FROM_BOTH", "environment")
    monkeypatch.setenv("FROM_FILE", "to be restored")
    monkeypatch.delenv("FROM_FILE")
    file = tmp_path / "env"
    file.write_text("# a comment=1\n\nFROM_BOTH=file\nFROM_FILE=a=b\n")
    env.load_env_file(file)
    assert env.string("FROM_BOTH", "") == "environment"
    assert env.string("FROM_FILE", "") == "a=b"


def test_no_file_is_no_settings(tmp_path: Path) -> None:
    env.load_env_file(tmp_path / "absent")


def test_a_database_url_may_name_several_hosts() -> None:
    found = env.database("postgresql://u:p@h1:5432,h2:5433,[::1]/db?sslmode=require")
    assert (found["HOST"], found["PORT"]) == ("h1,h2,::1", "5432,5433,5432")
    options = found["OPTIONS"]
    assert isinstance(options, dict)
    assert options["target_session_attrs"] == "read-write"
    assert options["sslmode"] == "require"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://u@h1,,h2/db", "empty"),
        ("postgresql://u@h1:x,h2/db", "h1:x"),
        ("postgresql://u@h1/db?sslmod=require", "sslmod is not known"),
        ("postgresql://u@h1/db?sslmode", "name=value"),
    ],
)
def test_what_is_wrong_with_a_database_url_is_named(url: str, said: str) -> None:
    with pytest.raises(env.SettingError, match=said):
        env.database(url)


@pytest.mark.parametrize("url", ["", "/mnt/cold", "file:///mnt/cold", "s3://bucket", "s3://b/a/c/"])
def test_the_cold_tier_is_a_folder_or_a_bucket(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("TELEMETRY_COLD_URL", url)
    assert env.cold_url() == url


@pytest.mark.parametrize(
    ("url", "way_out"),
    [
        ("ftp://host/cold", "a folder, or s3://bucket/prefix"),
        ("s3:///prefix", "names no bucket"),
        ("s3://key:hunter2@bucket/prefix", "AWS_SECRET_ACCESS_KEY"),
        ("s3://bucket/prefix?secret_key=hunter2", "AWS_ENDPOINT_URL"),
    ],
)
def test_another_cold_tier_is_refused_and_no_secret_repeated(
    monkeypatch: pytest.MonkeyPatch, url: str, way_out: str
) -> None:
    monkeypatch.setenv("TELEMETRY_COLD_URL", url)
    with pytest.raises(env.SettingError, match=way_out) as caught:
        env.cold_url()
    assert "hunter2" not in str(caught.value)


def test_an_object_store_by_plain_http_has_to_be_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://store.example:9000")
    monkeypatch.delenv("AWS_ALLOW_HTTP", raising=False)
    with pytest.raises(env.SettingError, match="AWS_ALLOW_HTTP=true"):
        env.s3_endpoint_url()
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    assert env.s3_endpoint_url() == "http://store.example:9000"


@pytest.mark.parametrize("url", ["store.example:9000", "https://", "s3://bucket"])
def test_an_endpoint_is_an_address(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    with pytest.raises(env.SettingError, match="AWS_ENDPOINT_URL"):
        env.s3_endpoint_url()
