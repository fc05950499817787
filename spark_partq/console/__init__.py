"""A page about a store, live and read-only: groups with their clients, queues, which flow owned which partition when, and why a partition waits (K8, R7).

Like the metrics, the console only shows what `storage.inspect` and `analysis` find. `starlette` and `uvicorn` are an extra
(``spark_partq[console]``): only `app`, `guard` and `server` load them. The files that the browser gets are in `page/`; they are served unchanged.
"""
