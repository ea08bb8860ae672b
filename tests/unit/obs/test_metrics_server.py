"""Metrics by HTTP: kinds and labels are kept, threads lose nothing, and a port that is taken is refused."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hotrow.errors import ConfigError
from hotrow.obs.names import ALL
from hotrow.obs.prometheus import MetricsServer


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    with closing(MetricsServer(0)) as served:  # 0: a port that the system picks
        yield served


def samples(server: MetricsServer) -> dict[tuple[str, ...], float]:
    """What a GET gives: value by name and labels."""
    with urlopen(server.url) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
        if not (sample.name.endswith("_created") and sample.value > 1e9)  # when a counter was made
    }


def test_counters_add_up_gauges_keep_the_latest_and_labels_keep_apart(server: MetricsServer) -> None:
    server.add("train/samples", 4096)
    server.add("train/samples", 100)
    server.add("run/warnings")
    server.set("table/rows", 10, table="user")
    server.set("table/rows", 20, table='it"em\n')
    server.set("table/rows", 11, table="user")
    assert samples(server) == {
        ("hotrow_run_warnings_total",): 1,
        ("hotrow_table_rows", 'it"em\n'): 20,
        ("hotrow_table_rows", "user"): 11,
        ("hotrow_train_samples_total",): 4196,
    }


def test_a_metric_without_a_value_is_not_shown(server: MetricsServer) -> None:
    assert samples(server) == {}


def test_a_histogram_counts_values_up_to_each_bound(server: MetricsServer) -> None:
    for value in (0.5, 2.0, 2.1, 1e9):
        server.observe("train/step_ms", value)
    found = samples(server)
    assert found["hotrow_train_step_ms_count",] == 4
    buckets = {key[1]: value for key, value in found.items() if key[0].endswith("_bucket")}
    assert [buckets[bound] for bound in ("0.25", "0.5", "2.0", "4.0", "+Inf")] == [0, 1, 2, 3, 4]


def test_every_metric_can_be_told(server: MetricsServer) -> None:
    told: dict[str, Callable[..., None]] = {"counter": server.add, "gauge": server.set, "histogram": server.observe}
    ends = {"counter": "_total", "gauge": "", "histogram": "_count"}
    for name, metric in ALL.items():
        told[metric.kind](name, 1, **dict.fromkeys(metric.labels, "a"))
    shown = {key[0] for key in samples(server)}
    assert {f"hotrow_{name.replace('/', '_')}{ends[metric.kind]}" for name, metric in ALL.items()} <= shown


def test_what_is_not_listed_so_is_refused_and_leaves_nothing(server: MetricsServer) -> None:
    with pytest.raises(KeyError):
        server.add("train/nothing")
    with pytest.raises(AssertionError, match="train/loss is a gauge"):
        server.add("train/loss")
    with pytest.raises(ValueError, match="missing label"):
        server.set("table/rows", 1)
    with pytest.raises(ValueError, match="can only be incremented by non-negative"):
        server.add("train/samples", -1)
    assert {key for key, value in samples(server).items() if value} == set()


def test_threads_lose_no_count(server: MetricsServer) -> None:
    def work(_: int) -> None:
        for _ in range(500):
            server.add("train/steps")
            server.observe("train/step_ms", 1.0)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    found = samples(server)
    assert (found["hotrow_train_steps_total",], found["hotrow_train_step_ms_count",]) == (2000, 2000)


def test_it_listens_on_loopback_and_frees_its_port(server: MetricsServer) -> None:
    assert server.url.startswith("http://127.0.0.1:")
    port = int(server.url.rpartition(":")[2].removesuffix("/metrics"))
    with pytest.raises(ConfigError, match=rf"run.metrics_port={port}: .*127.0.0.1 \(Address already in use\): name an"):
        MetricsServer(port)
    with closing(MetricsServer(0)) as other:
        url = other.url
    with pytest.raises(URLError):
        urlopen(url)
