"""A callback for the Trainer of Hugging Face: ``Trainer(callbacks=[HeadroomCallback()])``."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from headroom.training.session import Session, session

__all__ = ["HeadroomCallback"]


class HeadroomCallback(TrainerCallback):  # type: ignore[misc]
    """Reports steps of ``Trainer.train``, and obeys what the job is told.

    Checkpoints are the Trainer's own, in its ``output_dir``: ``resume_from_checkpoint`` goes on
    from them. Where the job has to leave, ``train`` saves and returns, and ``has_left`` is true.
    ``given`` is for :func:`headroom.training.session`.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__()
        self._given = given
        self.run: Session | None = None
        self.has_left = False
        self._loss: float | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Begin: it is known which step is resumed from."""

        def leave() -> None:
            self.has_left = True
            control.should_training_stop = True

        self.run = session(**{"step": state.global_step, "on_leave": leave, **self._given})
        self.run.__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Count a step, and have the Trainer save where it was asked for."""
        if self.run is None:
            return
        rows = args.train_batch_size * args.gradient_accumulation_steps
        self.run.step(loss=self._loss, samples=rows)
        control.should_save = control.should_save or self.run.checkpoint_due

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **more: Any
    ) -> None:
        """Keep the loss: the Trainer tells it when it logs."""
        self._loss = (logs or {}).get("loss", self._loss)

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Say that a checkpoint is whole."""
        if self.run is not None:
            self.run.saved()

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """End."""
        if self.run is not None:
            self.run.__exit__(None, None, None)
            self.run = None
