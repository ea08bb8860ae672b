"""Bytes of a plan as bars: for each host what it has and what the tables take, RAM and disk. One SVG, light or dark."""

from collections.abc import Sequence
from html import escape

from hotrow.plan.capacity import RAM_SHARE, CapacityPlan
from hotrow.printable import one_line
from hotrow.sizes import size_text

WIDTH, LEFT, BAR_LEFT, BAR_WIDTH = 960, 32, 180, 560
TOP, ROW, BAR = 92, 30, 18
HOSTS_MOST = 16  # that have a bar of their own: all hosts are equal
COLOURS = ("#0969da", "#bf8700", "#1a7f37", "#8250df", "#cf222e", "#57606a")

STYLE = """
  text { font-family: system-ui, -apple-system, "Segoe UI", Helvetica, sans-serif; font-size: 13px; fill: #57606a }
  .paper { fill: #ffffff } .title { font-size: 18px; font-weight: 600; fill: #1f2328 } .room { fill: #eaeef2 }
  .limit { stroke: #cf222e; stroke-dasharray: 3 3 }
  @media (prefers-color-scheme: dark) {
    text { fill: #9198a1 } .paper { fill: #0d1117 } .title { fill: #f0f6fc } .room { fill: #262c36 }
  }
"""


def capacity_svg(plan: CapacityPlan) -> str:
    """A bar of RAM for each host, and one of disk where tables use it; the line is where RAM is full."""
    hosts = min(plan.used_hosts, HOSTS_MOST)
    with_disk = plan.disk_bytes > 0
    kinds = [("RAM", plan.hosts.ram_bytes, [each.ram_bytes for each in plan.tables])]
    kinds += [("disk", plan.hosts.disk_bytes, [each.disk_bytes for each in plan.tables])] if with_disk else []
    body, y = [], TOP
    for name, has, sizes in kinds:
        shares = [size / plan.used_hosts for size in sizes]
        scale = BAR_WIDTH / max(has, sum(shares))
        for host in range(hosts):
            body += _bar(f"host {host}, {name}", y, has, shares, scale, limit=RAM_SHARE if name == "RAM" else 1.0)
            y += ROW
    if plan.used_hosts > hosts:
        body.append(f'<text x="{LEFT}" y="{y + 14}">and {plan.used_hosts - hosts:,} hosts like these</text>')
        y += ROW
    body += _legend([each.table.name for each in plan.tables], y + 20)
    height = y + 44 + 20 * len(plan.tables)
    subtitle = f"{size_text(plan.ram_bytes)} RAM and {size_text(plan.disk_bytes)} disk in all; {plan.choice.reason}"
    head = [
        f'<rect class="paper" width="{WIDTH}" height="{height}" rx="8"/>',
        f'<text class="title" x="{LEFT}" y="34">Bytes of tables on {plan.used_hosts:,} '
        f"{'host' if plan.used_hosts == 1 else 'hosts'}</text>",
        f'<text x="{LEFT}" y="58">{escape(one_line(subtitle))}</text>',
    ]
    drawing = "\n".join([*head, *body])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="Bytes of tables by host and tier">\n<style>{STYLE}</style>\n{drawing}\n</svg>\n'
    )


def _bar(name: str, y: int, has: int, shares: Sequence[float], scale: float, limit: float) -> list[str]:
    parts = [
        f'<text x="{LEFT}" y="{y + 14}">{escape(name)}</text>',
        f'<rect class="room" x="{BAR_LEFT}" y="{y}" width="{has * scale:.1f}" height="{BAR}"/>',
    ]
    x = float(BAR_LEFT)
    for number, share in enumerate(shares):
        parts.append(f'<rect x="{x:.1f}" y="{y}" width="{share * scale:.1f}" height="{BAR}" fill="{_colour(number)}"/>')
        x += share * scale
    line = BAR_LEFT + has * limit * scale
    parts.append(f'<line class="limit" x1="{line:.1f}" x2="{line:.1f}" y1="{y - 2}" y2="{y + BAR + 2}"/>')
    text = f"{size_text(round(sum(shares)))} of {size_text(has)}"
    parts.append(f'<text x="{BAR_LEFT + BAR_WIDTH + 12}" y="{y + 14}">{text}</text>')
    return parts


def _legend(names: Sequence[str], top: float) -> list[str]:
    parts = []
    for number, name in enumerate(names):
        y = top + number * 20
        parts.append(f'<rect x="{LEFT}" y="{y - 10:.1f}" width="12" height="12" fill="{_colour(number)}"/>')
        parts.append(f'<text x="{LEFT + 20}" y="{y:.1f}">{escape(one_line(name))}</text>')
    return parts


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]
