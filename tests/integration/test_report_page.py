"""The report page in a real browser: figures are drawn, nothing is asked of the network, and it fits its window."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from browsers import CHROMIUM_NAMES
from hotrow.obs.report import write_report
from unit.obs.made_up_run import Shape, write_run

pytestmark = pytest.mark.browser

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--disable-default-apps", "--disable-dev-shm-usage", "--timeout=20000",
    "--virtual-time-budget=8000", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip
EVIL = "<script>document.title = 'taken'</script><img src='http://elsewhere.invalid/' onerror='document.title = 1'>"
FIGURES = 14  # of a run with days and late gradients
WIDTHS = (390, 1440)
LIGHT, DARK = "rgb(93, 101, 112)", "rgb(162, 169, 180)"  # --soft of page.css, which the axes take
TICK = re.compile(r'<g class="xtick"><text [^>]*?fill: (rgb\([^)]+\))')
MEASURE = """<!doctype html>
<iframe src="report.html" style="border: 0; width: 390px; height: 900px"></iframe>
<iframe src="report.html" style="border: 0; width: 1440px; height: 900px"></iframe>
<script>
  addEventListener("load", () => setTimeout(() => {
    const found = [...document.querySelectorAll("iframe")].map((frame) => {
      const root = frame.contentDocument.documentElement;
      const drawn = [...root.querySelectorAll(".plot .main-svg:first-child")].map((svg) => svg.clientWidth);
      return { inside: root.clientWidth, needed: root.scrollWidth, drawn };
    });
    document.body.dataset.found = JSON.stringify(found);
  }, 500));
</script>
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the page of a run that has everything, and names that try to get out."""
    tables = (EVIL, *(f"a_table_with_a_rather_long_name_{number}" for number in range(11)))
    malformed, warnings, said = ((EVIL, letter * 500) for letter in "xyz")
    shape = Shape(name=EVIL, tables=tables, days=12, workers=4, malformed=malformed, warnings=warnings, said=said)
    folder = write_run(tmp_path_factory.mktemp("site"), shape)
    write_report(folder)
    return folder


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """A folder over HTTP on this machine, and the paths that were asked for."""
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *arguments: object) -> None:
            asked.append(self.path)

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def dump(url: str, profile: Path, *flags: str) -> str:
    """The document after its scripts have run."""
    program = next(filter(None, map(shutil.which, CHROMIUM_NAMES)))
    command = [program, *FLAGS, f"--user-data-dir={profile}", *flags, "--dump-dom", url]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def requested(log: Path, origin: str) -> set[str]:
    """What a page of that origin asked for, by the browser's own log; the browser's housekeeping has no such origin."""
    events = json.loads(log.read_text())["events"]
    starts = [event["params"] for event in events if "initiator" in event.get("params", {})]
    return {start["url"] for start in starts if start["initiator"] == origin}


def test_figures_are_drawn_and_nothing_is_asked_of_the_network(site: Path, tmp_path: Path) -> None:
    log = tmp_path / "net.json"
    with served(site) as (address, asked):
        document = dump(f"{address}/report.html", tmp_path / "profile", f"--log-net-log={log}")
        assert requested(log, address) == set()
    assert asked == ["/report.html"]
    assert document.count('class="plot js-plotly-plot"') == FIGURES
    assert len(re.findall(r'<g class="trace scatter', document)) >= 14
    assert len(re.findall(r'<g class="trace bars', document)) == 11
    assert set(TICK.findall(document)) == {LIGHT}
    assert "<title>taken</title>" not in document
    assert "<img" not in document


def test_the_network_s_log_would_show_a_request(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(
        "<!doctype html><img src='other.png'><script src='http://elsewhere.invalid/a.js'></script>"
    )
    log = tmp_path / "net.json"
    with served(tmp_path) as (address, asked):
        dump(f"{address}/report.html", tmp_path / "profile", f"--log-net-log={log}")
        assert requested(log, address) >= {f"{address}/other.png", "http://elsewhere.invalid/a.js"}
    assert "/other.png" in asked


def test_the_page_is_no_wider_than_its_window(site: Path, tmp_path: Path) -> None:
    (site / "measure.html").write_text(MEASURE)
    with served(site) as (address, _):
        document = dump(f"{address}/measure.html", tmp_path / "profile", "--window-size=1900,1000")
    measured = json.loads(re.findall(r'data-found="([^"]+)"', document)[0].replace("&quot;", '"'))
    for width, found in zip(WIDTHS, measured, strict=True):
        assert found["needed"] == found["inside"] <= width
        assert len(found["drawn"]) == FIGURES
        assert all(200 < drawn < width for drawn in found["drawn"])


def test_figures_take_the_colours_of_a_dark_screen(site: Path, tmp_path: Path) -> None:
    document = dump(f"file://{site / 'report.html'}", tmp_path / "profile", "--force-dark-mode")
    assert set(TICK.findall(document)) == {DARK}
