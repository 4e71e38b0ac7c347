"""What a training loop adds to report its steps and to obey directives.

    from headroom import training

    with training.session(save=save, step=resumed_step) as run:
        for batch in run.batches(loader):
            run.step(loss=train(batch), samples=len(batch))

Without an agent the loop runs as if this were not there. See docs/reference/training.md.
"""

from headroom.training.batch import Batch, LrRule, Part, Plan
from headroom.training.groups import Alone, Group
from headroom.training.sections import Measurement, Section, SectionError
from headroom.training.session import Leave, Session, session

__all__ = [
    "Alone",
    "Batch",
    "Group",
    "Leave",
    "LrRule",
    "Measurement",
    "Part",
    "Plan",
    "Section",
    "SectionError",
    "Session",
    "session",
]
