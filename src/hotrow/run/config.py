"""A run in a file: TOML with the sections data, model, tables, dense, run and cluster."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import BeforeValidator, Field, field_validator, model_validator

from hotrow.client.aggregate import Average
from hotrow.config import Table
from hotrow.data.config import DataConfig
from hotrow.data.synthetic import SyntheticConfig
from hotrow.errors import ConfigError
from hotrow.modes import AnyMode, Sync
from hotrow.optim.sparse import Swap
from hotrow.plan.hosts import HostCluster
from hotrow.run.config_file import anchored_data, anchored_name, check_section, read_toml, set_engine, set_field
from hotrow.runtime.settings import AnyEngine, Local, Ray
from hotrow.sizes import FOLDER_NAME_RULE, Whole, fits_folder_name
from hotrow.spec import SettingsError, Spec, sentence
from hotrow.switching import Auto
from hotrow.trainer.autocast import Autocast
from hotrow.trainer.schedule import EarlyStopping, Schedule
from hotrow.worker.losses import AnyLoss, Task

UNNAMED = "run"  # of a run without a name


class Named(Spec):
    """A name with settings, which the named class checks: {name = "adam", lr = 0.001}."""

    name: str
    settings: dict[str, Any] = Field(default_factory=dict)


def _named(value: Any) -> Any:
    """Everything beside the name is a setting."""
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, Mapping) and set(value) - {"name", "settings"}:
        return {"name": value.get("name", ""), "settings": {k: v for k, v in value.items() if k != "name"}}
    return value


def _mode(value: Any) -> Any:
    """A name alone is a mode with its defaults."""
    return {"name": value} if isinstance(value, str) else value


AnyNamed = Annotated[Named, BeforeValidator(_named)]
AnyChoice = Annotated[Annotated[AnyMode | Auto, Field(discriminator="name")], BeforeValidator(_mode)]


class ModelSection(Named):
    """A model of the zoo or "file.py:Class" with its settings, and what it is trained for."""

    task: Task | None = None  # None: that of the loss, else classification
    loss: AnyLoss | None = None  # None: the model's own; else logistic, for a regression squared

    @model_validator(mode="after")
    def _loss_fits_the_task(self) -> "ModelSection":
        if self.task is not None and self.loss is not None and self.loss.task != self.task:
            raise ValueError(f"task={self.task!r}: loss {self.loss.name!r} is one of {self.loss.task}: leave task out")
        return self

    @property
    def predicts(self) -> Task:
        """The kind of label."""
        return self.task or (self.loss.task if self.loss is not None else "classification")


def _model(value: Any) -> Any:
    """What is neither name, task nor loss is a setting of the model."""
    if isinstance(value, str):
        return {"name": value}
    if not isinstance(value, Mapping) or "settings" in value:
        return value
    own = {key: value[key] for key in ("name", "task", "loss") if key in value}
    return {"name": "", **own, "settings": {key: each for key, each in value.items() if key not in own}}


AnyModel = Annotated[ModelSection, BeforeValidator(_model)]


class DenseSection(Spec):
    """How the network's own parameters are trained: any optimizer of torch.optim with its settings, or KStepAdam."""

    optimizer: AnyNamed = Named(name="adam", settings={"lr": 0.001})
    swap: Swap | None = None  # its second moments forget, as rows with a swap do
    clip: float | None = Field(default=None, gt=0)  # largest norm of the whole gradient


class RunSection(Spec):
    """Settings of the training run."""

    name: str = UNNAMED  # of its folder; a config file that leaves it out gives its own name
    folder: str = "runs"  # where run folders go
    engine: AnyEngine = Local()  # where it takes place
    mode: AnyChoice = Sync()  # or the rule that chooses one
    workers: Whole = Field(default=1, ge=1, le=4096)
    global_batch: Whole = Field(default=4096, ge=1, le=2**31)  # samples per step
    local_batch: Whole | None = Field(default=None, ge=1, le=2**31)  # of a worker; None: a global one dealt evenly
    embedding_average: Average = "batch"  # what an id's gradients are divided by
    epochs: Whole = Field(default=1, ge=1)
    seed: Whole = Field(default=0, ge=0, lt=2**63)
    threads: Whole | None = Field(default=None, ge=1, le=1024)  # of the tables; None: as torch
    torch_threads: Whole | None = Field(default=None, ge=1, le=1024)
    autocast: Autocast = "auto"  # bfloat16 in the network; auto: where this processor gains from it
    schedule: Schedule = Schedule()
    early_stopping: EarlyStopping | None = None
    progressive: bool = False  # predict each batch before training on it
    replay: float = Field(default=0.0, ge=0)  # day by day: so many samples of the past for each new one
    checkpoint_every: Whole | None = Field(default=None, ge=1)  # samples; None: at the end alone
    checkpoint_keep: Whole = Field(default=1, ge=1)  # so many of the newest
    checkpoint_full_every: Whole = Field(default=1, ge=1)  # the others hold only what changed
    not_finite: Literal["stop", "continue"] = "stop"  # after a loss that is not finite
    tensorboard: bool = True
    metrics_port: Whole = Field(default=0, ge=0, le=65535)  # for Prometheus, on loopback; 0: none

    @field_validator("name")
    @classmethod
    def _fits_a_folder(cls, value: str) -> str:
        if not fits_folder_name(value):
            raise ValueError(f"is the name of a folder: use {FOLDER_NAME_RULE}")
        return value


