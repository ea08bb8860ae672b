"""The picture as a whole, alone as SVG or on a page with the figures, the decisions and the settings."""

from collections.abc import Sequence
from html import escape
from importlib.resources import files

import tomli_w
from markupsafe import Markup

from hotrow.obs.report import formatting
from hotrow.obs.report.rendering import inline, render
from hotrow.sim.study.config import SimulationConfig
from hotrow.sim.study.figures import figures
from hotrow.sim.study.outcome import Outcome
from hotrow.sim.study.picture.drawing import LEFT, WIDTH, style, text
from hotrow.sim.study.picture.lanes import lanes_part
from hotrow.sim.study.picture.lateness import lateness_part
from hotrow.sim.study.picture.rates import rates_part

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
OWN = ".drawing { overflow-x: auto } .drawing svg { display: block; width: 100%; min-width: 860px }"


def svg(config: SimulationConfig, outcomes: Sequence[Outcome], name: str | None) -> str:
    """All parts below each other; with a name, a title above."""
    drawn, y = ([], 16) if name is None else (_title(config, outcomes, name), 84)
    parts = (
        rates_part(outcomes, config.cluster.speeds.load),
        lanes_part(outcomes, config),
        lateness_part(outcomes),
    )
    for part, height in parts:
        if part:
            drawn.append(f'<g transform="translate(0 {y})">{"".join(part)}</g>')
            y += height + 26
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="sim" viewBox="0 0 {WIDTH} {y}" role="img" '
        f'aria-label="{escape(_alternative(outcomes))}">\n<style>{style()}</style>\n'
        f'<rect class="paper" width="{WIDTH}" height="{y}" rx="8"/>\n' + "\n".join(drawn) + "\n</svg>\n"
    )


def page(config: SimulationConfig, outcomes: Sequence[Outcome], name: str) -> str:
    """One file that loads nothing."""
    look = (files("hotrow.obs.report") / "page.css").read_text(encoding="utf-8")
    made = render(
        "sim/study/picture/page.html",
        name=name,
        policy=POLICY,
        style=inline("style", f"{look}\n{OWN}"),
        subtitle=subtitle(config, outcomes),
        titles=["", *(each.label for each in outcomes)],
        rows=[[title, *(cell or formatting.NOTHING for cell in cells)] for title, cells in figures(outcomes)],
        drawing=Markup(svg(config, outcomes, None)),
        remarks=_remarks(outcomes),
        settings=tomli_w.dumps(config.model_dump(mode="json", exclude_none=True)),
    )
    return str(made)


def subtitle(config: SimulationConfig, outcomes: Sequence[Outcome]) -> str:
    """The common settings of the modes."""
    run = config.run
    amount = f"{run.samples:,} samples" if run.samples is not None else None
    length = f"{formatting.duration(run.seconds)} of virtual time" if run.seconds is not None else None
    given = " or ".join(filter(None, (amount, length))) or "all data"
    work = "real gradients" if run.work == "train" else "time and staleness only"
    batch = f"global batch {config.cluster.facts.global_batch:,}"
    return f"{given}, {batch}, {work}, seed {run.seed}, {len(outcomes)} {'mode' if len(outcomes) == 1 else 'modes'}"


def _title(config: SimulationConfig, outcomes: Sequence[Outcome], name: str) -> list[str]:
    return [text(name, LEFT, 40, look="title"), text(subtitle(config, outcomes), LEFT, 62)]


def _alternative(outcomes: Sequence[Outcome]) -> str:
    speeds = ", ".join(f"{each.label} {each.result.qps:,.0f}" for each in outcomes)
    return f"Samples per second over virtual time, lanes of workers, staleness histograms. Samples per second: {speeds}"


def _remarks(outcomes: Sequence[Outcome]) -> list[str]:
    lines = [f"{each.label}: {remark}" for each in outcomes for remark in each.troubles]
    for each in outcomes:
        lines += [f"{each.label}: after {formatting.duration(one.time_s)} {one.sentence}" for one in each.decisions]
    return lines
