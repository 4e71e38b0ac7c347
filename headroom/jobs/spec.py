"""The job specification: a pipeline run of phases, each with constraints of its own.

What a phase leaves out is taken from its scheduling class, field by field. Quantities are of one
GPU where a name or a description says so, and in the unit that the name ends in.

What the types below cannot see is in :mod:`headroom.jobs.reading`; what only the server knows
(projects, classes, hardware models, sites) is checked when a job is submitted.
"""

from __future__ import annotations

import enum
import re
from datetime import datetime
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from headroom.contracts import PLAIN
from headroom.jobs.array import LARGEST_INDEX

__all__ = [
    "MOST_ARTIFACTS",
    "MOST_GPUS",
    "MOST_PHASES",
    "SPEC_VERSION",
    "ArtifactOf",
    "Artifacts",
    "Checkpoint",
    "CrossSite",
    "Energy",
    "Gang",
    "Input",
    "JobSpec",
    "Level",
    "LocalitySpec",
    "Need",
    "Network",
    "Output",
    "PhaseSpec",
    "Power",
    "Precision",
    "Prefer",
    "Promotion",
    "Response",
    "Restart",
    "Sensitivity",
    "Thermal",
    "Throttling",
    "Tolerance",
    "When",
    "slug",
]

#: Of the format. A field that comes to mean something else makes a new one.
SPEC_VERSION = 1

MOST_GPUS = 100_000
MOST_PHASES = 50
#: Artifacts that a phase makes, or takes.
MOST_ARTIFACTS = 50

#: Postgres' text, and an environment, have no NUL. ("$" alone would let a line feed follow.)
NO_NUL = r"^[^\x00]*$"
#: What Slurm, Kubernetes and a file system all take; "/" parts the words of a key.
SLUG = r"^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$(?!\n)"
PATH = r"^([^/\x00]+/[^\x00]+)?$"
IMAGE = r"^([^\s@\x00]+@)?sha256:[0-9a-f]{64}$(?!\n)"
REVISION = r"^([0-9a-f]{40}|[0-9a-f]{64})$(?!\n)"
#: Of all bytes, or of samples: see docs/reference/inputs.md.
CHECKSUM = r"^(sampled-)?sha256:[0-9a-f]{64}$(?!\n)"
PLACE = r"^/[^\x00]*$"
ARRAY = r"^[0-9,:%-]+$(?!\n)"
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$(?!\n)"
_NOT_IN_SLUGS = re.compile(r"[^a-z0-9._-]+")

JobName: TypeAlias = Annotated[str, Meta(max_length=200, pattern=SLUG)]
PhaseName: TypeAlias = Annotated[str, Meta(max_length=60, pattern=SLUG)]
ArtifactName: TypeAlias = Annotated[str, Meta(max_length=60, pattern=SLUG)]
ProjectName: TypeAlias = Annotated[str, Meta(max_length=60, pattern=SLUG)]
ClassName: TypeAlias = Annotated[str, Meta(max_length=60, pattern=SLUG)]
#: Of the inventory.
_Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200, pattern=PLAIN)]
_Word: TypeAlias = Annotated[str, Meta(max_length=200, pattern=PLAIN)]
_Path: TypeAlias = Annotated[str, Meta(max_length=300, pattern=PATH)]
_Text: TypeAlias = Annotated[str, Meta(max_length=4000, pattern=NO_NUL)]
_Argument: TypeAlias = Annotated[str, Meta(max_length=32_768, pattern=NO_NUL)]
_Variable: TypeAlias = Annotated[str, Meta(max_length=200, pattern=VARIABLE)]
_Image: TypeAlias = Annotated[str, Meta(max_length=500, pattern=IMAGE)]
_Revision: TypeAlias = Annotated[str, Meta(pattern=REVISION)]
_Checksum: TypeAlias = Annotated[str, Meta(pattern=CHECKSUM)]
_Place: TypeAlias = Annotated[str, Meta(max_length=4000, pattern=PLACE)]
_ArrayText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=1000, pattern=ARRAY)]
_Gpus: TypeAlias = Annotated[int, Meta(ge=1, le=MOST_GPUS)]
_SomeGpus: TypeAlias = Annotated[int, Meta(ge=0, le=MOST_GPUS)]
_Cores: TypeAlias = Annotated[int, Meta(ge=1, le=4096)]
_Nodes: TypeAlias = Annotated[int, Meta(ge=1, le=10_000)]
_PerNode: TypeAlias = Annotated[int, Meta(ge=1, le=255)]
_Slice: TypeAlias = Annotated[str, Meta(min_length=1, max_length=20, pattern=PLAIN)]
_Count: TypeAlias = Annotated[int, Meta(ge=0, le=1000)]
_Urgency: TypeAlias = Annotated[int, Meta(ge=-100, le=100)]
_Watts: TypeAlias = Annotated[float, Meta(gt=0, le=1e5)]
_Kelvin: TypeAlias = Annotated[float, Meta(ge=0, le=60)]
_Rate: TypeAlias = Annotated[float, Meta(ge=0, le=1e15)]
_Bytes: TypeAlias = Annotated[float, Meta(ge=0, le=1e18)]
_Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=3.2e7)]
_Wait: TypeAlias = Annotated[float, Meta(ge=0, le=86_400)]
_Days: TypeAlias = Annotated[float, Meta(ge=0, le=604_800)]
_Seconds0: TypeAlias = Annotated[float, Meta(ge=0, le=3.2e7)]
_Element: TypeAlias = Annotated[int, Meta(ge=0, le=LARGEST_INDEX)]
_Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
_PositiveShare: TypeAlias = Annotated[float, Meta(gt=0, le=1)]
_Flop: TypeAlias = Annotated[float, Meta(gt=0, le=1e30)]


