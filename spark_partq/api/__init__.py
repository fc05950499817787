"""The functions that `spark_partq` offers, by subject. A program imports them from `spark_partq`."""
