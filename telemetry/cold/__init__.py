"""The cold tier: closed partitions as Parquet files in a directory or an object store."""
