"""Wire contracts, shared by the agent, the server, the SDK and the twin.

Everything is columnar: one array per field, and row *i* of a block is the *i*-th element of each of
its arrays. A field that the source cannot read is left out (no array) or null in its row; it is
never zero, never NaN. Times are Unix seconds, UTC.

Units, where a name does not say them: ``*util`` and ``fan`` are percent (0 to 100), ``mem_used`` is
in bytes, ``nvlink_*`` and ``pcie_*`` are bytes per second, ``throttle`` is the NVML mask of
clocks-event reasons, ``throttle_*_ns`` are cumulative nanoseconds since the driver was loaded,
``ecc`` counts uncorrected errors since then, ``mig_instances`` is null where the GPU is not split.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct

from headroom.traffic import TrafficClass

#: The largest batch that the server takes, after decompression.
MAX_BATCH_BYTES = 16 * 1024 * 1024
#: The most rows that all blocks of a batch may have together.
MAX_ROWS = 200_000
#: The most that two clocks may differ by, s.
MAX_SKEW_S = 1e11

#: Postgres' text has no NUL.
_NO_NUL = r"^[^\x00]*$"
#: Control characters, line breaks, and what turns the direction of writing.
_ODD = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
#: What every name keeps to, whatever it is the name of. ("$" alone would let a line feed follow.)
PLAIN = rf"^[^{_ODD}]*$(?!\n)"
#: The same in words, after "has to be".
PLAIN_IN_WORDS = "text without line breaks, control characters and turns of direction"
#: The label of nodes whose recording has been played. A site all of whose nodes have it is left out
#: of the fleet.
RECORDING_OVER = "recording-over"
_FIRST_ODD = re.compile(f"[{_ODD}\ud800-\udfff]")

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200, pattern=PLAIN)]
BootId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=64, pattern=PLAIN)]
Seq: TypeAlias = Annotated[int, Meta(ge=1, le=2**62)]
Timestamp: TypeAlias = Annotated[float, Meta(ge=0, lt=1e11)]

_Watts = Annotated[float, Meta(ge=0, le=1e6)]
_SignedWatts = Annotated[float, Meta(ge=-1e10, le=1e10)]
_Joules = Annotated[float, Meta(ge=0, le=1e18)]
_Celsius = Annotated[float, Meta(ge=-100, le=300)]
_Megahertz = Annotated[float, Meta(ge=0, le=100_000)]
_Percent = Annotated[float, Meta(ge=0, le=100)]
_Bytes = Annotated[int, Meta(ge=0, le=2**60)]
_BytesPerSecond = Annotated[float, Meta(ge=0, le=1e15)]
Counter: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Seconds = Annotated[float, Meta(ge=0, le=1e9)]
_Finite = Annotated[float, Meta(ge=-1e300, le=1e300)]


def odd_character(name: str) -> str:
    """Return the first character of ``name`` that no name may have; empty: there is none."""
    found = _FIRST_ODD.search(name)
    return found[0] if found else ""


class ThrottleCause(enum.IntFlag):
    """Why a GPU runs below its clock: the bits of NVML's mask of reasons that are throttles.

    Idle (0x1) and application clocks (0x2) are left out: nothing is wrong with either.
    """

    SW_POWER_CAP = 0x4
    HW_SLOWDOWN = 0x8
    SYNC_BOOST = 0x10
    SW_THERMAL = 0x20
    HW_THERMAL = 0x40
    HW_POWER_BRAKE = 0x80
    DISPLAY_CLOCK = 0x100

    @property
    def token(self) -> str:
        """The name used in tables, labels, URLs and pages, such as ``sw_power_cap``."""
        return (self.name or "").lower()


class Columns(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A block of rows: ``ts`` and one array per further field, all of the same length."""

    ts: list[Timestamp]

    def __len__(self) -> int:
        return len(self.ts)


