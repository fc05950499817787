"""What a store looks like to Prometheus: names of metrics, a collector for `prometheus_client`, and an endpoint.

Like the command line, it only shows what `storage.inspect` finds. `prometheus_client` is an extra (``spark_partq[metrics]``):
only `collector` and `endpoint` load it.
"""
