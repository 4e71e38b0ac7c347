"""Curtailments: a grid asks a site to draw less for a time. What is asked, and what was kept. Pure.

A curtailment names a site, how much less it is to draw, from when and until when. How much less is
told against a baseline (:func:`baseline_of`), and becomes a target in watts (:meth:`Ask.target_w`),
which is held as a restriction ``power_budget_w``. Afterwards meters say what became of it
(:func:`kept`).
"""

from admission.core.curtailment.asked import Ask, BadAsk, held_from
from admission.core.curtailment.baseline import Baseline, baseline_of
from admission.core.curtailment.proof import Kept, kept

__all__ = ["Ask", "BadAsk", "Baseline", "Kept", "baseline_of", "held_from", "kept"]
