"""Scenarios on the twin: faults as leases, loads, policies in folders, and measures of a run."""

from lab.scenarios.catalog import UnknownScenario, by_name, standard

__all__ = ["UnknownScenario", "by_name", "standard"]
