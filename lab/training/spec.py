"""The specification of a training job: its steps, their exchanges, checkpoints and evaluations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lab.training.kinds import JOB_KINDS, NEVER_S
from physics.comm import gradient_bytes
from physics.hardware import CURRENT
from physics.roofline import work_per_token_flop

Array = NDArray[np.float64]

#: The phases of a pipeline around its training. Loading is that of code and data, and, of a job
#: that is resumed, of its checkpoint.
STAGES_BEFORE = ("ingestion", "preprocessing", "features", "loading")
STAGES_AFTER = ("evaluation", "packaging", "promotion")

#: Weights in BF16, and in FP32 a copy of them and the two moments of Adam, by parameter.
STATE_BYTES_PER_PARAMETER = 14.0
#: What is read and written of that in each step.
_TRAFFIC_PER_STATE_BYTE = 2.0
#: An all-reduce of gradients can run behind the backward pass, less what the first layers give.
_OVERLAP = 0.5
#: Noise is at most three times as large, and no step takes no time.
_MOST_STRAY = 0.3


class SpecError(ValueError):
    """The specification of a training job cannot be carried out."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A phase before or after the training: it moves ``storage_bytes``, then works for ``seconds``.

    The seconds are those at full clocks.
    """

    name: str
    seconds: float = 0.0
    storage_bytes: float = 0.0
    activity: float = 0.2

    def __post_init__(self) -> None:
        if self.name not in STAGES_BEFORE + STAGES_AFTER:
            known = ", ".join(STAGES_BEFORE + STAGES_AFTER)
            raise SpecError(f"stage name: {self.name!r} is none of {known}")
        _check(self, at_least_0=("seconds", "storage_bytes", "activity"))


@dataclass(frozen=True, kw_only=True)
class LossCurve:
    """Loss after so many steps: ``floor + scale / (1 + steps) ** exponent``, and noise.

    The form and the exponent are those of Hoffmann and others 2022 for data (E = 1.69, 0.28; their
    410.7 for tokens is 5.8 for steps of four million of them). ``noise`` is a share of the loss.
    """

    floor: float = 1.69
    scale: float = 5.8
    exponent: float = 0.28
    noise: float = 0.01

    def __post_init__(self) -> None:
        _check(self, at_least_0=("floor", "scale", "exponent", "noise"))

    def at(self, steps: Array) -> Array:
        """Return the loss without noise."""
        loss: Array = self.floor + self.scale * (1.0 + steps) ** -self.exponent
        return loss


@dataclass(frozen=True, kw_only=True)
class TrainingSpec:
    """The specification of a training job.

    A step computes for ``base_step_s`` at full clocks with the whole batch, but never faster than
    its memory traffic, ``memory_step_s``, which no core clock changes; then it exchanges
    ``collective_bytes``, of which the share ``overlap`` can hide behind the computation. It ends
    after ``total_steps``. ``activity`` and ``comm_activity`` are load while it computes and while
    it exchanges; None: as jobs of ``kind`` have it. ``step_stray`` is how far the computing of
    single steps strays from their mean, as a share of it: a standard deviation.

    It saves ``checkpoint_bytes`` every ``checkpoint_interval_s`` of training, standing still
    meanwhile if ``checkpoint_blocks``. Evaluations begin ``eval_every_s`` after each other; each
    ends such a span.

    ``corrupts_on_resume`` and ``nondeterministic`` are defects for tests: what is loaded is not
    what was saved; and steps on slowed clocks come out different in each repetition.
    """

    base_step_s: float
    total_steps: int
    kind: str = "train"
    memory_step_s: float = 0.0
    collective_bytes: float = 0.0
    overlap: float = 0.0
    activity: float | None = None
    comm_activity: float | None = None
    step_stray: float = 0.0
    warmup_s: float = 0.0
    warmup_activity: float = 0.12
    checkpoint_bytes: float = 0.0
    checkpoint_interval_s: float = NEVER_S
    checkpoint_blocks: bool = True
    eval_every_s: float = NEVER_S
    eval_s: float = 0.0
    eval_activity: float = 0.5
    before: tuple[Stage, ...] = ()
    after: tuple[Stage, ...] = ()
    loss: LossCurve = field(default_factory=LossCurve)
    corrupts_on_resume: bool = False
    nondeterministic: bool = False

    def __post_init__(self) -> None:
        _check(self, above_0=("base_step_s", "total_steps", "checkpoint_interval_s"))
        _check(self, above_0=("eval_every_s",))
        names = ("memory_step_s", "collective_bytes", "warmup_s", "warmup_activity")
        _check(self, at_least_0=(*names, "checkpoint_bytes", "eval_s", "eval_activity"))
        if not 0.0 <= self.step_stray <= _MOST_STRAY:
            raise SpecError(
                f"step_stray: must be a share from 0 to {_MOST_STRAY}, not {self.step_stray}"
            )
        if not 0.0 <= self.overlap <= 1.0:
            raise SpecError(f"overlap: must be a share from 0 to 1, not {self.overlap}")
        if self.kind not in JOB_KINDS:
            raise SpecError(f"kind: {self.kind!r} is none of {', '.join(JOB_KINDS)}")
        if self.eval_s >= self.eval_every_s:
            raise SpecError(
                f"eval_s: {self.eval_s} leaves no time between evaluations: make it less than "
                f"eval_every_s, which is {self.eval_every_s}"
            )
        for stages, known in ((self.before, STAGES_BEFORE), (self.after, STAGES_AFTER)):
            for stage in stages:
                if stage.name not in known:
                    raise SpecError(f"stage {stage.name!r}: is to stand among {', '.join(known)}")

    @property
    def least_step_s(self) -> float:
        """Time of a step at full clocks without its waits for others."""
        return max(self.base_step_s, self.memory_step_s)

    @classmethod
    def of_model(
        cls,
        *,
        parameters: float,
        tokens_per_step: float,
        total_steps: int,
        gpus: int,
        gpu: str = "H100",
        efficiency: float = 0.5,
        checkpoint_interval_s: float = 1800.0,
    ) -> Self:
        """Return the plain data-parallel training of a dense model, by the roofline of ``gpu``.

        ``efficiency`` is the share of the peak that arithmetic reaches. The optimizer's state is
        shared out over the GPUs. ``gpu`` is a name in :data:`physics.hardware.CURRENT`.
        """
        part = CURRENT.accelerator(gpu)
        if part.peak_bf16_flops is None or part.memory_bytes_per_s is None:
            raise SpecError(f"gpu: the catalogue has no BF16 peak or no memory bandwidth of {gpu}")
        work_flop = float(work_per_token_flop(parameters=parameters, phase="training"))
        state_bytes = STATE_BYTES_PER_PARAMETER * parameters
        traffic_bytes = _TRAFFIC_PER_STATE_BYTE * state_bytes / gpus
        return cls(
            base_step_s=work_flop * tokens_per_step / gpus / (part.peak_bf16_flops * efficiency),
            memory_step_s=traffic_bytes / part.memory_bytes_per_s,
            total_steps=total_steps,
            collective_bytes=float(gradient_bytes(parameters=parameters)) if gpus > 1 else 0.0,
            overlap=_OVERLAP,
            checkpoint_bytes=state_bytes,
            checkpoint_interval_s=checkpoint_interval_s,
        )


def _check(
    given: object, *, above_0: tuple[str, ...] = (), at_least_0: tuple[str, ...] = ()
) -> None:
    """Refuse numbers of a dataclass that are too small, or none."""
    for name in (*above_0, *at_least_0):
        value = getattr(given, name)
        if not (value > 0 if name in above_0 else value >= 0) or not np.isfinite(value):
            bound = "above 0" if name in above_0 else "at least 0"
            raise SpecError(f"{name}: must be a number {bound}, not {value}")
