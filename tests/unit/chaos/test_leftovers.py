"""What is left of a run: a process, a port or a segment is named, and nothing where all have ended."""

import socket
import subprocess
import sys
import time
from pathlib import Path

from hotrow.chaos.leftovers import Traces
from hotrow.config import Segment, Table
from hotrow.store import RamTier

CHILD = "import subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid, flush=True); sys.stdin.read()"


def test_a_process_is_left_behind_by_its_parent() -> None:
    """Tests beside this one may leave processes and segments of their own: only ours count."""
    traces = Traces("chaos-test")
    traces.look()
    before = traces.processes
    command = [sys.executable, "-c", CHILD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        grandchild = int(parent.stdout.readline())
        traces.look()
        assert traces.processes == before + 2
    name = f"process {grandchild} is left behind: sleep 60"
    assert sum(each.startswith(name) for each in traces.faults(patience_s=0.5)) == 1
    subprocess.run(["kill", str(grandchild)], check=True)
    gone = time.monotonic() + 10
    while any(each.startswith(name) for each in traces.faults(patience_s=0)):
        assert time.monotonic() < gone


def test_a_port_and_a_segment_are_left_behind() -> None:
    traces = Traces("chaos-test")
    table = Table(dim=2, segment=Segment(run="chaos-test-counting"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        traces.listen_on([port])
        tier = RamTier(table)
        found = traces.faults(patience_s=0)
        assert found[0] == f"port {port} is left open"
        assert sum("chaos-test-counting" in each for each in found) == 1
        tier.close()
    assert not any("port" in each or "chaos-test" in each for each in traces.faults(patience_s=0))


def test_segments_of_others_are_not_named() -> None:
    tier = RamTier(Table(dim=2, segment=Segment(run="another-run")))
    assert not any("another-run" in each for each in Traces("chaos-test").faults(patience_s=0))
    tier.close()


def test_a_segment_that_came_meanwhile_and_has_no_owner_is_named(tmp_path: Path) -> None:
    """Whatever its run is called: dense parameters of shards have names of their own."""
    traces = Traces("chaos-test")
    tier = RamTier(Table(dim=2, segment=Segment(run=f"others-{tmp_path.name}")))
    tier.close(leave=True)
    left = [each for each in traces.faults(patience_s=0) if f"others-{tmp_path.name}" in each]
    again = RamTier(Table(dim=2, segment=Segment(run=f"others-{tmp_path.name}")))
    again.close()
    assert len(left) == 1
