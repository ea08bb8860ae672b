"""The page as a whole. It may load nothing and run no script but its two own: its policy says so to the browser."""

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files

from plotly.offline import get_plotlyjs

from hotrow.obs.report import formatting
from hotrow.obs.report.curves import curves
from hotrow.obs.report.folder import CONFIG, MACHINE, Record, ReportInputs
from hotrow.obs.report.headline import header
from hotrow.obs.report.modes import modes
from hotrow.obs.report.quality import quality
from hotrow.obs.report.rendering import inline, render
from hotrow.obs.report.tables import tables
from hotrow.obs.report.trouble import trouble

PARTS = ("Curves", "Predictions", "Mode", "Tables", "Trouble", "Configuration", "Machine")
MACHINE_WORDS = {
    "cpu": "Processor",
    "cores": "Cores",
    "memory_bytes": "Memory",
    "platform": "System",
    "python": "Python",
    "torch": "PyTorch",
    "hotrow": "Hotrow",
}


def page(folder: ReportInputs) -> str:
    """The HTML of a run."""
    scripts = (get_plotlyjs(), _own("page.js"))
    run = folder.run
    made = render(
        "obs/report/templates/run.html",
        name=folder.name,
        policy=_policy(scripts),
        style=inline("style", _own("page.css")),
        scripts=[inline("script", script) for script in scripts],
        parts=PARTS,
        header=header(folder),
        sections=[curves(run), quality(folder), modes(run), tables(folder), trouble(folder)],
        config_blocks=_toml_blocks(folder.config),
        no_config=folder.missing.get(CONFIG) or "config.toml is empty.",
        machine=_machine(folder.machine),
        no_machine=folder.missing.get(MACHINE) or "machine.json is empty.",
    )
    return str(made)


def _policy(scripts: tuple[str, ...]) -> str:
    allowed = " ".join(f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"


def _toml_blocks(config: str) -> list[list[tuple[str, str | None]]]:
    """The lines of each table together, so that columns break between tables; tables stand out, comments stand back."""
    blocks: list[list[tuple[str, str | None]]] = [[]]
    for line in config.splitlines():
        if line.startswith("[") and blocks[-1]:
            blocks.append([])
        if line.strip() or blocks[-1]:
            blocks[-1].append((line, {"[": "group", "#": "comment"}.get(line[:1])))
    return blocks if blocks[0] else []


def _machine(given: Record) -> list[tuple[str, str]]:
    told = {key: given[key] for key in MACHINE_WORDS if key in given}
    others = {key: value for key, value in given.items() if key not in told}
    return [(MACHINE_WORDS.get(key, key), _machine_value(key, value)) for key, value in {**told, **others}.items()]


def _machine_value(key: str, value: object) -> str:
    return formatting.size(value) if key == "memory_bytes" and isinstance(value, int) else formatting.plain_text(value)


def _own(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
