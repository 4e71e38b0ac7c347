"""Rows of the time-partitioned tables, wherever they lie: in Postgres or in the cold tier.

``read`` is the only way to read a span that may reach back beyond what Postgres keeps. It gives
arrays, since all that follows (roll-ups, timelines, Parquet files) works on arrays.
"""
