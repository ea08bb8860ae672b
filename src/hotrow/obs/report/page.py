"""The page as a whole. It may load nothing and run no script but its two own: its policy says so to the browser."""

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files

from plotly.offline import get_plotlyjs

from hotrow.obs.report import formatting
from hotrow.obs.report.curves import curves
from hotrow.obs.report.folder import CONFIG, MACHINE, ReportInputs
from hotrow.obs.report.headline import header
from hotrow.obs.report.markup import Html, join, raw, section, tag
from hotrow.obs.report.modes import modes
from hotrow.obs.report.quality import quality
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
    body = tag(
        "body",
        tag(
            "main",
            header(folder),
            tag("nav", *(tag("a", part, href=f"#{part.lower()}") for part in PARTS), aria_label="Parts of this page"),
            tag("noscript", tag("p", "The pictures need JavaScript, which is switched off here.", class_="missing")),
            curves(folder.run),
            quality(folder),
            modes(folder.run),
            tables(folder),
            trouble(folder),
            _configuration(folder),
            _machine(folder),
            tag("footer", "Drag over a picture to enlarge a part of it; a double click goes back."),
        ),
        *(raw("script", script) for script in scripts),
    )
    return f"<!doctype html>\n{tag('html', _head(folder.name, scripts), body, lang='en')}\n"


def _head(name: str, scripts: tuple[str, ...]) -> Html:
    allowed = " ".join(f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts)
    policy = f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href="data:,"),  # or a browser asks the server for one
        tag("title", f"{name} · Hotrow"),
        raw("style", _own("page.css")),
    )


def _configuration(folder: ReportInputs) -> Html:
    if not folder.config.strip():
        why = folder.missing.get(CONFIG) or "config.toml is empty."
        return section("Configuration", "configuration", tag("p", why, class_="missing"))
    blocks = [tag("div", *map(_toml_line, block)) for block in _toml_blocks(folder.config)]
    return section("Configuration", "configuration", tag("pre", *blocks))


def _toml_blocks(config: str) -> list[list[str]]:
    """The lines of each table together, so that columns break between tables."""
    blocks: list[list[str]] = [[]]
    for line in config.splitlines():
        if line.startswith("[") and blocks[-1]:
            blocks.append([])
        if line.strip() or blocks[-1]:
            blocks[-1].append(line)
    return blocks


def _toml_line(line: str) -> Html:
    """A line of TOML: tables stand out, comments stand back."""
    look = {"[": "group", "#": "comment"}.get(line[:1])
    return join([tag("span", line, class_=look), "\n"])


def _machine(folder: ReportInputs) -> Html:
    if not folder.machine:
        why = folder.missing.get(MACHINE) or "machine.json is empty."
        return section("Machine", "machine", tag("p", why, class_="missing"))
    told = {key: folder.machine[key] for key in MACHINE_WORDS if key in folder.machine}
    others = {key: value for key, value in folder.machine.items() if key not in told}
    cells = [
        tag("div", tag("dt", MACHINE_WORDS.get(key, key)), tag("dd", _machine_value(key, value)))
        for key, value in {**told, **others}.items()
    ]
    return section("Machine", "machine", tag("dl", *cells, class_="facts words"))


def _machine_value(key: str, value: object) -> str:
    return formatting.size(value) if key == "memory_bytes" and isinstance(value, int) else formatting.plain_text(value)


def _own(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
