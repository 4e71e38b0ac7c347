"""Trains a small model by a framework, as a job that is told something after the tenth step.

``python trained_by.py lightning|huggingface checkpoint|pause|leave FOLDER`` prints one JSON object.
Its machine tells it by HEADROOM_DIRECTIVES; what ends a pause is a thread that waits for its start.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

_STEPS = 30


def told_at(step: int, what: str) -> None:
    """Tell this job something once it has made ten steps."""
    time.sleep(0.12)
    if step != 10:
        return
    if what == "leave":
        os.kill(os.getpid(), signal.SIGTERM)
    elif what == "pause":
        tell({"seq": 1, "paused": 1})
        threading.Thread(target=resume).start()
    else:
        tell({"seq": 1, "checkpoint": 1})


def tell(directives: dict[str, int]) -> None:
    path = Path(os.environ["HEADROOM_DIRECTIVES"])
    path.with_suffix(".new").write_text(json.dumps(directives))
    path.with_suffix(".new").rename(path)


def resume() -> None:
    while said()["done"] < 1:
        time.sleep(0.01)
    time.sleep(0.5)
    tell({"seq": 2, "paused": 0})


def said() -> dict[str, Any]:
    return dict(json.loads(Path(os.environ["HEADROOM_STATUS"]).read_text()))


def by_lightning(what: str, folder: Path) -> dict[str, Any]:
    # Either may be missing where the other is tested.
    import lightning.pytorch as pl

    from headroom.training.lightning import HeadroomCallback

    class Model(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            told_at(self.global_step, what)
            return self.layer(batch).square().mean()

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.layer(batch)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    loader: Any = torch.utils.data.DataLoader(torch.randn(60, 4), batch_size=2)
    callback = HeadroomCallback(folder)
    trainer = pl.Trainer(
        max_steps=_STEPS, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[callback],
        val_check_interval=15,
    )  # fmt: skip
    code = None
    try:
        trainer.fit(Model(), loader, loader)
    except SystemExit as exc:
        code = exc.code
    return {"steps": trainer.global_step, "left": code == 143}


def by_huggingface(what: str, folder: Path) -> dict[str, Any]:
    from transformers import Trainer, TrainingArguments

    from headroom.training.huggingface import HeadroomCallback

    class Model(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.made = nn.Linear(4, 1), 0

        def forward(self, x: Any) -> dict[str, Any]:
            told_at(self.made, what)
            self.made += 1
            return {"loss": self.layer(x).square().mean()}

    callback = HeadroomCallback()
    arguments = TrainingArguments(
        output_dir=str(folder), max_steps=_STEPS, per_device_train_batch_size=2, report_to=[],
        save_strategy="no", logging_steps=1, use_cpu=True, disable_tqdm=True,
        remove_unused_columns=False,
    )  # fmt: skip
    rows: Any = [{"x": torch.randn(4)} for _ in range(60)]
    trainer = Trainer(model=Model(), args=arguments, train_dataset=rows, callbacks=[callback])
    trainer.train()
    return {"steps": trainer.state.global_step, "left": callback.has_left}


if __name__ == "__main__":
    framework, what, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    torch.set_num_threads(1)
    made = {"lightning": by_lightning, "huggingface": by_huggingface}[framework](what, folder)
    files = sorted(each.name for each in folder.iterdir())
    print(json.dumps({**made, "said": said(), "files": files}), flush=True)
