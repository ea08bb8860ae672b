"""EmbeddingBag: torch's module over tables that grow as ids come, for a plain PyTorch loop."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from hotrow.config import AnyInit, Table
from hotrow.errors import ConfigError, InputError
from hotrow.nn._bags import Bags, Mode, joined, read_bags
from hotrow.nn._lookup import Call, Lookup, Pending, apply_stash, run
from hotrow.nn._settings import bag_rules, many_tables, one_table, table_of_feature
from hotrow.nn._state import load_rows, move_rows, save_rows
from hotrow.optim.sparse import AnyOptimizer
from hotrow.spec import whole_number
from hotrow.store import Applied, RamTier, Stats
from hotrow.store.tiers import listed, open_tiers

FeatureInput = Tensor | tuple[Tensor, Tensor | None] | tuple[Tensor, Tensor | None, Tensor | None]


class EmbeddingBag(nn.Module):
    """Sums or means of embedding rows over bags of ids; ids are any 64-bit numbers (int64 is read as its bits).

    One table: `EmbeddingBag(dim=16)(ids, offsets)`, or ids of shape [bags, ids per bag], gives [bags, dim].
    Several: `EmbeddingBag(tables={"user": Table(dim=16), "item": Table(dim=32)}, features={"seen": "item", ...})` takes
    and gives a dict by feature; without `features` each table serves the feature of its own name. Features that share a
    table are looked up as one batch.

    While training, new ids get their row at once; `loss.backward()` collects gradients and `step()` applies them. In
    eval mode or without gradients no row is made: absent ids take the first value they would get, and `absent_ids`
    counts them. The rows are not parameters: optimizers and `.to()` ignore them, `state_dict()` has them.

    `optimizer` (Adagrad(lr=0.05)), `init` (Uniform(bound=0.01)), `seed` (0), `name` and every other setting of
    `hotrow.Table` (capacity, expiry, admission, ...) describe the one table. Two modules with the same name and seed
    start an id at the same values.

    Example:
        >>> import torch
        >>> import hotrow as hr
        >>> bag = hr.nn.EmbeddingBag(dim=4, mode="sum")
        >>> vectors = bag(torch.tensor([[1, 2], [3, 10**12]]))
        >>> vectors.sum().backward()
        >>> bag.step().rows
        4
        >>> tuple(vectors.shape), len(bag)
        ((2, 4), 4)
    """

    def __init__(
        self,
        dim: int | None = None,
        *,
        optimizer: AnyOptimizer | None = None,
        mode: Mode = "mean",
        padding_idx: int | None = None,
        include_last_offset: bool = False,
        init: AnyInit | None = None,
        seed: int | None = None,
        name: str | None = None,
        threads: int | None = None,
        tables: Mapping[str, Table] | None = None,
        features: Mapping[str, str] | None = None,
        **table: Any,
    ) -> None:
        super().__init__()
        _stay_out_of_compiled_graphs()
        settings = {"dim": dim, "optimizer": optimizer, "init": init, "seed": seed, "name": name, **table}
        given = {key: value for key, value in settings.items() if value is not None}
        self._single = tables is None
        self._tables = one_table(given) if tables is None else many_tables(tables, given)
        self._features = table_of_feature(self._tables, features, single=self._single)
        self._rules = bag_rules(mode, padding_idx, include_last_offset)
        self._threads = whole_number("threads", torch.get_num_threads() if threads is None else threads, 1, 1024)
        self._tiers = open_tiers(self._tables, self._threads)
        self._stashes: dict[str, list[Pending]] = {key: [] for key in self._tables}
        self.steps = 0  # calls of step so far
        # Samples they applied, and those of the process before where tables outlived it.
        self.samples = max((tier.samples for tier in self._tiers.values() if tier.attached), default=0)
        self.absent_ids = 0  # distinct absent ids of each lookup that made no rows, added up

    def forward(
        self,
        ids: Tensor | Mapping[str, FeatureInput],
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor | dict[str, Tensor]:
        """Pooled rows: [bags, dim] for a tensor of ids, the same by feature for a dict."""
        if self._single:
            if isinstance(ids, Mapping):
                raise InputError("ids is a dict: this module has one table; make it with tables={...} to name features")
            (feature,) = self._features
            return self._look_up({feature: read_bags("ids", ids, offsets, per_sample_weights, self._rules)})[feature]
        if not isinstance(ids, Mapping) or offsets is not None or per_sample_weights is not None:
            raise InputError("this module has named tables: give one dict, feature -> ids or (ids, offsets[, weights])")
        return self._look_up(self._read_features(ids))

    def step(self, samples: int | None = None) -> Applied | dict[str, Applied]:
        """Apply the gradients since the last step, each table's in one update, and forget them.

        `samples` are those of this step; left out, the bags of the forward calls count (of a dict its longest feature).
        """
        if samples is not None:
            samples = whole_number("samples", samples, 0, 2**62, InputError)
        calls = {pending.lookup.call for stash in self._stashes.values() for pending in stash}
        self.samples += sum(call.samples for call in calls) if samples is None else samples
        applied = {
            key: apply_stash(self._tiers[key], stash, step=self.steps, samples=self.samples)
            for key, stash in self._stashes.items()
        }
        self.steps += 1
        self.zero_grad()
        return next(iter(applied.values())) if self._single else applied

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget gradients that were not applied. `step` does so too; a parent's zero_grad does not reach here."""
        for stash in self._stashes.values():
            stash.clear()

    def table(self, name: str | None = None) -> RamTier:
        """The rows of a table; loading a state puts another tier in its place."""
        if name is None and self._single:
            (name,) = self._tiers
        if name not in self._tiers:
            raise ConfigError(f"table={name!r}: there is no such table; there are {listed(self._tiers)}")
        return self._tiers[name]

    def stats(self) -> Stats | dict[str, Stats]:
        """What the tables hold and have counted."""
        return self.table().stats() if self._single else {key: tier.stats() for key, tier in self._tiers.items()}

    def __len__(self) -> int:
        return sum(len(tier) for tier in self._tiers.values())

    def __bool__(self) -> bool:
        return True  # an empty table is still a module

    def extra_repr(self) -> str:
        tables = ", ".join(f"{key}: dim={table.dim} {table.optimizer!r}" for key, table in self._tables.items())
        return f"{tables}, mode={self._rules.mode!r}, rows={len(self):,}"

    def get_extra_state(self) -> dict[str, Any]:
        tables = {key: save_rows(tier) for key, tier in self._tiers.items()}
        return {"steps": self.steps, "samples": self.samples, "tables": tables}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        if set(state["tables"]) != set(self._tables):
            theirs, ours = listed(state["tables"]), listed(self._tables)
            raise InputError(f"the state has tables {theirs} and this module {ours}: make the module with the same")
        loaded = {
            key: load_rows(table, state["tables"][key], self._threads, self._tiers[key] if _has_file(table) else None)
            for key, table in self._tables.items()
        }
        for key, tier in loaded.items():  # only now, so that a state that is refused changes nothing
            if not _has_file(self._tables[key]):
                self._tiers[key] = tier
            else:
                move_rows(tier, self._tiers[key])  # a file has one owner
        self._stashes = {key: [] for key in self._tables}  # gradients of graphs that saw the old rows go nowhere
        self.steps, self.samples = int(state["steps"]), int(state["samples"])

    def __getstate__(self) -> dict[str, Any]:
        """For copy.deepcopy and pickle: the rows go as in state_dict, gradients stay behind as torch's do."""
        if on_disk := [key for key, table in self._tables.items() if table.disk is not None]:
            raise InputError(
                f"table {on_disk[0]!r} has rows on disk, and its file has one owner: make another module with another "
                "path, and load the state_dict of this one"
            )
        kept = {key: value for key, value in self.__dict__.items() if key not in ("_tiers", "_stashes")}
        return kept | {"_rows": self.get_extra_state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        rows = state.pop("_rows")
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        # A segment has one owner: the rows of a copy are in plain memory.
        self._tables = {key: table.model_copy(update={"segment": None}) for key, table in self._tables.items()}
        self._tiers = {}
        self.set_extra_state(rows)

    def _read_features(self, inputs: Mapping[str, FeatureInput]) -> dict[str, Bags]:
        if unknown := inputs.keys() - self._features.keys():
            raise InputError(f"feature {listed(unknown)} is unknown: this module has {listed(self._features)}")
        if missing := self._features.keys() - inputs.keys():
            raise InputError(f"feature {listed(missing)} is missing: give an empty bag per sample where it has no ids")
        return {feature: self._read_feature(feature, given) for feature, given in inputs.items()}

    def _read_feature(self, feature: str, given: FeatureInput) -> Bags:
        parts = given if isinstance(given, tuple) else (given,)
        if not 1 <= len(parts) <= 3:
            raise InputError(f"feature {feature!r}: {len(parts)} parts: give ids or (ids, offsets[, weights])")
        offsets, weights = (*parts[1:], None, None)[:2]
        return read_bags(f"feature {feature!r}", parts[0], offsets, weights, self._rules)

    def _look_up(self, bags: dict[str, Bags]) -> dict[str, Tensor]:
        """All features, table by table; every input was checked before, so nothing is left half done."""
        learning = self.training and torch.is_grad_enabled()
        call = Call(samples=max(part.count for part in bags.values()), samples_before=self.samples)
        outputs: dict[str, Tensor] = {}
        for key, tier in self._tiers.items():
            features = [feature for feature in bags if self._features[feature] == key]
            if not features:
                continue
            parts = [bags[feature] for feature in features]
            lookup = Lookup(
                tier=tier,
                bags=joined(parts),
                sizes=[part.count for part in parts],
                mode=self._rules.mode,
                threads=self._threads,
                call=call,
                stash=self._stashes[key] if learning else None,
            )
            for feature, part, pooled in zip(features, parts, run(lookup), strict=True):
                outputs[feature] = pooled.to(part.device)
            if not learning:
                self.absent_ids += lookup.batch.absent
        return {feature: outputs[feature] for feature in bags}


@cache
def _stay_out_of_compiled_graphs() -> None:
    """torch.compile shall break its graph here, not look inside. Done late: it imports the compiler, which is slow."""
    EmbeddingBag.forward = torch.compiler.disable(EmbeddingBag.forward)  # type: ignore[method-assign, no-untyped-call]


def _has_file(table: Table) -> bool:
    """Whether rows are in a segment or on disk."""
    return table.segment is not None or table.disk is not None
