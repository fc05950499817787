"""A collector for `prometheus_client`: register it where a program has metrics of its own, or let `endpoint` serve it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from spark_partq.core.errors import PartqError
from spark_partq.metrics import names
from spark_partq.metrics.names import METRICS, Metric
from spark_partq.metrics.values import values
from spark_partq.storage.inspect.watch import Sample, StoreWatch
from spark_partq.storage.store import Store, StorePath

Family = GaugeMetricFamily | CounterMetricFamily

_log = logging.getLogger("spark_partq")


class StoreCollector(Collector):
    """Reads a store at each scrape; scrapes that come at once are answered one after the other. It changes nothing.

    Parameters
    ----------
    store : str, path or Store
    storage_options : dict, optional

    Examples
    --------
    >>> from prometheus_client import REGISTRY
    >>> REGISTRY.register(StoreCollector("store"))  # doctest: +SKIP
    """

    def __init__(self, store: StorePath, storage_options: Mapping[str, str] | None = None) -> None:
        self._store = Store.at(store, storage_options)
        self._watch = StoreWatch(self._store)
        self._lock = threading.Lock()
        self._last_error = ""

    def describe(self) -> list[Family]:
        """The metrics without values, so that nothing is read when the collector is registered."""
        return [_family(metric) for metric in METRICS]

    def collect(self) -> Iterator[Family]:
        families = {metric: _family(metric) for metric in METRICS}
        with self._lock:
            began_s = self._store.runtime.monotonic_s()
            sample = self._look()
            if sample is not None:
                for metric, labels, value in values(sample):
                    families[metric].add_metric(labels, float(value))
            families[names.UP].add_metric([], float(sample is not None))
            families[names.DURATION].add_metric([], self._store.runtime.monotonic_s() - began_s)
        yield from families.values()

    def _look(self) -> Sample | None:
        try:
            sample = self._watch.look()
        except PartqError as error:
            self._complain([str(error)])
            return None
        self._complain([str(error) for error in sample.failed.values()])
        return sample

    def _complain(self, errors: list[str]) -> None:
        """Log the queues and groups that cannot be read, once as long as they stay the same."""
        told = "; ".join(dict.fromkeys(errors))
        if told and told != self._last_error:
            _log.warning("not all of %s could be read for its metrics: %s", self._store.uri, told)
        self._last_error = told


def _family(metric: Metric) -> Family:
    if metric.kind == "counter":
        return CounterMetricFamily(metric.family, metric.help, labels=metric.labels, unit=metric.unit)
    return GaugeMetricFamily(metric.family, metric.help, labels=metric.labels, unit=metric.unit)
