"""Declared inputs, verified before the start: real files, a real repository, real shims."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from headroom.cli import main
from headroom.work.contract import DesiredState, Input
from headroom.work.inputs import SAMPLED, WHOLE, Refused, check, digest_of
from tests.unit.headroom.work.test_runner import Machine, machine

__all__ = ["machine"]

MEBIBYTE = 1 << 20
PATH = os.environ["PATH"]
OTHER = f"{WHOLE}{'0' * 64}"
REVISION = "0" * 40


def git(folder: Path, *words: str) -> str:
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a"}
    env = {"PATH": PATH, "HOME": str(folder), "GIT_COMMITTER_EMAIL": "a@b", **who}
    done = subprocess.run(
        ["git", *words], cwd=folder, env=env, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("print('step')\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "one")
    return folder


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    (folder / "shards").mkdir(parents=True)
    (folder / "shards/0.bin").write_bytes(b"first")
    (folder / "shards/1 \n.bin").write_bytes(b"second")
    (folder / "index").write_bytes(b"")
    return folder


def looked_at(tmp_path: Path, *declared: dict[str, str]) -> dict[str, Any]:
    """Check inputs; return what was written down, by name."""
    file = tmp_path / "inputs.json"
    check(declared, file, PATH)
    return {each["name"]: each for each in json.loads(file.read_bytes())["inputs"]}


def one(name: str, digest: str, path: object = "") -> dict[str, str]:
    return {"name": name, "digest": digest, "path": str(path)}


# --- Digests --------------------------------------------------------------------------------------


def test_a_folder_has_the_digest_that_usual_tools_give(corpus: Path) -> None:
    command = (
        "find -L . -type f -printf '%P\\0' | LC_ALL=C sort -z | xargs -0 sha256sum -z | sha256sum"
    )
    said = subprocess.run(["sh", "-c", command], cwd=corpus, check=True, capture_output=True)
    assert digest_of(corpus) == f"{WHOLE}{said.stdout.split()[0].decode()}"


def test_a_file_has_the_digest_of_its_bytes_and_a_link_that_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"bytes" * MEBIBYTE)
    (tmp_path / "link").symlink_to("data")
    expected = f"{WHOLE}{hashlib.sha256(b'bytes' * MEBIBYTE).hexdigest()}"
    assert digest_of(tmp_path / "data") == digest_of(tmp_path / "link") == expected


def sampled_by_the_rule(data: bytes) -> str:
    """The rule of docs/reference/inputs.md, for one file."""
    count, block = max(1, -(-len(data) // 65536)), 65536
    chosen = range(count) if count <= 16 else [each * (count - 1) // 15 for each in range(16)]
    parts = [data[number * block : (number + 1) * block] for number in chosen]
    return f"{SAMPLED}{hashlib.sha256(b''.join([b'%d' % len(data), bytes(1), *parts])).hexdigest()}"


@pytest.mark.parametrize("size", [0, 1, 65536, MEBIBYTE, MEBIBYTE + 1, 5 * MEBIBYTE + 7])
def test_a_sample_is_of_the_size_and_of_blocks_spread_evenly(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "data").write_bytes(data)
    assert digest_of(tmp_path / "data", sampled=True) == sampled_by_the_rule(data)


@pytest.mark.parametrize("sampled", [False, True])
@given(data=st.binary(min_size=1, max_size=300), at=st.integers(0), flip=st.integers(1, 255))
def test_no_byte_of_a_small_file_changes_unseen(
    tmp_path_factory: pytest.TempPathFactory, sampled: bool, data: bytes, at: int, flip: int
) -> None:
    folder = tmp_path_factory.mktemp("data")
    (folder / "a").write_bytes(data)
    before = digest_of(folder, sampled=sampled)
    changed = bytearray(data)
    changed[at % len(data)] ^= flip
    (folder / "a").write_bytes(changed)
    assert digest_of(folder, sampled=sampled) != before


@pytest.mark.parametrize("sampled", [False, True])
def test_names_and_files_count_and_where_a_folder_lies_does_not(
    corpus: Path, tmp_path: Path, sampled: bool
) -> None:
    before = digest_of(corpus, sampled=sampled)
    corpus.rename(tmp_path / "elsewhere")
    moved = tmp_path / "elsewhere"
    assert digest_of(moved, sampled=sampled) == before
    (moved / "index").rename(moved / "Index")
    assert digest_of(moved, sampled=sampled) != before
    (moved / "Index").rename(moved / "index")
    (moved / "more").write_bytes(b"")
    assert digest_of(moved, sampled=sampled) != before


def test_of_many_files_all_sizes_are_seen_and_the_bytes_of_some(tmp_path: Path) -> None:
    for number in range(1500):
        (tmp_path / f"{number:04d}").write_bytes(b"ab")
    before = digest_of(tmp_path, sampled=True)
    sampled = {each * 1499 // 999 for each in range(1000)}
    left_out = tmp_path / f"{min(set(range(1500)) - sampled):04d}"
    left_out.write_bytes(b"ba")
    assert digest_of(tmp_path, sampled=True) == before
    left_out.write_bytes(b"abc")
    assert digest_of(tmp_path, sampled=True) != before
    left_out.write_bytes(b"ab")
    (tmp_path / "1499").write_bytes(b"ba")
    assert digest_of(tmp_path, sampled=True) != before


def test_what_is_no_file_is_refused_and_never_waited_for(corpus: Path) -> None:
    os.mkfifo(corpus / "pipe")
    for path in (corpus, corpus / "pipe"):
        with pytest.raises(Refused, match="pipe is no regular file"):
            digest_of(path)
    (corpus / "pipe").unlink()
    (corpus / "around").symlink_to(corpus)
    with pytest.raises(Refused, match="around is a link to a folder"):
        digest_of(corpus)
    with pytest.raises(Refused, match="nowhere cannot be read: No such file"):
        digest_of(corpus / "nowhere")


def test_the_command_prints_a_digest(corpus: Path) -> None:
    for words, sampled in (([], False), (["--sampled"], True)):
        done = CliRunner().invoke(main, ["digest", str(corpus), *words])
        assert done.output == f"{digest_of(corpus, sampled=sampled)}\n"
    os.mkfifo(corpus / "pipe")
    assert CliRunner().invoke(main, ["digest", str(corpus)]).exit_code == 1


# --- What is declared -----------------------------------------------------------------------------


def test_what_is_as_declared_is_verified(code: Path, corpus: Path, tmp_path: Path) -> None:
    found = looked_at(
        tmp_path,
        one("code", git(code, "rev-parse", "HEAD"), code),
        one("data/corpus", digest_of(corpus), corpus),
        one("data/sampled", digest_of(corpus, sampled=True), corpus),
    )
    assert [each["is_verified"] for each in found.values()] == [True, True, True]


def test_what_cannot_be_verified_says_why(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    found = looked_at(
        tmp_path,
        one("image", OTHER),
        one("code", REVISION, tmp_path / "plain"),
        one("data/corpus", OTHER),
    )
    assert [each["is_verified"] for each in found.values()] == [False, False, False]
    assert "in which image" in found["image"]["why"]
    assert "not a git repository" in found["code"]["why"]
    assert found["data/corpus"]["why"] == "where it lies is not stated"


@pytest.mark.parametrize("path", ["", "/data/model"])
def test_an_artifact_of_which_nothing_is_recorded_is_refused(tmp_path: Path, path: str) -> None:
    file = tmp_path / "inputs.json"
    with pytest.raises(Refused, match="input artifact/train/model: nothing is recorded of it"):
        check([one("artifact/train/model", "", path)], file, PATH)


def test_without_git_code_is_not_verified(code: Path, tmp_path: Path) -> None:
    file = tmp_path / "inputs.json"
    check([one("code", REVISION, code)], file, str(tmp_path / "no programs here"))
    (fact,) = json.loads(file.read_bytes())["inputs"]
    assert (fact["is_verified"], fact["why"]) == (False, "git is not installed")


def test_code_that_was_changed_since_its_commit_is_refused(code: Path, tmp_path: Path) -> None:
    declared = one("code", git(code, "rev-parse", "HEAD"), code)
    (code / "log").write_text("what Git does not track is not code")
    assert looked_at(tmp_path, declared)["code"]["is_verified"]
    (code / "train.py").write_text("print('something else')\n")
    with pytest.raises(Refused, match=r"input code: .* is not as committed in \w{40}: train.py"):
        looked_at(tmp_path, declared)


def test_the_first_that_differs_is_named_with_both_digests(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(Refused) as refused:
        looked_at(tmp_path, one("image", OTHER), one("data/corpus", OTHER, corpus))
    said = str(refused.value)
    assert said == (
        f"input data/corpus differs: declared {OTHER}, found {digest_of(corpus)} at {corpus}"
    )
    assert json.loads((tmp_path / "inputs.json").read_bytes())["refused"] == said


# --- Jobs -----------------------------------------------------------------------------------------


def test_a_job_whose_inputs_are_as_declared_runs_and_is_told(
    machine: Machine, code: Path, corpus: Path
) -> None:
    inputs = [
        Input(name="image", digest=OTHER),
        Input(name="code", digest=git(code, "rev-parse", "HEAD"), path=str(code)),
        Input(name="data/corpus", digest=digest_of(corpus), path=str(corpus)),
    ]
    machine.start('cat "$HEADROOM_INPUTS"', inputs=inputs)
    report = machine.until("ended")
    assert report.exit_code == 0
    told = json.loads(report.log_tail)
    assert [each["is_verified"] for each in told["inputs"]] == [False, True, True]
    assert [each["digest"] for each in told["inputs"]] == [each.digest for each in inputs]


def test_a_job_is_not_started_where_an_input_differs(machine: Machine, corpus: Path) -> None:
    wrong = Input(name="data/corpus", digest=OTHER, path=str(corpus))
    machine.start("touch ../was-started", inputs=[wrong])
    report = machine.until("ended")
    assert (report.outcome, report.exit_code) == ("exited", 126)
    assert report.text.startswith(f"input data/corpus differs: declared {OTHER}, found sha256:")
    assert "headroom: the command cannot be started: input data/corpus differs" in report.log_tail
    assert not machine.file("was-started").exists()


def test_a_job_that_declares_nothing_finds_no_file(machine: Machine) -> None:
    machine.start('echo "[$HEADROOM_INPUTS]"; ls -A')
    assert machine.until("ended").log_tail == "[]\n"


def test_a_job_can_be_stopped_while_its_inputs_are_read(machine: Machine, tmp_path: Path) -> None:
    with (tmp_path / "endless").open("wb") as file:
        file.truncate(1 << 42)
    endless = Input(name="data/endless", digest=OTHER, path=str(tmp_path / "endless"))
    machine.start("touch ../was-started", inputs=[endless])
    machine.until("running")
    machine.server.wants(DesiredState.STOP)
    assert machine.until("ended").outcome == "stopped"
    assert not machine.file("was-started").exists()