class GpuColumns(Columns, kw_only=True):
    """Readings of one node's GPUs; ``gpu`` is the index of the GPU on its node."""

    gpu: list[Annotated[int, Meta(ge=0, le=255)]]
    power_w: list[_Watts | None] | None = None
    power_limit_w: list[_Watts | None] | None = None
    energy_j: list[_Joules | None] | None = None
    temp_c: list[_Celsius | None] | None = None
    temp_mem_c: list[_Celsius | None] | None = None
    temp_limit_c: list[_Celsius | None] | None = None
    sm_mhz: list[_Megahertz | None] | None = None
    mem_mhz: list[_Megahertz | None] | None = None
    util: list[_Percent | None] | None = None
    mem_util: list[_Percent | None] | None = None
    mem_bw_util: list[_Percent | None] | None = None
    mem_used: list[_Bytes | None] | None = None
    mig_instances: list[Annotated[int, Meta(ge=0, le=255)] | None] | None = None
    fan: list[_Percent | None] | None = None
    throttle: list[Counter | None] | None = None
    throttle_sw_power_cap_ns: list[Counter | None] | None = None
    throttle_hw_slowdown_ns: list[Counter | None] | None = None
    throttle_sync_boost_ns: list[Counter | None] | None = None
    throttle_sw_thermal_ns: list[Counter | None] | None = None
    throttle_hw_thermal_ns: list[Counter | None] | None = None
    throttle_hw_power_brake_ns: list[Counter | None] | None = None
    nvlink_tx: list[_BytesPerSecond | None] | None = None
    nvlink_rx: list[_BytesPerSecond | None] | None = None
    pcie_tx: list[_BytesPerSecond | None] | None = None
    pcie_rx: list[_BytesPerSecond | None] | None = None
    ecc: list[Counter | None] | None = None
    xid: list[Annotated[int, Meta(ge=0, le=100_000)] | None] | None = None
    job: list[Name | None] | None = None


class HostColumns(Columns, kw_only=True):
    """Readings of the node itself.

    ``psi_*`` is the share of time in which some task stalled, percent. ``power_w`` is what the node
    draws besides its GPUs, as its baseboard tells; ``cpu_power_w`` is the CPU packages' part of it.
    """

    cpu_util: list[_Percent | None] | None = None
    mem_used: list[_Bytes | None] | None = None
    mem_total: list[_Bytes | None] | None = None
    net_rx_bytes_per_s: list[_BytesPerSecond | None] | None = None
    net_tx_bytes_per_s: list[_BytesPerSecond | None] | None = None
    psi_cpu: list[_Percent | None] | None = None
    psi_mem: list[_Percent | None] | None = None
    psi_io: list[_Percent | None] | None = None
    power_w: list[_Watts | None] | None = None
    cpu_power_w: list[_Watts | None] | None = None


class StorageColumns(Columns, kw_only=True):
    """How long the storage behind a node's mounts takes, each by its mount point or name."""

    mount: list[Name]
    fsync_s: list[_Seconds | None] | None = None
    read_s: list[_Seconds | None] | None = None


class XidColumns(Columns, kw_only=True):
    """Xid errors that the node's kernel logged, a row each.

    ``gpu`` is the index of the GPU on its node, null where the line names none that is known.
    ``pci`` is the bus id that it gives, ``text`` what it says.
    """

    xid: list[Annotated[int, Meta(ge=0, le=100_000)]]
    gpu: list[Annotated[int, Meta(ge=0, le=255)] | None] | None = None
    pci: list[Annotated[str, Meta(max_length=50, pattern=_NO_NUL)] | None] | None = None
    text: list[Annotated[str, Meta(max_length=500, pattern=_NO_NUL)]] | None = None


