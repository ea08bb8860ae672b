"""The numbers of a run for Prometheus, under the names of `names.py`: `train/samples` is `hotrow_train_samples_total`.

A metric appears with its first value: a loss of 0 before the first report would be a wrong one.
"""

import threading
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from hotrow.errors import ConfigError
from hotrow.obs.names import ALL

BUCKETS = tuple(2.0**power for power in range(-4, 17))  # of a histogram, in its unit: step times of 0.06 ms to a minute

Instrument = TypeVar("Instrument", Counter, Gauge, Histogram)


class MetricsServer:
    """Serves the metrics of one run by HTTP until it is closed. Safe from several threads at once.

    A name that is not in `names.ALL`, another kind, or other labels are a bug of the caller: KeyError or ValueError.
    """

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._registry = CollectorRegistry()
        self._lock = threading.Lock()
        self._made: dict[str, Counter | Gauge | Histogram] = {}
        try:
            self._server, self._thread = start_http_server(port, host, self._registry)
        except OSError as error:
            message = f"run.metrics_port={port}: cannot be served on {host} ({error.strerror})"
            raise ConfigError(f"{message}: name another port, or 0 to serve no metrics") from None

    @property
    def url(self) -> str:
        """Where the metrics are."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}/metrics"

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Raise a counter."""
        _child(self._instrument(name, Counter), labels).inc(amount)

    def set(self, name: str, value: float, **labels: str) -> None:
        """Say what a gauge shows now."""
        _child(self._instrument(name, Gauge), labels).set(value)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Count a value in a histogram."""
        _child(self._instrument(name, Histogram, buckets=BUCKETS), labels).observe(value)

    def close(self) -> None:
        """Stop serving and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _instrument(self, name: str, kind: type[Instrument], **settings: Any) -> Instrument:
        with self._lock:
            if name not in self._made:
                metric = ALL[name]
                assert metric.kind == kind.__name__.lower(), f"{name} is a {metric.kind}"
                exposed = f"hotrow_{name.replace('/', '_')}"
                about = f"{metric.help} Unit: {metric.unit}."
                self._made[name] = kind(exposed, about, metric.labels, registry=self._registry, **settings)
            made = self._made[name]
        assert isinstance(made, kind), f"{name} is a {ALL[name].kind}"
        return made


def _child(instrument: Instrument, labels: dict[str, str]) -> Instrument:
    return instrument.labels(**labels) if labels else instrument
