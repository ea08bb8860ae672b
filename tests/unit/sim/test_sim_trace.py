"""A trace: one line for each event, with its effects."""

from hotrow.modes import GBA, Sync
from hotrow.modes.base import Apply, Drain, Drop, GradientPart, Grant, Lost, Park, Pushed, Ready, RunFacts
from hotrow.sim.trace import Trace


def test_a_line_for_each_kind_of_event_and_effect() -> None:
    trace = Trace()
    trace.started(0.0, GBA(tolerance=2), RunFacts(5, 8, 40, step=3, grants=17))
    trace.took(1.5, Ready(2), [Grant(2, 18, 3)])
    trace.took(1.5, Ready(0), [Park(0)])
    parts = (GradientPart(18, 3, 3, 8, 1.0), GradientPart(19, 0, 1, 8, 0.0))
    trace.took(12.25, Pushed("both", 2, 18, 3, 3, 8), [Apply("both", 3, parts), Drop(7, "late")])
    trace.took(1000.0, Lost(4), [Drop(20, "lost")])
    trace.took(1000.0, Drain(), [])
    trace.started(1000.0, Sync(), RunFacts(2, 20, 40, step=4, grants=20))
    assert trace.text == (
        "    0.000  -- gba(tolerance=2): 5 workers, local batch 8, global batch 40, from step 3, grant 17\n"
        "    1.500  ready w2 | grant w2 g18 t3\n"
        "    1.500  ready w0 | park w0\n"
        "   12.250  push both w2 g18 t3 p3 n8 | apply both s3 [g18 t3 p3 n8 x1, g19 t0 p1 n8 x0] | drop g7 late\n"
        " 1000.000  lost w4 | drop g20 lost\n"
        " 1000.000  drain\n"
        " 1000.000  -- sync(): 2 workers, local batch 20, global batch 40, from step 4, grant 20\n"
    )
