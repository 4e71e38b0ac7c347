"""Shells in running jobs, for those who may: what stands between jobs and executors here."""
