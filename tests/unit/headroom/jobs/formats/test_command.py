"""``headroom convert`` as its users call it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from headroom.cli import main
from headroom.jobs import reading
from tests.unit.headroom.jobs.specs import make_phase, make_spec

SCRIPT = """\
#!/bin/bash
#SBATCH --gpus=1 --time=5 --account=vision --mem=4G
echo one
echo two
"""


def convert(text: str, *args: str) -> Result:
    return CliRunner().invoke(main, ["convert", "-", *args], input=text)


def test_a_script_is_printed_as_a_specification_and_what_is_left_out_beside_it() -> None:
    result = convert(SCRIPT, "--class", "high-density-training")
    spec = reading.read(result.stdout.encode(), reading.YAML)
    assert (result.exit_code, spec.job_class) == (0, "high-density-training")
    assert "    echo one\n    echo two\n" in result.stdout
    assert "--mem is left out" in result.stderr


def test_what_is_given_counts_before_what_the_script_says() -> None:
    result = convert(SCRIPT, "--class=c", "--project=mine", "--walltime=90")
    spec = reading.read(result.stdout.encode(), reading.YAML)
    assert (spec.project, spec.phases[0].walltime_s) == ("mine", 90.0)


@pytest.mark.parametrize("target", ["sbatch", "kueue"])
def test_one_phase_of_several_is_named(target: str) -> None:
    image = "a@sha256:" + 64 * "0"
    phases = [make_phase(name, artifacts={"image": image}) for name in ("first", "second")]
    text = yaml.safe_dump(make_spec(*phases))
    refused = convert(text, "--to", target)
    assert refused.exit_code == 1
    assert "it has the phases first, second: name one by --phase" in refused.stderr
    assert convert(text, "--to", target, "--phase=second").exit_code == 0
    assert "no phase 'third'" in convert(text, "--to", target, "--phase=third").stderr


def test_artifacts_that_a_manifest_cannot_say_are_told() -> None:
    image = "a@sha256:" + 64 * "0"
    output = {"name": "model", "path": "/m"}
    phase = make_phase("train", artifacts={"image": image}, outputs=[output])
    result = convert(yaml.safe_dump(make_spec(phase)), "--to", "kueue")
    assert (result.exit_code, yaml.safe_load(result.stdout)["kind"]) == (0, "Job")
    assert result.stderr == (
        "-: train: outputs left out: nothing measures or verifies artifacts in pods\n"
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: [", "it is no YAML"),
        ("a: 1", "neither script nor manifest"),
        ("{apiVersion: a, kind: b}\n---\n{apiVersion: a, kind: b}", "more than one object"),
        ("", "neither script nor manifest"),
    ],
)
def test_what_is_no_job_ends_with_one_line(text: str, why: str) -> None:
    result = convert(text, "--class=c")
    assert result.exit_code == 1
    assert why in result.stderr
    assert "Traceback" not in result.stderr


def test_a_value_that_no_specification_takes_is_told_with_its_field() -> None:
    result = convert(SCRIPT, "--class=Not A Name")
    assert result.exit_code == 1
    assert "class" in result.stderr


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["convert", str(tmp_path / "none.sbatch")])
    assert result.exit_code == 1
    assert "none.sbatch cannot be read" in result.stderr
