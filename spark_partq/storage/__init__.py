"""The store on disk: Delta tables through delta-rs, Parquet files through Arrow. No Spark here."""
