"""Batch scripts as specifications, and back."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.jobs import reading
from headroom.jobs.formats import sbatch
from headroom.jobs.formats.brought import Brought, FormatError, Owner
from headroom.jobs.spec import JobSpec
from tests.unit.headroom.jobs.specs import make_phase, make_spec

#: The real thing: what a user of Slurm would bring.
TRAINING = """\
#!/bin/bash -l
#SBATCH -J Train_LLM --nodes=2-4
#SBATCH --gpus-per-node=h100:8 --ntasks-per-node 1
#SBATCH --time=1-12:30:00    # a day and a half
#SBATCH --account=vision --partition=gpu --output=%j.out
#SBATCH --comment="headroom: peak_w=650 cap_w=400 class=checkpoint-heavy responses=shrink-batch"
#SBATCH --requeue
module load cuda
srun --ntasks=4 -c 8 --cpu-bind=cores \\
    torchrun --node-rank "$SLURM_NODEID" train.py --name 'srun x'
#SBATCH --nodes=64
"""


def brought(*options: str, body: str = "python train.py", **owner: Any) -> Brought:
    lines = ["#!/bin/bash", *(f"#SBATCH {each}" for each in options), body, ""]
    known: dict[str, Any] = {"project": "vision", "job_class": "high-density-training"}
    given = known | {"walltime_s": 60.0} | owner
    return sbatch.spec_of("\n".join(lines), Owner(**given))


def gang_of(*options: str) -> Any:
    return brought(*options).values["phases"][0]["gang"]


def command_of(found: Brought) -> list[str]:
    command: list[str] = found.values["phases"][0]["command"]
    return command


def test_a_script_comes_along_with_its_gang_its_limit_and_its_words() -> None:
    found = sbatch.spec_of(TRAINING, Owner())
    spec = found.spec
    phase = spec.phases[0]
    assert (spec.project, spec.job_class, phase.name) == ("vision", "checkpoint-heavy", "train_llm")
    assert (phase.gang.gpus, phase.gang.min_gpus, phase.gang.gpus_per_node) == (32, 16, 8)
    assert phase.walltime_s == 36.5 * 3600
    assert (phase.power.expected_peak_w, phase.power.lowest_cap_w) == (650.0, 400.0)
    assert phase.restart.tolerance == "disruption"
    assert found.lost == (
        "write in gang.models which models of your inventory are 'h100'",
        "--partition is left out: name sites or nodes in locality where it must not run anywhere",
    )


def test_options_behind_the_first_command_are_none() -> None:
    assert sbatch.spec_of(TRAINING, Owner()).values["phases"][0]["gang"]["gpus"] == 32


def test_a_node_runs_what_srun_would_have_run_there(tmp_path: Path) -> None:
    torchrun = tmp_path / "torchrun"
    torchrun.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    torchrun.chmod(0o755)
    body = TRAINING.replace("module load cuda\n", "").replace("bash -l", "bash")
    command = command_of(sbatch.spec_of(body, Owner()))
    path = f"{tmp_path}:{os.environ['PATH']}"
    environment = {"PATH": path, "HEADROOM_RANK": "3", "HEADROOM_NODES": "a,b,c,d"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == "--node-rank|3|train.py|--name|srun x|"


def test_what_scripts_read_of_slurm_is_set_from_what_a_job_of_ours_finds() -> None:
    body = (
        "echo $SLURM_NNODES $SLURM_ARRAY_TASK_ID $SLURM_RESTART_COUNT "
        "$SLURM_JOB_NODELIST ${SLURM_MEM_PER_NODE:-none}"
    )
    found = brought("--nodes=3", "--gpus-per-node=1", body=f"srun {body}")
    environment = {
        "PATH": os.environ["PATH"], "HEADROOM_NODES": "a,b,c", "HEADROOM_ARRAY_INDEX": "7",
        "HEADROOM_ATTEMPT": "2",
    }  # fmt: skip
    ran = subprocess.run(
        command_of(found), env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "3 7 1 a,b,c none\n"
    assert found.lost == ("SLURM_MEM_PER_NODE has nothing in its place",)


@pytest.mark.parametrize(
    ("options", "gang"),
    [
        (["--gpus-per-node=4", "-N2"], {"gpus": 8, "gpus_per_node": 4}),
        (["--gres=gpu:a100:4", "--nodes 2"], {"gpus": 8, "gpus_per_node": 4}),
        (["--gres=shard:2,gpu:4"], {"gpus": 4, "gpus_per_node": 4}),
        (["-G 6"], {"gpus": 6}),
        (["--gpus=h100:6", "--nodes=3"], {"gpus": 6, "gpus_per_node": 2}),
        (["--gpus-per-task=2", "-n 8"], {"gpus": 16}),
        (["--gpus-per-task=1", "--nodes=2", "--ntasks-per-node=8"],
         {"gpus": 16, "gpus_per_node": 8}),
        (["--nodes=2-4", "--gpus-per-node=8"], {"gpus": 32, "gpus_per_node": 8, "min_gpus": 16}),
        (["--nodes=2"], {"gpus": 2, "gpus_per_node": 1}),
    ],
)  # fmt: skip
def test_gpus_come_along_however_they_are_asked_for(options: list[str], gang: Any) -> None:
    assert gang_of(*options) == gang


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400), ("1:30", 90), ("2:00:05", 7205), ("1-2", 93_600), ("1-2:30", 95_400),
        ("1-2:30:15", 95_415),
    ],
)  # fmt: skip
def test_limits_are_read_as_slurm_reads_them(text: str, seconds: float) -> None:
    found = brought(f"--time={text}", "-G1", walltime_s=None)
    assert found.values["phases"][0]["walltime_s"] == seconds


@pytest.mark.parametrize("text", ["UNLIMITED", "0", "-1", "soon", "1:2:3:4"])
def test_no_limit_is_refused_with_the_option_that_gives_one(text: str) -> None:
    with pytest.raises(FormatError, match="give --walltime"):
        brought(f"--time={text}", "-G1", walltime_s=None)
    assert brought(f"--time={text}", "-G1").values["phases"][0]["walltime_s"] == 60.0


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("--dependency=afterok:12", "submit with --needs JOB"),
        ("--constraint=h100", "gang.models"),
        ("--mem=0", "a specification has nothing like it"),
        ("-x node7", "locality.nodes"),
    ],
)
def test_what_cannot_come_along_is_told_with_the_way_to_say_it(option: str, why: str) -> None:
    (lost,) = brought(option, "-G1").lost
    assert why in lost


def test_a_gang_without_srun_is_told_that_each_node_runs_the_script() -> None:
    assert "each node of the gang runs it" in brought("--nodes=2", "--gpus-per-node=8").lost[0]
    assert not brought("--gpus-per-node=8").lost


def test_tasks_of_a_node_are_told_to_be_ranks_of_one_command() -> None:
    found = brought("--gpus-per-node=8", "--ntasks-per-node=8", body="srun python train.py")
    assert "torchrun --nproc-per-node 8" in found.lost[0]


def test_a_script_in_another_language_is_run_by_its_interpreter() -> None:
    script = "#!/usr/bin/env python3\n#SBATCH --gpus=1 --time=5\nprint('srun is a word')\n"
    found = sbatch.spec_of(script, Owner(project="p", job_class="c"))
    assert command_of(found) == ["/usr/bin/env", "python3", "-c", "print('srun is a word')\n"]


def test_words_that_cannot_be_read_are_told() -> None:
    found = brought('--comment="headroom: peak_w=lots"', "-G1")
    assert found.lost == ("of the words in its comment, peak_w is a number, not 'lots'",)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("python train.py\n", "does not name an interpreter"),
        ("#!\n", "does not name an interpreter"),
        ("#!/bin/sh\n#SBATCH --time\n", "line 2: --time has no value"),
        ("#!/bin/sh\n#SBATCH nonsense\n", "line 2: 'nonsense' is no option"),
        ("#!/bin/sh\n#SBATCH --comment='a\n", "line 2: No closing quotation"),
        ("#!/bin/sh\n#SBATCH --nodes=few --time=5\n", "--nodes few is no number of nodes"),
        ("#!/bin/sh\n#SBATCH --ntasks=0 --time=5\n", "--ntasks 0 is no number"),
    ],
)
def test_what_is_no_batch_script_is_refused_with_its_line(text: str, why: str) -> None:
    with pytest.raises(FormatError) as refused:
        sbatch.spec_of(text, Owner(project="p", job_class="c"))
    assert why in str(refused.value)


@pytest.mark.parametrize("missing", ["project", "class"])
def test_what_nobody_says_is_asked_for_by_its_option(missing: str) -> None:
    owner = Owner(
        project=None if missing == "project" else "p", job_class=None if missing == "class" else "c"
    )
    with pytest.raises(FormatError, match=f"give --{missing}"):
        sbatch.spec_of("#!/bin/sh\n#SBATCH -G1 -t5\n", owner)


def _back(spec: JobSpec) -> JobSpec:
    return sbatch.spec_of(sbatch.script_of(spec, spec.phases[0]), Owner()).spec


def test_a_phase_written_as_a_script_comes_back_as_it_was() -> None:
    phase = make_phase(
        gang={"gpus": 32, "min_gpus": 16, "gpus_per_node": 8},
        power={"expected_peak_w": 650.0, "lowest_cap_w": 400.0},
        checkpoint={"interval_s": 900.0},
        throttling={"responses": ["shrink-batch", "pause"], "min_batch_scale": 0.5},
        restart={"tolerance": "disruption"},
        locality={"nodes": ["n1", "n2"]},
        command=["python", "train.py", "it's"],
        env={"SEED": "7"},
    )
    spec = reading.convert(make_spec(phase, array="0-9%3"))
    found = reading.as_json(_back(spec))
    expected = reading.as_json(spec)
    command = found["phases"][0].pop("command")
    del expected["phases"][0]["command"], expected["phases"][0]["env"]
    assert found == expected
    assert command[:2] == ["/bin/bash", "-c"]


@pytest.mark.parametrize(
    ("gang", "options"),
    [
        ({"cores": 16}, ["--nodes=1", "--ntasks-per-node=1", "--cpus-per-task=16"]),
        (
            {"cores": 8, "nodes": 3, "mem_bytes": 3e9},
            ["--nodes=3", "--ntasks-per-node=1", "--cpus-per-task=8", "--mem=2862M"],
        ),
    ],
)
def test_a_phase_of_cores_asks_slurm_for_these_and_for_no_gpu(
    gang: dict[str, Any], options: list[str]
) -> None:
    phase = make_phase(gang={"gpus": 0, **gang}, command=["true"])
    spec = reading.convert(make_spec(phase))
    written = sbatch.script_of(spec, spec.phases[0]).splitlines()
    found = [line.removeprefix("#SBATCH ") for line in written if line.startswith("#SBATCH")]
    assert [each for each in found if each in options] == options
    assert not [each for each in found if "gpu" in each.split("=")[0]]


MODEL = {"name": "model", "path": "/shared/m", "copies": ["oslo"]}
TRAINS = make_phase("train", outputs=[MODEL], command=["train", "--out", "/shared/m"])
PROMOTES = make_phase(
    "promote", needs=["train"], inputs=[{"phase": "train", "output": "model"}],
    promotion={"matrix": []}, command=["publish"],
)  # fmt: skip


def script(of: str, *phases: dict[str, Any], **given: Any) -> str:
    spec = reading.convert(make_spec(*phases, **{"name": "llama-7", **given}))
    return sbatch.script_of(spec, next(each for each in spec.phases if each.name == of))


def test_what_a_phase_makes_is_declared_and_measured_once_its_command_has_succeeded() -> None:
    written = script("train", TRAINS)
    assert "pipeline=llama-7 phase=train output=model,path=/shared/m,copies=oslo" in written
    assert written.endswith("srun train --out /shared/m || exit\nheadroom slurm measure\n")
    brought = sbatch.spec_of(written, Owner())
    (phase,) = brought.spec.phases
    assert (phase.name, reading.as_json(brought.spec)["phases"][0]["outputs"]) == ("train", [MODEL])
    assert "headroom slurm measure" not in phase.command[-1]
    assert brought.lost == ()


def test_what_a_phase_takes_and_promotes_is_declared_and_found_in_its_variables() -> None:
    written = script("promote", TRAINS, PROMOTES)
    assert "phase=promote input=train/model promotion=" in written
    assert "export HEADROOM_ARTIFACT_TRAIN_MODEL=/shared/m\n" in written
    assert written.endswith("srun publish\n")
    # What names other scripts is told of, not dropped in silence.
    lost = sbatch.spec_of(written, Owner()).lost
    assert [each.split(":")[0] for each in lost] == [
        "input train/model is left out", "promotion is left out",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "output", "why"),
    [
        ({"name": None}, MODEL, "give the specification a name"),
        ({}, {**MODEL, "path": "/a b"}, "the path '/a b' cannot stand in a comment"),
        ({}, {**MODEL, "path": "/" + "a" * 1000}, "shorten paths"),
    ],
)
def test_a_phase_whose_artifacts_no_comment_can_hold_is_refused(
    given: dict[str, Any], output: dict[str, Any], why: str
) -> None:
    with pytest.raises(FormatError, match=why):
        script("train", make_phase("train", outputs=[output]), **given)


@settings(max_examples=100, deadline=None)
@given(
    words=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20),
                   min_size=1, max_size=4),
    value=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20),
)  # fmt: skip
def test_what_a_command_is_given_comes_back_byte_by_byte(words: list[str], value: str) -> None:
    told = "[*sys.argv[1:], os.environ['V']]"
    print_all = f"import os, sys; os.write(1, os.fsencode(chr(0).join({told})))"
    phase = make_phase(command=["python3", "-c", print_all, *words], env={"V": value})
    spec = reading.convert(make_spec(phase))
    command = command_of(sbatch.spec_of(sbatch.script_of(spec, spec.phases[0]), Owner()))
    ran = subprocess.run(command, env={"PATH": os.environ["PATH"]}, capture_output=True, check=True)
    assert ran.stdout.decode("utf-8").split("\0") == [*words, value]
