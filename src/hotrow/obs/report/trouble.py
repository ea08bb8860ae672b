"""What went wrong: a cell for each count that is not 0, and a sentence that names the counts that are."""

from hotrow.obs.report import formatting
from hotrow.obs.report.folder import ReportInputs
from hotrow.obs.report.markup import Html, section, tag
from hotrow.obs.report.run import Record, RunRecord, number, text

WARNINGS_MOST = 50
SHORT_STEPS = "short_steps"
COUNTS = {"malformed_lines": "Malformed lines", "refused_gradients": "Refused gradients"}


def trouble(folder: ReportInputs) -> Html:
    """The section."""
    run = folder.run
    found = counted(run)
    cells = [_count(name, value) for name, value in found.items() if value]
    nothing = [name[:1].lower() + name[1:] for name, value in found.items() if value == 0]
    told = isinstance((run.end or {}).get("counts"), dict)
    unknown = "The run has not written its counts of lines and gradients: they are written at the end of training."
    return section(
        "Trouble",
        "trouble",
        tag("dl", *cells, class_="facts") if cells else None,
        tag("p", f"Counted, and 0: {', '.join(nothing)}.") if nothing else None,
        None if told else tag("p", unknown, class_="missing"),
        _malformed(run.malformed),
        _warnings(run.warnings),
    )


def counted(run: RunRecord) -> dict[str, float | None]:
    """Every count by what it counts; None where it is not known yet. An epoch may end with a short step: no trouble."""
    told = (run.end or {}).get("counts")
    shown = [key for key in told if key not in COUNTS] if isinstance(told, dict) else []
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


def _count(name: str, value: float | None) -> Html:
    return tag("div", tag("dt", name), tag("dd", formatting.count(value), class_="bad"))


def _malformed(lines: list[Record]) -> Html | None:
    if not lines:
        return None
    shown = [
        tag(
            "li",
            tag("b", f"{text(line, 'file') or 'unknown file'}, line {formatting.count(number(line, 'line'))}"),
            f": {text(line, 'reason') or 'no reason was written'}",
            tag("code", formatting.plain_text(line.get("text"))),
        )
        for line in lines
    ]
    return tag("div", tag("h3", "The first malformed lines"), tag("ul", *shown, class_="lines"))


def _warnings(warnings: list[Record]) -> Html | None:
    if not warnings:
        return None
    shown = [tag("li", text(warning, "text") or "a warning without words") for warning in warnings[:WARNINGS_MOST]]
    hidden = len(warnings) - len(shown)
    more = tag("p", f"{hidden:,} more are in events.jsonl.") if hidden > 0 else None
    return tag("div", tag("h3", "Warnings"), tag("ul", *shown, class_="lines"), more)
