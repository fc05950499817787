"""What runs in Spark: session, sink, source."""
