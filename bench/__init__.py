"""Benchmarks: ``python -m bench NAME``. Each runs real processes beside a ceiling or a peer."""
