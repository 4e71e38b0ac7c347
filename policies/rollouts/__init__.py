"""Rollouts: changes of the platform, step by step, each judged beside what was not changed."""