class NodeReport(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Readings of one node: its GPUs, its host, its storage and the Xids in its kernel's log."""

    node: Name
    gpus: GpuColumns | None = None
    host: HostColumns | None = None
    storage: StorageColumns | None = None
    xids: XidColumns | None = None


class LinkColumns(Columns, kw_only=True):
    """Readings of links, each by its name in the inventory. ``errors`` is cumulative.

    ``tx_CLASS_bytes_per_s`` is what was sent of a class of traffic, where the host counts it.
    """

    link: list[Name]
    tx_bytes_per_s: list[_BytesPerSecond | None] | None = None
    rx_bytes_per_s: list[_BytesPerSecond | None] | None = None
    latency_s: list[_Seconds | None] | None = None
    retransmits_per_s: list[_BytesPerSecond | None] | None = None
    errors: list[Counter | None] | None = None
    tx_control_bytes_per_s: list[_BytesPerSecond | None] | None = None
    tx_collective_bytes_per_s: list[_BytesPerSecond | None] | None = None
    tx_checkpoint_bytes_per_s: list[_BytesPerSecond | None] | None = None
    tx_data_bytes_per_s: list[_BytesPerSecond | None] | None = None
    tx_artifact_bytes_per_s: list[_BytesPerSecond | None] | None = None
    tx_log_bytes_per_s: list[_BytesPerSecond | None] | None = None
    tx_operator_bytes_per_s: list[_BytesPerSecond | None] | None = None


class MeterColumns(Columns, kw_only=True):
    """Readings of meters, each by its name in the inventory.

    ``power_w`` may be zero or negative: real meters say so when they fail, and that is kept.
    """

    meter: list[Name]
    power_w: list[_SignedWatts | None] | None = None
    energy_j: list[_Joules | None] | None = None
    temp_c: list[_Celsius | None] | None = None


class JobColumns(Columns, kw_only=True):
    """Progress of training jobs, as the training loop reports it.

    ``step`` is whatever the loop counts on: optimizer steps, samples or tokens. ``data_wait_s`` and
    ``sync_s`` are how long a step waits for its data (on the rank that waits longest) and for the
    gradients of other ranks (on average). ``lost_share`` is the share of the time outside of steps:
    saves, evaluation, pauses, preparing. ``rank_spread`` is how much longer than the median rank's
    steps those of the slowest take, without waiting for others; ``slowest_rank`` is that rank where
    it stands out. ``rank_mem_bytes`` is the most that any rank has held. ``flops_per_step`` is what
    the model takes in a step, of all ranks together.
    """

    job: list[Name]
    step: list[Counter | None] | None = None
    loss: list[_Finite | None] | None = None
    step_time_s: list[_Seconds | None] | None = None
    samples_per_s: list[_Finite | None] | None = None
    tokens_per_s: list[_Finite | None] | None = None
    data_wait_s: list[_Seconds | None] | None = None
    sync_s: list[_Seconds | None] | None = None
    lost_share: list[Annotated[float, Meta(ge=0, le=1)] | None] | None = None
    rank_spread: list[Annotated[float, Meta(ge=0, le=1e9)] | None] | None = None
    slowest_rank: list[Annotated[int, Meta(ge=0, le=2**31 - 1)] | None] | None = None
    rank_mem_bytes: list[_Bytes | None] | None = None
    flops_per_step: list[Annotated[float, Meta(gt=0, le=1e30)] | None] | None = None


class LimitKind(enum.StrEnum):
    """The kind of a limit: the quantity that it holds down."""

    #: The power limit of the GPU, W.
    POWER_CAP_W = "power_cap_w"
    #: The highest SM clock, MHz.
    CLOCK_CAP_MHZ = "clock_cap_mhz"


#: What reports have as their kind that are on no GPU: shares of a link, and how fast checkpoints
#: are sent to another site, Mbit/s.
LINK_SHARE, SHIP_RATE = "link_share", "ship_rate"


class Limit(Struct, kw_only=True, omit_defaults=True):
    """A lease on a limit: it ends by itself at ``expires_at``, by the server's clock.

    ``gpu`` is the index of the GPU on its node; null stands for all of them. ``kind`` is one of
    :class:`LimitKind`; an agent refuses one that it does not know and keeps to the others.
    """

    id: Name
    node: Name
    kind: Name
    value: Annotated[float, Meta(ge=0, le=1e6)]
    expires_at: Timestamp
    gpu: Annotated[int, Meta(ge=0, le=255)] | None = None


class ClassShare(Struct, kw_only=True, frozen=True):
    """The shares of a link's capacity that one class of traffic is sure of, and gets at most."""

    name: TrafficClass
    guaranteed: Annotated[float, Meta(ge=0, le=1)]
    most: Annotated[float, Meta(ge=0, le=1)]


class LinkLimit(Struct, kw_only=True, omit_defaults=True):
    """A lease on how a link is shared: it ends by itself at ``expires_at``, by the server's clock.

    ``share`` is what the classes of jobs get together at most, of ``capacity_bits_per_s``.
    """

    id: Name
    link: Name
    capacity_bits_per_s: Annotated[float, Meta(gt=0, le=1e15)]
    share: Annotated[float, Meta(ge=0, le=1)]
    classes: Annotated[list[ClassShare], Meta(min_length=1, max_length=32)]
    expires_at: Timestamp


class LimitSet(Struct, kw_only=True):
    """The answer of ``GET /api/v1/limits``: all limits in force on the nodes of one agent.

    ``now`` is the server's clock. An agent that hears nothing newer gives up all of ``limits``
    after ``valid_for_s``. ``links`` has those of the links that the agent has named.
    """

    limits: Annotated[list[Limit], Meta(max_length=10_000)]
    now: Timestamp
    valid_for_s: _Seconds
    links: Annotated[list[LinkLimit], Meta(max_length=1_000)] = []


class LimitState(enum.StrEnum):
    """The state of a limit on one GPU."""

    #: In force: set by the agent, or a stricter one is in force anyway.
    APPLIED = "applied"
    #: The GPU, the driver or the agent's permissions do not allow it. Nothing was changed.
    REFUSED = "refused"
    #: Its time was up; the GPU is as it was before.
    EXPIRED = "expired"
    #: It was withdrawn, or the agent stopped; the GPU is as it was before.
    RESTORED = "restored"
    #: The driver took it and something else is in force, or it could not be undone.
    FAILED = "failed"


class LimitReport(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The state of one limit on one GPU. The last report of a limit and a GPU counts.

    ``asked``, ``original`` and ``applied`` are in the unit of the kind: ``original`` was in force
    before, ``applied`` is since ``at``, as read back. ``watts_*`` are means over a few seconds.
    """

    limit: Name
    node: Name
    kind: Name
    state: LimitState
    at: Timestamp
    asked: Annotated[float, Meta(ge=0, le=1e6)]
    gpu: Annotated[int, Meta(ge=0, le=255)] | None = None
    original: Annotated[float, Meta(ge=0, le=1e6)] | None = None
    applied: Annotated[float, Meta(ge=0, le=1e6)] | None = None
    watts_before: _Watts | None = None
    watts_after: _Watts | None = None
    error: Annotated[str, Meta(max_length=500, pattern=_NO_NUL)] = ""


class WholeCheckpoint(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A checkpoint each byte of which was read in the store where it counts.

    ``digest`` is the SHA-256 of its manifest, ``epoch`` the start of the run that saved it,
    ``verified_at`` when it came to count there, by the clock of the store.
    """

    epoch: Counter
    step: Counter
    saved_at: Timestamp
    verified_at: Timestamp
    bytes: _Bytes
    digest: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$(?!\n)")]


class StoreLag(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How far a store is behind the one at the loop.

    ``steps`` and ``seconds`` are what a resume there loses of what one at the loop does not: null
    where there is nothing to resume from. ``bytes`` is what the latest at the loop has that none
    there has, ``checkpoints`` how many are later than the latest there.
    """

    checkpoints: Counter
    bytes: _Bytes
    steps: Counter | None = None
    seconds: _Seconds | None = None


class StoreState(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the keeper of a run's checkpoints knows of one store.

    ``site`` is where the store is; empty: at the site of the node that tells. ``lease_epoch`` is
    the start of the run for which the keeper speaks. Without ``checkpoint`` none counts there;
    without ``lag`` it is the store at the loop. ``sent_bytes_per_s`` was measured when bytes went
    there last, the time in which they were read back included.
    """

    run: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$(?!\n)")]
    lease_epoch: Counter
    site: Annotated[str, Meta(max_length=200, pattern=PLAIN)] = ""
    checkpoint: WholeCheckpoint | None = None
    lag: StoreLag | None = None
    sent_bytes_per_s: _BytesPerSecond | None = None


class CheckpointReport(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What was told at ``at`` on ``node`` of one store with checkpoints of ``job``.

    The last report of a job and a site counts, unless a later start of the run has told already.
    """

    job: Name
    node: Name
    at: Timestamp
    store: StoreState


_Version: TypeAlias = Annotated[str, Meta(max_length=300, pattern=PLAIN)]


class VersionReport(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The versions of what ``node`` ran at ``at``; empty: not known. The last report counts.

    ``vbios`` and ``nic_firmware`` have each version once that any GPU or NIC has, in order, with a
    comma between them. ``nccl`` and ``image`` are what jobs there told last.
    """

    node: Name
    at: Timestamp
    driver: _Version = ""
    vbios: _Version = ""
    nic_firmware: _Version = ""
    fabric_driver: _Version = ""
    nccl: _Version = ""
    image: _Version = ""


class AgentStatus(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The status of the agent itself.

    ``thinned_rows`` counts readings left out of batches that had to wait too long. ``skew_s`` is
    its clock minus the server's, with the time on the network taken out; null: not known yet.
    """

    version: Annotated[str, Meta(max_length=50, pattern=_NO_NUL)] = ""
    spooled_batches: Counter = 0
    dropped_batches: Counter = 0
    thinned_rows: Counter = 0
    errors: Counter = 0
    last_error: Annotated[str, Meta(max_length=500, pattern=_NO_NUL)] = ""
    skew_s: Annotated[float, Meta(ge=-MAX_SKEW_S, le=MAX_SKEW_S)] | None = None


class TelemetryBatch(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One push of one agent: the body of ``POST /api/v1/telemetry``.

    ``seq`` counts up from 1 within a ``boot_id`` (one life of the agent's spool). ``oldest_seq`` is
    the lowest seq that the agent still holds: everything below it was acknowledged or given up, so
    the server need not wait for it.
    """

    agent: Name
    boot_id: BootId
    seq: Seq
    oldest_seq: Seq
    sent_at: Timestamp
    status: AgentStatus | None = None
    nodes: list[NodeReport] = []
    links: LinkColumns | None = None
    meters: MeterColumns | None = None
    jobs: JobColumns | None = None
    limits: Annotated[list[LimitReport], Meta(max_length=10_000)] = []
    checkpoints: Annotated[list[CheckpointReport], Meta(max_length=1_000)] = []
    versions: Annotated[list[VersionReport], Meta(max_length=1_000)] = []


class FieldError(Struct, kw_only=True, omit_defaults=True):
    """Why a request was refused: a stable code, the field, a sentence, and the way out.

    Of a document it also says where, from 1; 0: nowhere.
    """

    code: str
    message: str
    field: str = ""
    hint: str = ""
    line: int = 0
    column: int = 0


class LateRefusal(Struct, kw_only=True):
    """Rows of an earlier batch that were refused when they were to be stored; the rest of it is.

    ``errors`` tells of the first of them why.
    """

    seq: int
    rows: int
    errors: list[FieldError]


class TelemetryAck(Struct, kw_only=True, omit_defaults=True):
    """The answer to a batch: all up to and including ``durable_seq`` is committed in Postgres.

    ``refused`` has what was found wrong with batches of fixed-width rows since the ``oldest_seq``
    that the agent holds: it is told again until the agent has let go of them.
    """

    durable_seq: int
    received_at: float
    refused: list[LateRefusal] = []


class ErrorBody(Struct, kw_only=True, omit_defaults=True):
    """The body of every 4xx and 5xx answer of the telemetry API.

    With ``ack`` only the ``refused_rows`` were refused, and the rest of the batch was taken as by a
    202: sending it again brings nothing. ``refused`` says of the first of them why. Without ``ack``
    nothing was taken.
    """

    error: FieldError
    refused: list[FieldError] = []
    refused_rows: int = 0
    ack: TelemetryAck | None = None


class BatchError(ValueError):
    """A batch breaks the contract. ``error`` says where and why."""

    def __init__(self, code: str, message: str, *, field: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.error = FieldError(code=code, message=message, field=field, hint=hint)


class TooManyRows(BatchError):
    """The batch has more rows than are taken at once."""


def invalid_field(exc: msgspec.ValidationError, under: str = "") -> BatchError:
    """Return the error that the decoder found, with the path of its field below ``under``."""
    message, _, path = str(exc).partition(" - at `$")
    return BatchError(
        "invalid_field",
        message,
        field=(under + path.rstrip("`")).lstrip("."),
        hint="see the telemetry contract in docs/reference/telemetry.md",
    )


def blocks(batch: TelemetryBatch) -> Iterator[tuple[str, Columns]]:
    """Yield every block of rows in ``batch`` with its path in the document."""
    for i, report in enumerate(batch.nodes):
        for name in ("gpus", "host", "storage", "xids"):
            block = getattr(report, name)
            if block is not None:
                yield f"nodes[{i}].{name}", block
    for name in ("links", "meters", "jobs"):
        block = getattr(batch, name)
        if block is not None:
            yield name, block


def row_count(batch: TelemetryBatch) -> int:
    """Return the number of rows in all blocks of ``batch``."""
    return sum(len(block) for _, block in blocks(batch))


def check_shape(batch: TelemetryBatch) -> None:
    """Raise :class:`BatchError` where arrays of one block differ in length.

    Types and ranges (and with them NaN) are checked by the decoder; this is what it cannot see.
    """
    check_seqs(batch.seq, batch.oldest_seq)
    rows = 0
    for path, block in blocks(batch):
        rows += len(block.ts)
        check_block(path, block)
    check_row_count(rows)


def check_seqs(seq: int, oldest_seq: int) -> None:
    """Raise :class:`BatchError` where a batch is older than the oldest that is held."""
    if oldest_seq > seq:
        raise BatchError(
            "oldest_seq_above_seq",
            f"oldest_seq {oldest_seq} is above seq {seq}",
            field="oldest_seq",
            hint="oldest_seq is the lowest seq that the agent still holds, this batch included",
        )


def check_row_count(rows: int) -> None:
    """Raise :class:`TooManyRows` where a batch has more rows than are taken at once."""
    if rows > MAX_ROWS:
        raise TooManyRows(
            "too_many_rows",
            f"{rows} rows in one batch; at most {MAX_ROWS} are taken",
            hint="send smaller batches",
        )


def check_block(path: str, block: Columns) -> None:
    """Raise :class:`BatchError` where arrays of ``block``, which stands at ``path``, differ."""
    rows = len(block.ts)
    for place, column in enumerate(msgspec.structs.astuple(block)):
        if column is not None and len(column) != rows:
            raise BatchError(
                "length_mismatch",
                f"{len(column)} values beside {rows} timestamps",
                field=f"{path}.{block.__struct_fields__[place]}",
                hint="every array of a block has one value (or null) for each element of ts",
            )


_json_decoder = msgspec.json.Decoder(TelemetryBatch)
_msgpack_decoder = msgspec.msgpack.Decoder(TelemetryBatch)
_msgpack_encoder = msgspec.msgpack.Encoder()


def decode_batch(body: bytes, *, json: bool) -> TelemetryBatch:
    """Decode and check one batch.

    Raises :class:`BatchError` with the path of the first field at fault.
    """
    try:
        batch = _json_decoder.decode(body) if json else _msgpack_decoder.decode(body)
    except msgspec.ValidationError as exc:
        raise invalid_field(exc) from exc
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        kind = "JSON" if json else "MessagePack"
        raise BatchError(
            "malformed_body",
            f"the body is not valid {kind}: {exc}",
            hint="check Content-Type, Content-Encoding and that the body was sent whole",
        ) from exc
    check_shape(batch)
    return batch


def encode_batch(batch: TelemetryBatch) -> bytes:
    """Encode ``batch`` as MessagePack."""
    return _msgpack_encoder.encode(batch)
