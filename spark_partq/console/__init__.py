"""A page about a store, live and read-only: groups with their clients, queues, who owned what when, and why something waits (K8, R7).

It stands beside the metrics, as it only shows what `storage.inspect` and `analysis` find. `starlette` and `uvicorn` are an extra
(``spark_partq[console]``): only `app`, `guard` and `server` load them. What the browser gets lies in `page/`; it is served as it is.
"""
