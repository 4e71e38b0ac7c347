"""A callback for Lightning: ``Trainer(callbacks=[HeadroomCallback(folder)])``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch import Callback

from headroom.training.sections import Section
from headroom.training.session import Session, session

__all__ = ["HeadroomCallback"]


class HeadroomCallback(Callback):  # type: ignore[misc]
    """Reports steps of ``Trainer.fit``, and obeys what the job is told.

    Checkpoints that it was told to write are in ``folder``, as ``step=N.ckpt``; ``fit`` resumes
    from one by ``ckpt_path``. ``given`` is for :func:`headroom.training.session`. The run ends by
    :class:`headroom.training.Leave` where the job has to leave.
    """

    def __init__(self, folder: str | Path, **given: Any) -> None:
        super().__init__()
        self.folder, self._given = Path(folder), given
        self.run: Session | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin: the process group is up, and it is known which step is resumed from."""

        def save(step: int) -> None:
            trainer.save_checkpoint(self.folder / f"step={step}.ckpt")

        # Lightning ends at SIGTERM without saving, each rank at a step of its own.
        given = {"save": save, "step": trainer.global_step, "takes_term": True, **self._given}
        self.run = session(**given).__enter__()

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count a step, unless gradients are accumulated still."""
        run = self.run
        if run is None or trainer.global_step == run.step_number:
            return
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        run.step(loss=loss, samples=_rows(batch) * trainer.accumulate_grad_batches)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Count what follows as evaluation, and not as a step."""
        if self.run is not None:
            self.run.start_section(Section.EVALUATION)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """End the evaluation."""
        if self.run is not None:
            self.run.end_all_sections()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """End well."""
        self._end(None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End since something went wrong, or the job leaves."""
        self._end(exception)

    def _end(self, exception: BaseException | None) -> None:
        if self.run is not None:
            self.run.__exit__(None if exception is None else type(exception), exception, None)
            self.run = None


def _rows(batch: Any) -> int:
    """Return how many samples a batch has: the length of its first tensor."""
    while isinstance(batch, dict | list | tuple) and batch:
        batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    return len(batch) if hasattr(batch, "__len__") else 0
