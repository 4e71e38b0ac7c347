"""Service levels as one kind of document: each version is judged from its own beginning."""

from __future__ import annotations

from admission.slos import document
from admission.slos.models import Slo
from policies.documents.life import Kind

__all__ = ["SLOS"]

SLOS = Kind(noun="slo", model=Slo, name_of=lambda text: document.read(text).name)
