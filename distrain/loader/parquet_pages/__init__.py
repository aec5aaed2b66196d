"""Decodes flat columns of local parquet files in C, where that is faster than Arrow."""
