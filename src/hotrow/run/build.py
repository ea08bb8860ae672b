"""Build what a config names: tables, model, dense optimizer, trainer."""

from collections.abc import Iterable, Mapping
from inspect import Parameter, signature
from typing import Any

import torch
from torch import nn

from hotrow.config import Table
from hotrow.data.decode import Decoder
from hotrow.data.schema import Bucket, Schema
from hotrow.errors import ConfigError
from hotrow.models.registry import build as build_model
from hotrow.nn.inputs import InputShape
from hotrow.optim import KStepAdam, SwapOptimizer
from hotrow.optim.sparse import Swap
from hotrow.run.config import Named, RunConfig
from hotrow.spec import did_you_mean
from hotrow.trainer import Trainer


def tables_of(schema: Schema, given: Mapping[str, Table]) -> dict[str, Table]:
    """Every table that the features name: its own settings, or those of `default`."""
    names = [number.transform.table for number in schema.numbers if isinstance(number.transform, Bucket)]
    names += [feature.table for feature in schema.ids]
    used = dict.fromkeys(names)
    if unused := sorted(set(given) - set(used) - {"default"}):
        known = ", ".join(used) or "none"
        raise ConfigError(f"tables.{unused[0]}: no feature names this table, they name {known}: set a column's table")
    tables = {}
    for name in used:
        if name not in given and "default" not in given:
            raise ConfigError(f"tables.{name} is missing, and there is no tables.default to take its settings from")
        tables[name] = given.get(name, given.get("default")).model_copy(update={"name": name})  # type: ignore[union-attr]
    return tables


def shape_of(schema: Schema, tables: Mapping[str, Table]) -> InputShape:
    """What the model is built for."""
    fields, sequences = Decoder(schema).shape({name: table.dim for name, table in tables.items()})
    return InputShape(schema.width, fields, sequences)


def trainer_of(config: RunConfig, schema: Schema, *, attach: bool = False) -> Trainer:
    """Everything but the data. `attach`: rows that segments of an earlier run hold are taken over."""
    if config.run.torch_threads is not None:
        torch.set_num_threads(config.run.torch_threads)
    torch.manual_seed(config.run.seed)
    tables = tables_of(schema, config.tables)
    seeded = {name: _seeded(table, config.run.seed) for name, table in tables.items()}
    return Trainer(
        build_model(config.model.name, shape_of(schema, tables), config.model.settings),
        seeded,
        optimizer=lambda parameters: dense_optimizer(config.dense.optimizer, parameters, config.dense.swap),
        schedule=config.run.schedule,
        loss=config.model.loss,
        task=config.model.task,
        clip=config.dense.clip,
        global_batch=config.run.global_batch,
        mode=config.run.mode,
        workers=config.run.workers,
        local_batch=config.run.local_batch,
        embedding_average=config.run.embedding_average,
        engine=config.run.engine,
        autocast=config.run.autocast,
        threads=config.run.threads,
        attach=attach,
        not_finite=config.run.not_finite,
    )


def dense_optimizer(
    named: Named, parameters: Iterable[nn.Parameter], swap: Swap | None = None
) -> torch.optim.Optimizer:
    """KStepAdam or one of torch.optim by its name, in any case; with `swap` its second moments forget."""
    known = {
        name.lower(): made
        for name, made in [*vars(torch.optim).items(), ("KStepAdam", KStepAdam)]
        if isinstance(made, type) and issubclass(made, torch.optim.Optimizer) and made is not torch.optim.Optimizer
    }
    maker = known.get(named.name.lower())
    if maker is None:
        message = f"dense.optimizer.name={named.name!r}: there is no such optimizer{did_you_mean(named.name, known)}"
        raise ConfigError(f"{message}; there are {', '.join(sorted(known))}")
    if maker in (torch.optim.LBFGS, torch.optim.SparseAdam):
        raise ConfigError(f"dense.optimizer.name={named.name!r}: does not fit steps on batches of dense gradients")
    settings = _fast(maker) | named.settings
    accepted = [name for name in signature(maker).parameters if name not in ("self", "params")]
    if unknown := sorted(set(settings) - set(accepted)):
        message = f"dense.optimizer.{unknown[0]}={settings[unknown[0]]!r}: {maker.__name__} has no such setting"
        raise ConfigError(f"{message}, it has {', '.join(accepted)}")
    try:
        made = maker(parameters, **settings)
        return made if swap is None else SwapOptimizer(made, swap)
    except ConfigError as error:
        raise ConfigError(f"dense.{'optimizer' if swap is None else 'swap'}: {error}") from None
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"dense.optimizer: {maker.__name__} refuses {settings}: {error}") from None


def _fast(maker: type[torch.optim.Optimizer]) -> dict[str, Any]:
    """One pass over each parameter instead of several, where torch has it for CPUs."""
    fused = signature(maker).parameters.get("fused")
    return {"fused": True} if fused is not None and fused.kind is not Parameter.VAR_KEYWORD else {}


def _seeded(table: Table, seed: int) -> Table:
    """The run's seed, unless the table has one of its own."""
    return table if "seed" in table.model_fields_set else table.model_copy(update={"seed": seed})