def made_up_or_from_files(value: Any) -> Any:
    """The `[data]` section of a file as settings."""
    if not isinstance(value, Mapping):
        return value
    return SyntheticConfig(**value) if value.get("format") == "synthetic" else DataConfig(**value)


def with_names(tables: Any) -> Any:
    """The `[tables]` sections of a file, each with its key as its name."""
    if not isinstance(tables, Mapping):
        return tables
    return {name: {**table, "name": name} if isinstance(table, Mapping) else table for name, table in tables.items()}


class RunConfig(Spec):
    """All of a run."""

    data: DataConfig | SyntheticConfig
    model: AnyModel
    tables: dict[str, Table]  # those that data name and that are not here are like `default`
    dense: DenseSection = DenseSection()
    run: RunSection = RunSection()
    cluster: HostCluster | None = None  # of `hotrow plan capacity`; training does not read it

    _data = field_validator("data", mode="before")(made_up_or_from_files)

    @field_validator("tables", mode="before")
    @classmethod
    def _take_their_names(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or not value:
            raise ValueError("give at least [tables.default] with a dim")
        return with_names(value)


SECTIONS = {  # section -> its settings, where they have names of their own
    "data": (*DataConfig.model_fields, *SyntheticConfig.model_fields),
    "dense": tuple(DenseSection.model_fields),
    "run": tuple(RunSection.model_fields),
    "model": (),
    "tables": (),
    "cluster": tuple(HostCluster.model_fields),
}


def load_config(path: Path, changes: Sequence[str] = (), engine: Mapping[str, Any] | None = None) -> RunConfig:
    """Read a config file; `changes` as "run.epochs=3" replace its values, `engine` fields of run.engine.

    Paths start at its folder.

    Example:
        >>> from pathlib import Path
        >>> from hotrow.run import load_config
        >>> from tempfile import TemporaryDirectory
        >>> text = "data.format = 'synthetic'\\nmodel.name = 'lr'\\ntables.default.dim = 1"
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "a.toml").write_text(text)
        ...     load_config(Path(folder, "a.toml"), ["run.epochs=2"]).run.epochs
        2
    """
    document = read_toml(path)
    for change in changes:
        check_section(change, SECTIONS)
        set_field(document, change)
    set_engine(document, engine or {})
    if isinstance(section := document.setdefault("run", {}), dict):
        section.setdefault("name", path.stem if fits_folder_name(path.stem) else UNNAMED)
    try:
        return _anchored(RunConfig(**document), path.parent)
    except SettingsError as error:
        raise ConfigError(f"{path}: {sentence('', error.faults)}") from None


def as_toml(config: RunConfig) -> str:
    """The whole config, defaults written out, as a file that gives the same again."""
    document = config.model_dump(mode="json", exclude_none=True)
    for place, key in ((document, "model"), (document["dense"], "optimizer")):
        settings = place[key].pop("settings")
        place[key] |= settings
    for name, table in document["tables"].items():
        assert table.pop("name") == name
        if "seed" not in config.tables[name].model_fields_set:  # it is the run's, and must stay so when read again
            del table["seed"]
    return tomli_w.dumps(document)


def _anchored(config: RunConfig, base: Path) -> RunConfig:
    """With whole paths: the config is kept in the run's folder too, from where relative ones would lead elsewhere."""
    model = config.model.model_copy(update={"name": anchored_name(config.model.name, base)})
    run, engine = config.run, config.run.engine
    if isinstance(engine, Ray) and engine.key is not None:
        key = (base / engine.key.expanduser()).absolute()
        run = run.model_copy(update={"engine": engine.model_copy(update={"key": key})})
    tables = {
        name: table if table.path is None else table.model_copy(update={"path": _whole(table.path, base)})
        for name, table in config.tables.items()
    }
    data = anchored_data(config.data, base)
    return config.model_copy(update={"data": data, "model": model, "run": run, "tables": tables})


def _whole(path: Path, base: Path) -> Path:
    return (base / path.expanduser()).resolve()