def _says(text: str) -> Meta:
    """Return the description of a field in the JSON schema."""
    return Meta(description=text)


class Level(enum.StrEnum):
    """How close together the GPUs of a gang are, the closest first."""

    NODE = "node"
    RACK = "rack"
    SWITCH_DOMAIN = "switch_domain"
    ZONE = "zone"
    SITE = "site"
    FLEET = "fleet"


class Sensitivity(enum.StrEnum):
    """Sensitivity to heat: with a low one any GPU below its slowdown temperature will do."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"


class CrossSite(enum.StrEnum):
    """Whether checkpoints are copied to another site."""

    REQUIRED = "required"
    OPTIONAL = "optional"
    NONE = "none"


class Tolerance(enum.StrEnum):
    """The failures after which a phase may be started again."""

    #: nothing: it fails
    NONE = "none"
    #: what is not its own fault: a lost node, a preemption, a shed load
    DISRUPTION = "disruption"
    #: also an exit code other than 0
    FAILURE = "failure"


class Response(enum.StrEnum):
    """A response of a running phase to a shortage of power, cooling or links."""

    #: run slower, under a cap
    CONTINUE = "continue"
    SHRINK_BATCH = "shrink-batch"
    PAUSE = "pause"
    MIGRATE = "migrate"


class _Section(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, frozen=True):
    """A part of a specification. None: the value of the scheduling class."""


class Gang(_Section, frozen=True):
    """The GPUs of a phase, or its CPU cores: all at once, or none."""

    gpus: Annotated[
        _SomeGpus, _says("GPUs that it asks for; 1 where it takes a slice, 0 where it takes cores")
    ]
    min_gpus: Annotated[_Gpus | None, _says("The fewest it runs with; null: all of them")] = None
    max_gpus: Annotated[_Gpus | None, _says("The most that it can grow to; null: no more")] = None
    gpus_per_node: Annotated[_PerNode | None, _says("On each node; null: as it comes")] = None
    models: Annotated[
        list[_Name],
        Meta(max_length=20, description="Hardware models that it takes, best first; empty: any"),
    ] = []
    slice: Annotated[
        _Slice | None,
        _says('MIG profile of a slice that it takes, as "1g.10gb"; null: a whole GPU'),
    ] = None
    cores: Annotated[
        _Cores | None, _says("CPU cores on each of its nodes, which have no GPUs; null: none")
    ] = None
    nodes: Annotated[_Nodes | None, _says("Nodes that it takes cores of; null: one")] = None
    mem_bytes: Annotated[
        _Bytes | None, _says("Memory on each of its nodes, which comes with the cores; null: any")
    ] = None


class Power(_Section, frozen=True):
    """The power that each GPU of a phase draws, and how far it may be cut."""

    expected_peak_w: Annotated[
        _Watts | None, _says("Of each GPU, slice or core, W; null: what its model is rated for")
    ] = None
    lowest_cap_w: Annotated[
        _Watts | None, _says("The lowest power cap that it accepts, W per GPU; null: none")
    ] = None
    burst_allowed: Annotated[
        bool | None, _says("May draw more for seconds: what its model is rated for is kept for it")
    ] = None


class Thermal(_Section, frozen=True):
    """The demands of a phase on the cooling."""

    sensitivity: Annotated[Sensitivity | None, _says("How much heat hurts it")] = None
    margin_c: Annotated[
        _Kelvin | None, _says("°C below slowdown that each GPU keeps; null: by its sensitivity")
    ] = None
    cooling: Annotated[list[_Name] | None, _says("Kinds of cooling that it takes; empty: any")] = (
        None
    )


class LocalitySpec(_Section, frozen=True):
    """Where a phase may run, and how close together its GPUs have to be."""

    required: Annotated[Level | None, _says("It never stands farther apart")] = None
    preferred: Annotated[Level | None, _says("Tried first")] = None
    balanced: Annotated[bool | None, _says("Spread evenly over the parts it stands on")] = None
    sites: Annotated[
        list[_Name], Meta(max_length=100, description="Where it may run; empty: anywhere")
    ] = []
    nodes: Annotated[
        list[_Name], Meta(max_length=20_000, description="Those that it may use; empty: any")
    ] = []
    data_site: Annotated[_Word, _says("Where its data is; empty: everywhere")] = ""
    storage: Annotated[_Path, _says('Storage endpoint that it uses, as "site/name"')] = ""
    storage_bytes_per_s: Annotated[_Rate | None, _says("Of that endpoint, byte/s")] = None


class Network(_Section, frozen=True):
    """The traffic of a phase over the network."""

    cross_site_bits_per_s: Annotated[
        _Rate | None, _says("Over the WAN where it is not at its data, bit/s")
    ] = None
    collective_bytes_per_step: Annotated[
        _Bytes | None, _says("That each GPU exchanges with the others in a step")
    ] = None
    step_s: Annotated[_Seconds | None, _says("What a step computes for, s")] = None


class Checkpoint(_Section, frozen=True):
    """The checkpoints that a phase writes."""

    interval_s: Annotated[_Seconds | None, _says("Between two, s; null: it writes none")] = None
    size_bytes: Annotated[_Bytes | None, _says("Of one")] = None
    cross_site: Annotated[CrossSite | None, _says("Whether they are copied to another site")] = None


class Restart(_Section, frozen=True):
    """Whether a phase is started again, and how often."""

    tolerance: Annotated[Tolerance | None, _says("After what it may be started again")] = None
    max_restarts: Annotated[_Count | None, _says("After so many it fails")] = None
    backoff_s: Annotated[
        _Wait | None, _says("Before the first restart, s; doubles each time, up to an hour")
    ] = None


class Throttling(_Section, frozen=True):
    """The responses of a running phase to a shortage of power, cooling or links."""

    responses: Annotated[list[Response] | None, _says("What it can do")] = None
    shrink_below: Annotated[
        _Share | None, _says("A: share of headroom left below which it shrinks its batch")
    ] = None
    pause_below: Annotated[
        _Share | None, _says("B: share of headroom left below which it pauses")
    ] = None
    min_batch_scale: Annotated[_PositiveShare | None, _says("Of its batch, at least")] = None
    max_slowdown: Annotated[
        _Share | None, _says("Share of its speed that it gives up to caps at most")
    ] = None


class Artifacts(_Section, frozen=True):
    """The image, code and data of a phase, fixed so that each start gives the same result."""

    image: Annotated[_Image | None, _says("By digest: [name@]sha256:…")] = None
    code_revision: Annotated[_Revision | None, _says("The whole id of a commit")] = None
    data: Annotated[
        dict[_Name, _Checksum] | None, _says("Checksum of each data set; {}: it reads none")
    ] = None
    code_path: Annotated[
        _Place | None, _says("Where the commit is checked out on its machines: verified there")
    ] = None
    data_paths: Annotated[
        dict[_Name, _Place],
        Meta(max_length=100, description="Where data sets lie on its machines: verified there"),
    ] = {}


class ArtifactOf(_Section, frozen=True):
    """An artifact that an earlier phase of the job makes."""

    phase: Annotated[PhaseName, _says("That makes it: one that this phase needs")]
    output: Annotated[ArtifactName, _says("Its name there")]

    def __str__(self) -> str:
        return f"{self.phase}/{self.output}"


class Input(ArtifactOf, frozen=True):
    """An artifact that a phase takes: its digest is verified before the command starts."""

    path: Annotated[
        _Place | None, _says("Where it lies on the machines of this phase; null: where it was made")
    ] = None


class Output(_Section, frozen=True):
    """An artifact that a phase makes: it is measured once the command has succeeded."""

    name: ArtifactName
    path: Annotated[_Place, _says("The file or folder, on each machine of the phase")]
    copies: Annotated[
        list[_Name],
        Meta(max_length=20, description="Sites where copies of it are wanted"),
    ] = []
    copy_of: Annotated[
        ArtifactOf | None, _says("It is a copy of this one, at the site of this phase; null: none")
    ] = None
    matrix: Annotated[bool, _says("It is what headroom matrix run left: its cells are counted")] = (
        False
    )


class Promotion(_Section, frozen=True):
    """What has to hold before a phase promotes what it takes."""

    matrix: Annotated[
        list[ArtifactOf],
        Meta(max_length=MOST_ARTIFACTS, description="Results of matrices that have to have passed"),
    ] = []


class Precision(enum.StrEnum):
    """The format of numbers that a model computes in: peaks of GPUs are by it."""

    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"


class Prefer(enum.StrEnum):
    """What a phase wants little of, where it has a choice of sites and hours."""

    PRICE = "price"
    CARBON = "carbon"


class Energy(_Section, frozen=True):
    """What a phase prefers of the power that it runs on. No class says it for it."""

    prefer: Annotated[
        Prefer | None, _says("Sites and hours of a low price, or of little carbon; null: any")
    ] = None
    may_wait_s: Annotated[
        _Days, _says("It agrees to begin so much later than it could, for such an hour, s")
    ] = 0.0


class When(enum.StrEnum):
    """What a need waits for."""

    SUCCEEDED = "succeeded"
    #: it failed, or was cancelled
    FAILED = "failed"
    ENDED = "ended"
    STARTED = "started"


class Need(_Section, frozen=True):
    """What a job or phase waits for: another job, or a phase."""

    job: Annotated[JobName | None, _says("Another job, submitted before; null: this one")] = None
    phase: Annotated[PhaseName | None, _says("Of that job; null: all of it")] = None
    element: Annotated[
        _Element | Literal["same"] | None,
        _says("Of an array, this one alone; same: that with the index of its own; null: all"),
    ] = None
    when: Annotated[When, _says("It has succeeded, failed, ended or started")] = When.SUCCEEDED
    after_s: Annotated[_Seconds0, _says("And so long ago, s")] = 0.0


class PhaseSpec(_Section, frozen=True):
    """One step of a job, which is placed by itself."""

    name: PhaseName
    gang: Gang
    walltime_s: Annotated[_Seconds, _says("After that long it is stopped, s")]
    needs: Annotated[
        list[PhaseName | Need],
        Meta(max_length=MOST_PHASES, description="What comes before it: phases that succeed, …"),
    ] = []
    power: Power = Power()
    thermal: Thermal = Thermal()
    locality: LocalitySpec = LocalitySpec()
    network: Network = Network()
    checkpoint: Checkpoint = Checkpoint()
    restart: Restart = Restart()
    throttling: Throttling = Throttling()
    artifacts: Artifacts = Artifacts()
    inputs: Annotated[
        list[Input],
        Meta(max_length=MOST_ARTIFACTS, description="Artifacts of earlier phases that it takes"),
    ] = []
    outputs: Annotated[
        list[Output], Meta(max_length=MOST_ARTIFACTS, description="Artifacts that it makes")
    ] = []
    promotion: Annotated[
        Promotion | None, _says("It promotes its inputs: copies of them may not lag; null: none")
    ] = None
    energy: Energy = Energy()
    flops_per_step: Annotated[
        _Flop | None,
        _says("FLOPs that its model takes in one step, of all GPUs together; null: not known"),
    ] = None
    precision: Annotated[Precision, _says("Of those FLOPs")] = Precision.BF16
    command: Annotated[
        list[_Argument], Meta(max_length=1000, description="What each node runs, without a shell")
    ] = []
    env: Annotated[
        dict[_Variable, _Argument], Meta(max_length=500, description="Environment of the command")
    ] = {}


class JobSpec(_Section, frozen=True, rename={"job_class": "class"}):
    """A pipeline run, as it is submitted."""

    project: ProjectName
    job_class: Annotated[ClassName, _says("Its scheduling class")]
    phases: Annotated[list[PhaseSpec], Meta(min_length=1, max_length=MOST_PHASES)]
    version: Annotated[int, Meta(ge=1, le=SPEC_VERSION, description="Of this format")] = (
        SPEC_VERSION
    )
    name: Annotated[JobName | None, _says("Unique; null: the server gives one")] = None
    priority: Annotated[_Urgency, _says("Larger is more urgent; its class adds its own")] = 0
    begin_by: Annotated[
        Annotated[datetime, Meta(tz=True)] | None, _says("When it should have begun")
    ] = None
    needs: Annotated[
        list[Need], Meta(max_length=MOST_PHASES, description="Before any of its phases begins")
    ] = []
    array: Annotated[
        _ArrayText | None,
        _says("Indices of its elements, as 0-99:2%10: each runs all phases; 10 of them at once"),
    ] = None
    interactive: Annotated[
        bool, _says("It is for a terminal in it, and ends once that does; it has one phase")
    ] = False
    scheduler: Annotated[
        _Word, _says("Whose job it is, adopted by Headroom; empty: our own, nobody sends another")
    ] = ""
    labels: Annotated[dict[_Word, _Word], Meta(max_length=50)] = {}
    description: _Text = ""


def slug(text: str, most: int) -> str:
    """Return ``text`` as a name of at most ``most`` characters; empty where nothing is left."""
    return _NOT_IN_SLUGS.sub("-", text.lower())[:most].strip("-._")
