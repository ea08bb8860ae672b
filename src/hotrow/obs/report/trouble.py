"""What went wrong: a cell for each count that is not 0, and a sentence that names the counts that are."""

from markupsafe import Markup

from hotrow.obs.report import formatting
from hotrow.obs.report.folder import ReportInputs
from hotrow.obs.report.rendering import render
from hotrow.obs.report.run import Record, RunRecord, number, text
from hotrow.obs.table_counts import is_table_count

WARNINGS_MOST = 50
SHORT_STEPS = "short_steps"
COUNTS = {"malformed_lines": "Malformed lines", "refused_gradients": "Refused gradients"}


def trouble(folder: ReportInputs) -> Markup:
    """The section."""
    run = folder.run
    found = counted(run)
    hidden = len(run.warnings) - WARNINGS_MOST
    return render(
        "obs/report/templates/trouble.html",
        counts=[(name, formatting.count(value)) for name, value in found.items() if value],
        nothing=", ".join(name[:1].lower() + name[1:] for name, value in found.items() if value == 0),
        told=isinstance((run.end or {}).get("counts"), dict),
        malformed=[_malformed(line) for line in run.malformed],
        warnings=[text(warning, "text") or "a warning without words" for warning in run.warnings[:WARNINGS_MOST]],
        hidden=formatting.count(hidden) if hidden > 0 else None,
    )


def counted(run: RunRecord) -> dict[str, float | None]:
    """Every count by what it counts; None where it is not known yet. An epoch may end with a short step: no trouble."""
    told = (run.end or {}).get("counts")
    shown = [key for key in told if key not in COUNTS and not is_table_count(key)] if isinstance(told, dict) else []
    if (number(told, SHORT_STEPS) or 0) <= (number(run.end, "epochs") or 0):
        shown = [key for key in shown if key != SHORT_STEPS]
    others = {_words(key): number(told, key) for key in shown}
    return {
        **{word: number(told, key) for key, word in COUNTS.items()},
        "Warnings": len(run.warnings),
        "Reports with numbers that are not finite": run.nonfinite,
        "Unreadable lines of the event log": run.unreadable,
        **others,
    }


def _words(key: str) -> str:
    spoken = key.replace("_", " ")
    return spoken[:1].upper() + spoken[1:]


def _malformed(line: Record) -> tuple[str, str, str]:
    """Where it is, what is wrong with it, and the line itself."""
    place = f"{text(line, 'file') or 'unknown file'}, line {formatting.count(number(line, 'line'))}"
    return place, text(line, "reason") or "no reason was written", formatting.plain_text(line.get("text"))
