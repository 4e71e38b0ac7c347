"""Batch scripts of Slurm as specifications, and phases as batch scripts. Pure."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from headroom.jobs.artifacts import variable_of
from headroom.jobs.formats import shell
from headroom.jobs.formats.brought import Brought, FormatError, Owner
from headroom.jobs.formats.said import phase_of, said_of
from headroom.jobs.spec import Gang, JobSpec, Output, PhaseSpec, slug
from headroom.schedulers import declared, words
from headroom.schedulers.words import Words
from headroom.slurm.reading import gpus_in, hostnames

__all__ = ["is_script", "script_of", "spec_of"]

_DIRECTIVE = re.compile(r"^#SBATCH\s+(.*)$")
#: Options of sbatch that have a letter.
_LETTERS = {
    "A": "account", "a": "array", "b": "begin", "C": "constraint", "c": "cpus-per-task",
    "D": "chdir", "d": "dependency", "e": "error", "F": "nodefile", "G": "gpus", "i": "input",
    "J": "job-name", "L": "licenses", "M": "clusters", "N": "nodes", "n": "ntasks", "o": "output",
    "p": "partition", "q": "qos", "t": "time", "w": "nodelist", "x": "exclude",
}  # fmt: skip
#: Those of srun besides.
_OF_SRUN = {"A": "account", "K": "kill-on-bad-exit", "l": "label", "u": "unbuffered"}
#: Options that take no value, or need none.
_FLAGS = frozenset({
    "contiguous", "exclusive", "get-user-env", "hold", "kill-on-bad-exit", "label", "no-kill",
    "no-requeue", "overcommit", "overlap", "oversubscribe", "parsable", "pty", "quiet", "reboot",
    "requeue", "spread-job", "unbuffered", "use-min-nodes", "verbose", "wait",
})  # fmt: skip
#: What comes along, one way or another.
_TAKEN = frozenset({
    "account", "array", "chdir", "comment", "gpus", "gpus-per-node", "gpus-per-task", "gres",
    "job-name", "nodelist", "no-requeue", "nodes", "ntasks", "ntasks-per-node", "requeue", "time",
})  # fmt: skip
#: What needs no place here: Headroom keeps what a job prints, and asks for no cores or memory.
_NOT_NEEDED = frozenset({"error", "open-mode", "output", "parsable", "quiet", "verbose"})
_OTHER_WAY = {
    "dependency": "jobs of Slurm are none of Headroom's: submit with --needs JOB",
    "begin": "a job begins as soon as it can: submit it then",
    "deadline": "write begin_by, a time with its zone",
    "constraint": "name the GPU models that it takes in gang.models",
    "exclude": "name the nodes that it may use in locality.nodes",
    "partition": "name sites or nodes in locality where it must not run anywhere",
    "qos": "what may go first is said by the class and the priority",
    "nice": "what may go first is said by the class and the priority",
    "priority": "what may go first is said by the class and the priority",
    "export": "list variables in env",
    "signal": "a loop on headroom.training hears what it is to do",
}
_OPTION_FOR_TIME = "give --walltime"
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<rest>\d+(?::\d+){0,2})$")
_NODES = re.compile(r"(?P<fewest>\d+)(?:-(?P<most>\d+))?$")
_VARIABLE = re.compile(r"\bSLURM_[A-Z_]+\b")
_COUNT_OF_NODES = """$(($(printf %s "$HEADROOM_NODES" | tr -cd , | wc -c) + 1))"""
#: What scripts read of Slurm, by what a job of ours finds.
_VARIABLES = {
    "SLURM_ARRAY_TASK_COUNT": "$HEADROOM_ARRAY_COUNT",
    "SLURM_ARRAY_TASK_ID": "$HEADROOM_ARRAY_INDEX",
    "SLURM_JOB_NAME": "$HEADROOM_JOB",
    "SLURM_JOB_NODELIST": "$HEADROOM_NODES",
    "SLURM_JOB_NUM_NODES": _COUNT_OF_NODES,
    "SLURM_NNODES": _COUNT_OF_NODES,
    "SLURM_NODEID": "$HEADROOM_RANK",
    "SLURM_NODELIST": "$HEADROOM_NODES",
    "SLURM_PROCID": "$HEADROOM_RANK",
    "SLURM_RESTART_COUNT": "$((HEADROOM_ATTEMPT - 1))",
}
#: What measures the artifacts of a job, in its script.
_MEASURE = "headroom slurm measure"
#: As much of a comment as bridges tell, characters.
_LONGEST_COMMENT = 1000
_SHELLS = ("sh", "bash", "dash", "ksh", "zsh")


@dataclass(frozen=True)
class _Script:
    """A batch script: its interpreter, the options that sbatch reads from it, and what it runs."""

    interpreter: tuple[str, ...]
    options: Mapping[str, str]
    body: str

    @property
    def is_shell(self) -> bool:
        return any(each.rpartition("/")[2] in _SHELLS for each in self.interpreter)


@dataclass(frozen=True)
class _Shape:
    """How many GPUs a script asks for, on how many nodes, and how many tasks it starts on each."""

    gang: dict[str, Any]
    spans_nodes: bool
    tasks_of_node: int


def is_script(text: str) -> bool:
    """Say whether ``text`` looks like a batch script."""
    return text.startswith("#!") or re.search(r"(?m)^#SBATCH\b", text) is not None


def spec_of(text: str, owner: Owner) -> Brought:
    """Return what a batch script asks for. Raises :class:`FormatError`."""
    script = _read(text)
    options = script.options
    said = words.read(options.get("comment", ""))
    shape, lost = _shape(options)
    command, lost_of_command = _command(script, shape)
    job_class = owner.job_class or said.job_class
    project = owner.project or slug(options.get("account", ""), 60)
    if not project:
        raise FormatError("it names no --account: give --project")
    if not job_class:
        raise FormatError("its comment says no class: give --class")
    name = said.phase or slug(options.get("job-name", ""), 60) or "job"
    outputs, lost_of_artifacts = _made(said, is_array="array" in options)
    phase = {
        "name": name,
        "gang": shape.gang,
        "walltime_s": owner.walltime_s or _seconds(options.get("time", "")),
        "command": command,
    }
    if outputs:
        phase["outputs"] = outputs
    if nodes := hostnames(options.get("nodelist", "")):
        phase["locality"] = {"nodes": nodes}
    if "requeue" in options or "no-requeue" in options:
        phase["restart"] = {"tolerance": "disruption" if "requeue" in options else "none"}
    values: dict[str, Any] = {
        "project": project, "class": job_class, "phases": [phase_of(said, phase)],
    }  # fmt: skip
    if array := options.get("array"):
        values["array"] = array
    wrong = [f"of the words in its comment, {each}" for each in said.wrong]
    left = (*lost, *lost_of_command, *lost_of_artifacts, *_left(options), *wrong)
    return Brought(values, left)


def _made(said: Words, *, is_array: bool) -> tuple[list[Any], list[str]]:
    """Return the outputs that come along, and a sentence for each artifact that does not.

    A phase names phases of its own job alone, and those of other scripts are not among them.
    """
    own = [] if is_array else [each for each in said.outputs if each.copy_of is None]
    others = [
        *(f"input {each}" for each in said.inputs),
        *(f"output {each.name}" for each in said.outputs if each not in own),
        *(["promotion"] if said.promotion is not None else []),
    ]
    why = "the elements of an array make none" if is_array else "it names other scripts"
    hint = "bring all phases into one specification, and say it there"
    lost = [f"{each} is left out: {why}; {hint}" for each in others]
    return [msgspec.to_builtins(each) for each in own], lost


# --- What a script says --------------------------------------------------------------------------


def _read(text: str) -> _Script:
    # Only these end a line: a shell takes others as they are.
    lines = text.split("\n")
    if not lines[0].startswith("#!"):
        raise FormatError("its first line does not name an interpreter, as in #!/bin/bash")
    options: dict[str, str] = {}
    body: list[str] = []
    for number, line in enumerate(lines[1:], start=2):
        # Slurm reads options up to the first command.
        is_before = not any(each.strip() and not each.startswith("#") for each in body)
        found = _DIRECTIVE.match(line) if is_before else None
        if found is None:
            body.append(line)
            continue
        try:
            given = shlex.split(found[1], comments=True)
        except ValueError as error:
            raise FormatError(f"line {number}: {error}") from error
        options |= dict(_options(given, number))
    interpreter = tuple(shlex.split(lines[0][2:]))
    if not interpreter:
        raise FormatError("its first line does not name an interpreter, as in #!/bin/bash")
    return _Script(interpreter, options, "\n".join(body).strip("\n") + "\n")


def _options(given: Sequence[str], line: int) -> Iterator[tuple[str, str]]:
    """Yield options by their long names, with their values; a flag has none."""
    left = list(given)
    while left:
        word = left.pop(0)
        if word.startswith("--"):
            name, has_value, value = word[2:].partition("=")
            value = value.strip()
        elif word.startswith("-") and word[1:2] in _LETTERS:
            name, value = _LETTERS[word[1]], word[2:].removeprefix("=")
            has_value = value
        else:
            raise FormatError(f"line {line}: {word!r} is no option of sbatch")
        if not has_value and name not in _FLAGS:
            if not left:
                raise FormatError(f"line {line}: --{name} has no value")
            value = left.pop(0)
        yield name, value


def _seconds(text: str) -> float:
    """Return the seconds of ``90``, ``1:30:00`` or ``2-12``: minutes, hours, days and hours."""
    found = _TIME.match(text)
    if found is None:
        why = f"--time {text} is no limit" if text else "it has no --time"
        raise FormatError(f"{why}: {_OPTION_FOR_TIME}")
    parts = [int(each) for each in found["rest"].split(":")]
    # With days the first number is hours; without, a number or two begin with minutes.
    if found["days"] is None and len(parts) < 3:
        parts = [0, *parts]
    hours, minutes, seconds = (*parts, 0, 0)[:3]
    whole = 86_400 * int(found["days"] or 0) + 3600 * hours + 60 * minutes + seconds
    if not whole:
        raise FormatError(f"--time {text} is no limit: {_OPTION_FOR_TIME}")
    return float(whole)


def _shape(options: Mapping[str, str]) -> tuple[_Shape, list[str]]:
    fewest, most = _nodes(options.get("nodes", ""))
    on_node = _whole(options, "ntasks-per-node")
    tasks = _whole(options, "ntasks") or (on_node or 1) * most
    lost = []
    per_node, gpus, model = _gpus(options, most, tasks)
    if not gpus:
        lost.append(
            "it asks for no GPU: a phase has one at least on each node, and so has this one"
        )
        per_node, gpus = 1, most
    gang: dict[str, Any] = {"gpus": gpus}
    if per_node:
        gang["gpus_per_node"] = per_node
        if fewest < most:
            gang["min_gpus"] = per_node * fewest
    if model:
        lost.append(f"write in gang.models which models of your inventory are {model!r}")
    spans = most > 1 or (not per_node and gpus > 1)
    return _Shape(gang, spans, on_node or -(-tasks // most)), lost


def _gpus(options: Mapping[str, str], nodes: int, tasks: int) -> tuple[int, int, str]:
    """Return GPUs on each node (0: as they come), GPUs in all, and their type."""

    def asked(name: str) -> tuple[int, str]:
        text = options.get(name, "")
        # Only --gres names other things than GPUs.
        return gpus_in(text if name == "gres" or not text else f"gpu:{text}")

    for name in ("gpus-per-node", "gres"):
        per_node, model = asked(name)
        if per_node:
            return per_node, per_node * nodes, model
    gpus, model = asked("gpus")
    if not gpus:
        per_task, model = asked("gpus-per-task")
        gpus = per_task * tasks
    is_even = "nodes" in options and gpus % nodes == 0
    return gpus // nodes if is_even else 0, gpus, model


def _nodes(text: str) -> tuple[int, int]:
    if not text:
        return 1, 1
    found = _NODES.match(text)
    if found is None or int(found["fewest"]) < 1:
        raise FormatError(f"--nodes {text} is no number of nodes, such as 4 or 2-4")
    fewest = int(found["fewest"])
    return fewest, max(int(found["most"] or 0), fewest)


def _whole(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not text.isdecimal() or not int(text):
        raise FormatError(f"--{name} {text} is no number")
    return int(text)


# --- What it runs --------------------------------------------------------------------------------


def _command(script: _Script, shape: _Shape) -> tuple[list[str], list[str]]:
    """Return the command that each node runs, and what of the script it does otherwise."""
    if not script.is_shell:
        return [*script.interpreter, "-c", script.body], _of_gang(shape, has_steps=False)
    # Machines of Headroom's own measure by themselves.
    text = "".join(
        line for line in script.body.splitlines(keepends=True) if line.strip() != _MEASURE
    )
    has_steps = shell.calls(text, "srun")
    body = shell.without_launcher(text, "srun", _SRUN) if has_steps else text
    lost = _of_gang(shape, has_steps=has_steps)
    if shell.calls(body, "mpirun") or shell.calls(body, "mpiexec"):
        lost.append("each node runs the command: start MPI on the first of HEADROOM_NODES alone")
    if "scontrol" in body:
        lost.append("there is no scontrol: MASTER_ADDR and MASTER_PORT are set, and HEADROOM_NODES")
    if folder := script.options.get("chdir"):
        body = f"cd {shlex.quote(folder)} || exit 1\n{body}"
    known, unknown = _variables(body)
    lost += [f"{name} has nothing in its place" for name in unknown]
    return [*script.interpreter, "-c", "".join(known) + body], lost


def _of_gang(shape: _Shape, *, has_steps: bool) -> list[str]:
    lost = []
    if shape.spans_nodes and not has_steps:
        lost.append("Slurm runs the script on the first node; here each node of the gang runs it")
    if shape.tasks_of_node > 1:
        lost.append(
            f"each node runs the command once, not {shape.tasks_of_node} times: "
            f"start its ranks with torchrun --nproc-per-node {shape.tasks_of_node} or the like"
        )
    return lost


def _variables(body: str) -> tuple[list[str], list[str]]:
    """Return lines that set what ``body`` reads of Slurm, and the names that have no equal."""
    used = sorted(set(_VARIABLE.findall(body)))
    known = [f"export {name}={_VARIABLES[name]}\n" for name in used if name in _VARIABLES]
    return known, [name for name in used if name not in _VARIABLES]


def _left(options: Mapping[str, str]) -> list[str]:
    """Return a sentence for each option that does not come along."""
    return [
        f"--{name} is left out: {_OTHER_WAY.get(name, 'a specification has nothing like it')}"
        for name in sorted(options)
        if name not in _TAKEN and name not in _NOT_NEEDED
    ]


#: Of srun: whether a value comes behind an option, as it is written.
_SRUN = {f"-{letter}": name not in _FLAGS for letter, name in (_LETTERS | _OF_SRUN).items()} | {
    # A long option has its value behind "=", or it is one of these.
    f"--{name}": True
    for name in (*_LETTERS.values(), "cpu-bind", "gpu-bind", "gpus-per-node", "gpus-per-task",
                 "gres", "mem", "mpi", "ntasks-per-node")
}  # fmt: skip


# --- The way back --------------------------------------------------------------------------------


def script_of(spec: JobSpec, phase: PhaseSpec) -> str:
    """Return a batch script that asks Slurm for what a phase of a job asks for, in our words, too.

    Each node runs the command, by srun. Where Headroom stands beside that Slurm, the job is adopted
    with what the comment says; it measures what it has made, and finds what it takes in the same
    variables. Raises :class:`FormatError` for what a comment cannot hold.
    """
    options = [f"--job-name={phase.name}", f"--account={spec.project}", f"--time={_limit(phase)}"]
    options += _held(phase.gang)
    if spec.array is not None:
        options.append(f"--array={spec.array}")
    if phase.locality.nodes:
        options.append(f"--nodelist={shlex.quote(','.join(phase.locality.nodes))}")
    if phase.restart.tolerance is not None:
        options.append("--no-requeue" if phase.restart.tolerance == "none" else "--requeue")
    options.append(f'--comment="{_comment(spec, phase)}"')
    lines = ["#!/bin/bash", *(f"#SBATCH {each}" for each in options), ""]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in phase.env.items()]
    lines += [f"export {name}={shlex.quote(path)}" for name, path in _taken(spec, phase)]
    command = f"srun {shlex.join(phase.command)}"
    works = [f"{command} || exit", _MEASURE] if phase.outputs else [command]
    return "\n".join([*lines, *works, ""])


def _taken(spec: JobSpec, phase: PhaseSpec) -> Iterator[tuple[str, str]]:
    """Yield the variable and the path of each artifact that a phase takes."""
    made: dict[tuple[str, str], Output] = {
        (each.name, output.name): output for each in spec.phases for output in each.outputs
    }
    for each in phase.inputs:
        source = made.get((each.phase, each.output))
        if path := each.path or (source.path if source else ""):
            yield variable_of(each.phase, each.output), path


def _held(gang: Gang) -> list[str]:
    """Return the options for what a gang holds: GPUs, or cores on nodes that need have none."""
    if gang.cores is not None:
        cores = [f"--nodes={gang.nodes or 1}", "--ntasks-per-node=1"]
        memory = [f"--mem={math.ceil(gang.mem_bytes / 2**20)}M"] if gang.mem_bytes else []
        return [*cores, f"--cpus-per-task={gang.cores}", *memory]
    per_node = gang.gpus_per_node
    if per_node is None:
        return [f"--gpus={gang.gpus}"]
    fewest, most = (gang.min_gpus or gang.gpus) // per_node, gang.gpus // per_node
    nodes = f"{most}" if fewest == most else f"{fewest}-{most}"
    return [f"--nodes={nodes}", f"--gpus-per-node={per_node}", "--ntasks-per-node=1"]


def _limit(phase: PhaseSpec) -> str:
    minutes, seconds = divmod(round(phase.walltime_s), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"


def _comment(spec: JobSpec, phase: PhaseSpec) -> str:
    said = [*said_of(phase, spec.job_class).items(), *_of_pipeline(spec, phase)]
    text = "headroom: " + " ".join(f"{name}={value}" for name, value in said)
    if len(text) > _LONGEST_COMMENT:
        raise FormatError(
            f"{phase.name}: what it says takes {len(text)} characters, and a comment has"
            f" {_LONGEST_COMMENT}: shorten paths"
        )
    return text


def _of_pipeline(spec: JobSpec, phase: PhaseSpec) -> Iterator[tuple[str, str]]:
    """Yield the words by which phases that are jobs of their own hand artifacts on."""
    if not (phase.inputs or phase.outputs or phase.promotion):
        return
    if spec.name is None:
        raise FormatError(
            f"{phase.name} hands artifacts on, and jobs of Slurm know each other by the name of"
            " their run: give the specification a name, another one for each run"
        )
    yield "pipeline", slug(spec.name, 60)
    yield "phase", phase.name
    try:
        yield from declared.words_of(phase)
    except ValueError as error:
        raise FormatError(f"{phase.name}: {error}") from error
