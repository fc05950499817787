"""The store: Delta tables whose logs this package reads and writes itself, Parquet files through Arrow. No Spark here."""
