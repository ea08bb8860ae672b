"""A run as text: one line for each event, with its effects. For reading, comparing and reviewing."""

from collections.abc import Sequence

from hotrow.modes import Mode
from hotrow.modes.base import Apply, Drop, Effect, Event, GradientPart, Grant, Pushed, RunFacts


class Trace:
    """Collects lines such as

    1.500  push both w2 g3 t0 p0 n8 | apply both s0 [g1 t0 p0 n8 x1, g3 t0 p0 n8 x1] | grant w2 g5 t1

    w worker, g grant, t token, p step whose parameters were pulled, n samples, s step, x weight.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []

    def started(self, time_s: float, mode: Mode, facts: RunFacts) -> None:
        message = f"{facts.workers} workers, local batch {facts.local_batch}, global batch {facts.global_batch}"
        self.lines.append(
            f"{time_s:9.3f}  -- {_settings(mode)}: {message}, from step {facts.step}, grant {facts.grants}"
        )

    def cut(self, time_s: float) -> None:
        self.lines.append(f"{time_s:9.3f}  -- cut")

    def took(self, time_s: float, event: Event, effects: Sequence[Effect]) -> None:
        self.lines.append(f"{time_s:9.3f}  {' | '.join([event_text(event), *map(effect_text, effects)])}")

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def _settings(mode: Mode) -> str:
    own = {name: value for name, value in mode.model_dump(exclude_defaults=True).items() if name != "name"}
    return f"{mode.name}({', '.join(f'{name}={value}' for name, value in own.items())})"


def event_text(event: Event) -> str:
    if isinstance(event, Pushed):
        message = f"t{event.token} p{event.pulled_step} n{event.samples}"
        return f"push {event.group} w{event.worker} g{event.grant} {message}"
    name = type(event).__name__.lower()
    return f"{name} w{event.worker}" if hasattr(event, "worker") else name


def effect_text(effect: Effect) -> str:
    match effect:
        case Grant(worker, grant, token):
            return f"grant w{worker} g{grant} t{token}"
        case Apply(group, step, parts):
            return f"apply {group} s{step} [{', '.join(map(_part, parts))}]"
        case Drop(grant, reason):
            return f"drop g{grant} {reason}"
        case _:
            return f"park w{effect.worker}"


def _part(part: GradientPart) -> str:
    return f"g{part.grant} t{part.token} p{part.pulled_step} n{part.samples} x{part.weight:g}"
