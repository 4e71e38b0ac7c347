"""Admission: which job runs where and when, under which limits, and why another does not yet."""
