"""Curtailments in the twin: events of a grid on real jobs, and what is kept of each."""
