"""What is left of a run: a process, a port or a segment is named, and nothing where all have ended."""

import socket
import subprocess
import sys

from hotrow.chaos.leftovers import Traces
from hotrow.config import Segment, Table
from hotrow.store import RamTier

CHILD = "import subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid, flush=True); sys.stdin.read()"


def test_a_process_is_left_behind_by_its_parent() -> None:
    traces = Traces("chaos-test")
    command = [sys.executable, "-c", CHILD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        grandchild = int(parent.stdout.readline())
        traces.look()
        assert traces.processes == 2
    [left] = traces.faults(patience_s=0.5)
    assert left.startswith(f"process {grandchild} is left behind: sleep 60")
    subprocess.run(["kill", str(grandchild)], check=True)
    assert traces.faults(patience_s=10) == []


def test_a_port_and_a_segment_are_left_behind() -> None:
    traces = Traces("chaos-test")
    table = Table(dim=2, segment=Segment(run="chaos-test-counting"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        traces.listen_on([port])
        tier = RamTier(table)
        found = traces.faults(patience_s=0)
        assert found[0] == f"port {port} is left open"
        assert "chaos-test-counting" in found[1]
        tier.close()
    assert traces.faults(patience_s=0) == []


def test_segments_of_others_are_not_named() -> None:
    tier = RamTier(Table(dim=2, segment=Segment(run="another-run")))
    assert Traces("chaos-test").faults(patience_s=0) == []
    tier.close()
