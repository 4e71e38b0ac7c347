"""Output of jobs, for those who may read it: what stands between jobs and executors here."""
