"""The settings of a simulation: a cluster, the compared modes, the length, and what is trained."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from hotrow.cache.modes import CACHING_MODES, cached_tables, check_cached_mode
from hotrow.config import Table
from hotrow.data.config import DataConfig
from hotrow.data.synthetic import SyntheticConfig
from hotrow.errors import ConfigError
from hotrow.modes import MODES, Mode, Sync, mode_of
from hotrow.run.config import AnyModel, made_up_or_from_files, with_names
from hotrow.sim import ClusterConfig
from hotrow.sim.study.sections import MAKERS, Contender, Hyper, Pictured, SimulationRun, Switch
from hotrow.sizes import parse_bytes
from hotrow.spec import FieldError, SettingsError, Spec
from hotrow.switching import Auto

Measured = Literal["speeds", "network"]  # sections of the cluster that are measured on this machine
TIMES = ("batch_s", "sample_s")  # measured by cluster.speeds.calibrate


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a switch."""

    mode: Mode
    workers: int | None  # None: as before
    local_batch: int | None


class SimulationConfig(Spec):
    """All settings of a simulation. `data`, `model`, `tables` and `hyper` are those of a run, used only to train."""

    run: SimulationRun = SimulationRun()
    cluster: ClusterConfig
    measured: tuple[Measured, ...] = ()  # sections with calibrate = true
    data: DataConfig | SyntheticConfig | None = None
    model: AnyModel | None = None
    tables: dict[str, Table] = Field(default_factory=dict)
    hyper: dict[str, Hyper] = Field(default_factory=dict)
    picture: Pictured = Pictured()
    modes: dict[str, Contender]  # by label, in the order in which they are shown

    @property
    def dense_bytes(self) -> int:
        """Of work that is only counted."""
        size = self.run.dense_bytes
        return parse_bytes(size) if isinstance(size, str) else size or 0

    def cluster_of(self, label: str) -> ClusterConfig:
        """The cluster of one mode. Only the global batch is the same for all."""
        own, whole = self.modes[label], self.cluster
        speeds = whole.speeds.model_copy(
            update={"batch_s": whole.speeds.batch_s / own.speed, "sample_s": whole.speeds.sample_s / own.speed}
        )
        return ClusterConfig(
            **{name: getattr(whole, name) for name in type(whole).model_fields}
            | {"workers": own.workers or whole.workers, "local_batch": own.local_batch or whole.local_batch}
            | {"global_batch": whole.facts.global_batch, "speeds": speeds}
        )

    def target_of(self, switch: Switch) -> Target:
        """The target of a switch."""
        other = self.modes.get(switch.mode)
        if other is None:
            return Target(mode_of(switch.mode), None, None)
        assert not isinstance(other.mode, Auto)
        return Target(other.mode, other.workers or self.cluster.workers, other.local_batch or self.cluster.local_batch)

    def tables_of(self, label: str) -> dict[str, Table]:
        """The tables of a mode, with its caches: its own setting, or those of the tables."""
        own = self.modes[label].cache
        if own is None:
            return self.tables
        cache = None if own == "off" else own
        return {name: Table(**{**_fields(table), "cache": cache}) for name, table in self.tables.items()}

    def hyper_of(self, label: str) -> Hyper:
        """The hyper-parameters of a mode: those it names, or the only ones."""
        name = self.modes[label].hyper
        if name is not None:
            return self.hyper[name]
        return next(iter(self.hyper.values()), Hyper())

    # From the sections of the file to the fields

    @model_validator(mode="before")
    @classmethod
    def _take_calibrate_out(cls, value: Any) -> Any:
        cluster = value.get("cluster") if isinstance(value, Mapping) else None
        if not isinstance(cluster, Mapping):
            return value
        given = {name: cluster.get(name) for name in ("speeds", "network")}
        sections = {name: dict(section) for name, section in given.items() if isinstance(section, Mapping)}
        measured = [name for name, section in sections.items() if _calibrates(name, section)]
        return {**value, "cluster": {**cluster, **sections}, "measured": [*value.get("measured", ()), *measured]}

    _data = field_validator("data", mode="before")(made_up_or_from_files)
    _tables = field_validator("tables", mode="before")(with_names)

    @field_validator("modes", mode="before")
    @classmethod
    def _labels_may_be_names(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or not value:
            raise ValueError("there is nothing to compare: give at least one, as [modes.gba]")
        return {label: _labelled(str(label), table) for label, table in value.items()}

    # Checks across sections. `modes` is the last field, so that all others are known.

    @field_validator("modes")
    @classmethod
    def _all_fits(cls, value: dict[str, Contender], info: ValidationInfo) -> dict[str, Contender]:
        rest = {name: each for name, each in info.data.items() if name in cls.model_fields}
        if len(rest) < len(cls.model_fields) - 1:  # one of them has a fault of its own
            return value
        config = cls.model_construct(**rest, modes=value)
        faults = [fault for label in value for fault in _faults_of(config, label)]
        if faults:
            raise SettingsError("modes do not fit", faults)
        return value


def check_whole(config: SimulationConfig) -> SimulationConfig:
    """ConfigError where a section that the work needs is missing."""
    run = config.run
    if run.work == "train":
        for name in ("data", "model", "tables"):
            if not getattr(config, name):
                raise ConfigError(f"{name}: is missing, and work='train' needs it as in a run's file: give [{name}]")
    elif "speeds" in config.measured:
        message = "cluster.speeds.calibrate=true: times the batches of a model"
        raise ConfigError(f"{message}, and work='count' computes none: set run.work='train', or give sample_s")
    elif run.samples is None and run.seconds is None:
        raise ConfigError("run.samples is missing: give the number of samples, or run.seconds")
    return config


def _faults_of(config: SimulationConfig, label: str) -> Iterator[FieldError]:
    own = config.modes[label]
    try:
        facts = config.cluster_of(label).facts
        start = Sync() if isinstance(own.mode, Auto) else own.mode
        start.check(facts)
    except SettingsError as error:
        yield from (FieldError(f"{label}.{fault.place}", fault.message) for fault in error.faults)
        return
    except ConfigError as error:
        yield FieldError(label, f": {error}")
        return
    yield from _faults_of_caches(config, label)
    if own.hyper is not None and own.hyper not in config.hyper:
        known = ", ".join(config.hyper) or "none"
        yield FieldError(f"{label}.hyper", f"={own.hyper!r}: there is no such set; there are: {known}")
    if own.hyper is None and len(config.hyper) > 1 and config.run.work == "train":
        yield FieldError(f"{label}.hyper", f" is missing: name one of {', '.join(config.hyper)}")
    for place, switch in enumerate(own.switches):
        fault = _fault_of_switch(config, label, switch)
        if fault is not None:
            yield FieldError(f"{label}.switches.{place}.mode", f"={switch.mode!r}: {fault}")


def _faults_of_caches(config: SimulationConfig, label: str) -> Iterator[FieldError]:
    own = config.modes[label]
    cached = cached_tables(config.tables_of(label))
    if own.cache is not None and config.run.work != "train":
        yield FieldError(f"{label}.cache", ": caches hold rows, and work='count' has none: set run.work='train'")
    if isinstance(own.mode, Auto):
        if cached:
            names = " and ".join(CACHING_MODES)
            message = f": tables.{cached[0]}.cache works in {names}, and auto takes others: set cache = 'off'"
            yield FieldError(label, message)
        return
    right = [switch for switch in own.switches if _fault_of_switch(config, label, switch) is None]
    for mode in (own.mode, *(config.target_of(switch).mode for switch in right)):
        try:
            check_cached_mode(config.tables_of(label), mode)
        except ConfigError as error:
            yield FieldError(label, f": {error}; cache = 'off' in [modes.{label}] leaves it out for this mode")
            return


def _fault_of_switch(config: SimulationConfig, label: str, switch: Switch) -> str | None:
    other = config.modes.get(switch.mode)
    if other is None and switch.mode not in MODES:
        return f"is neither one of the labels ({', '.join(config.modes)}) nor a mode ({', '.join(MODES)})"
    if other is not None and isinstance(other.mode, Auto):
        return "auto is not a mode to switch to: it chooses between two"
    if other is not None and other.speed != config.modes[label].speed:
        return "its workers are of another speed, and a switch changes no machines: give both the same speed"
    target, before = config.target_of(switch), config.cluster_of(label).facts
    changed = {"workers": target.workers or before.workers, "local_batch": target.local_batch or before.local_batch}
    try:
        target.mode.check(replace(before, **changed))
    except ConfigError as error:
        return str(error)
    return None


def _fields(table: Table) -> dict[str, Any]:
    return {name: getattr(table, name) for name in table.model_fields_set}


def _labelled(label: str, table: Any) -> Any:
    if not isinstance(table, Mapping) or "name" in table or "mode" in table:
        return table
    if label not in MAKERS:
        message = f" is missing: {label} is not the name of a mode, give one of {', '.join(MAKERS)}"
        raise SettingsError("modes", [FieldError(f"{label}.name", message)])
    return {"name": label, **table}


def _calibrates(name: str, section: dict[str, Any]) -> bool:
    """Remove `calibrate` from a section, and return it."""
    wanted = section.pop("calibrate", False)
    if not isinstance(wanted, bool):
        raise SettingsError("cluster", [FieldError(f"cluster.{name}.calibrate", f"={wanted!r}: must be true or false")])
    given = next((each for each in TIMES if each in section), None)
    if wanted and given is not None:
        message = f"={section[given]!r}: calibrate=true measures it: leave one of them out"
        raise SettingsError("cluster", [FieldError(f"cluster.{name}.{given}", message)])
    return wanted
