"""Numbers as a person reads them."""

from datetime import UTC, datetime

NOTHING = "\N{EN DASH}"
BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def count(value: float | None) -> str:
    """1,234,567"""
    return NOTHING if value is None else f"{value:,.0f}"


def short(value: float | None) -> str:
    """1.23 M; exact below ten thousand."""
    if value is None or abs(value) < 10_000:
        return count(value)
    for unit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(value) >= unit:
            return f"{value / unit:,.2f} {letter}"
    return f"{value / 1e3:.1f} k"


def figure(value: float | None) -> str:
    """A metric: four digits behind the point."""
    return NOTHING if value is None else f"{value:.4f}"


def auc(value: float | None, error: float | None) -> str:
    """An AUC with its largest possible error, where it has one."""
    return f"{figure(value)} ±{error:.0e}" if value is not None and error else figure(value)


def short_tick(value: float) -> str:
    """16, 1k, 2M in powers of two: for an axis whose steps are such."""
    for unit, letter in ((2**30, "G"), (2**20, "M"), (2**10, "k")):
        if value >= unit:
            return f"{value / unit:.3g}{letter}"
    return f"{value:.0f}"


def byte_unit(value: float) -> tuple[int, str]:
    """The unit that gives one to four digits before the point, in bytes and as a word."""
    power = 0
    while abs(value) >= 1024 ** (power + 1) and power + 1 < len(BYTE_UNITS):
        power += 1
    return 1024**power, BYTE_UNITS[power]


def size(value: float | None) -> str:
    """Bytes in their best unit."""
    if value is None:
        return NOTHING
    scale, unit = byte_unit(value)
    return f"{value:,.0f} B" if scale == 1 else f"{value / scale:,.1f} {unit}"


def duration(seconds: float | None) -> str:
    """The two largest units that matter."""
    if seconds is None:
        return NOTHING
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, long, below, small in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit:
            rest = whole % unit // below
            return f"{whole // unit} {long} {rest} {small}" if rest else f"{whole // unit} {long}"
    return f"{whole} s"


def date(seconds: float | None) -> str:
    """15 November 2025, 12:06 UTC"""
    if seconds is None:
        return "date unknown"
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):  # a number that is no date
        return "date unknown"
    return f"{moment.day} {moment:%B %Y, %H:%M} UTC"


def plural(number: float, one: str, more: str | None = None) -> str:
    """1 row, 2 rows"""
    return f"{number:,.0f} {one if number == 1 else more or one + 's'}"


def plain_text(value: object) -> str:
    """Anything from a file, as it is."""
    return NOTHING if value is None else str(value)
