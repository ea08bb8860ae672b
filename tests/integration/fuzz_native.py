"""Thousands of random calls of everything that the native module offers, with good, odd and impossible arguments; and
segments with random bytes, attached and used.

    python fuzz_native.py NATIVE_MODULE ERRORS_MODULE FOLDER SEED CALLS

Every call either works or raises one of EXPECTED. Sizes for which memory would really be taken are left out: what is
looked for are accesses out of bounds, not a machine without memory. A failure prints seed and call number.
"""

import importlib.util
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

EXPECTED: tuple[type[Exception], ...] = (ValueError, TypeError, IndexError, OverflowError)  # and SegmentError
NUMBERS = [-(2**63), -1, 0, 1, 2, 3, 63, 64, 255, 65_535, 65_536, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1, 2**32]
NUMBERS += [2**40, 2**46 + 1, 2**53, 2**62 - 1, 2**62, 2**62 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**70]
ODD_VALUES: list[Any] = [None, True, "x", "version", b"x", 0.5, float("nan"), [], [1, 2], {}, (), object()]
DTYPES = ["bool", "i1", "u1", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "S3"]
FLOATS = np.array([0, -0.0, 1, -1, 1e-45, 1e-38, 3e38, -3e38, 1e19, np.inf, -np.inf, np.nan], np.float32)
FIELDS = ("version", "last_update", "clock", "last_seen", "period", "updates", "frequency", "older", "")


def load(name: str, path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class Spoiler:
    """Good arguments, and what becomes of them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numpy = np.random.default_rng(seed)

    def keys(self, size: int, most: int = 200) -> Any:
        if self.random.random() < 0.2:
            return self.numpy.integers(0, 2**64, size, dtype=np.uint64)
        return self.numpy.integers(0, self.random.choice([1, 5, most, 10**9]), size).astype(np.uint64)

    def below(self, end: int, size: int, dtype: str = "u4") -> Any:
        return self.numpy.integers(0, max(1, end), size).astype(dtype)

    def floats(self, *shape: int) -> Any:
        values = self.numpy.normal(size=shape).astype(np.float32)
        if values.size and self.random.random() < 0.3:
            places = self.numpy.integers(0, values.size, 1 + values.size // 4)
            values.reshape(-1)[places] = self.numpy.choice(FLOATS, len(places))
        return values

    def offsets(self, bags: int, positions: int, dtype: str = "i8") -> Any:
        inner = np.sort(self.numpy.integers(0, positions + 1, max(0, bags - 1)))
        return np.concatenate([[0], inner, [positions]]).astype(dtype) if bags else np.zeros(1, dtype)

    def size(self) -> int:
        return self.random.choice([0, 1, 2, 7, 15, 16, 17, 64, 100, 1000, 5000])

    def dim(self) -> int:
        return self.random.choice([1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 64, 100])

    def threads(self) -> int:
        return self.random.choice([1, 1, 1, 2, 3])

    def number(self) -> int:
        return self.random.choice([*NUMBERS, self.random.randrange(2**64), self.random.randrange(1000)])

    def spoiled(self, arguments: Sequence[Any]) -> list[Any]:
        """Mostly with one thing wrong: with more, the first check would hide the others."""
        given = list(arguments)
        for _ in range(self.random.choice([0, 0, 1, 1, 1, 2])):
            if given:
                place = self.random.randrange(len(given))
                given[place] = self.odd(given[place])
        if self.random.random() < 0.02:
            given = given[:-1] if self.random.random() < 0.5 else [*given, 1]
        return given

    def odd(self, value: Any) -> Any:
        if isinstance(value, np.ndarray) and self.random.random() < 0.95:
            return self.odd_array(value)
        if isinstance(value, dict) and self.random.random() < 0.9:
            return self.odd_fields(value)
        if isinstance(value, bool | int) and self.random.random() < 0.8:
            return self.number()
        if isinstance(value, float) and self.random.random() < 0.9:
            return float(self.random.choice(FLOATS))
        return self.random.choice(ODD_VALUES)

    def odd_fields(self, fields: dict[str, Any]) -> dict[Any, Any]:
        changed: dict[Any, Any] = dict(fields)
        name = self.random.choice([*FIELDS, *changed]) if self.random.random() < 0.9 else 7
        if name in changed and self.random.random() < 0.5:
            del changed[name]
        else:
            column = next(iter(fields.values()), np.zeros(3, np.uint32))
            changed[name] = self.odd(column)
        return changed

    def odd_array(self, array: Any) -> Any:
        values = self.random.random() < 0.4
        return self.odd_values(array) if values else self.odd_layout(array)

    def odd_values(self, array: Any) -> Any:
        """Any bits at some places: indices far out, offsets that fall, numbers that are none."""
        changed = array.copy()
        raw = changed.reshape(-1).view(np.uint8)
        if raw.size:
            for _ in range(self.random.choice([1, 1, 3, 100])):
                at = self.random.randrange(raw.size)
                raw[at] = self.random.choice([0, 1, 127, 128, 255])
        return changed

    def odd_layout(self, array: Any) -> Any:
        size = array.size
        unaligned = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
        read_only = array.copy()
        read_only.flags.writeable = False
        return self.random.choice(
            [
                array[:0],
                array[:-1],
                array[1:],
                np.concatenate([array, array[:1]]),
                np.repeat(array, 2, axis=0)[::2],
                array[::-1],
                array.T,
                array.reshape(-1),
                array.reshape(size, 1),
                array.reshape(1, size),
                array[..., None],
                array[..., :0],
                np.asfortranarray(array),
                np.zeros(array.shape, self.random.choice(DTYPES)),
                array.byteswap().view(array.dtype.newbyteorder()),
                unaligned,
                read_only,
                array.tolist(),
                np.empty((), array.dtype),
            ]
        )


class Kernels:
    """The functions of the module."""

    def __init__(self, native: ModuleType, spoiler: Spoiler) -> None:
        self.native, self.spoiler = native, spoiler

    def call(self) -> None:
        name = self.spoiler.random.choice([name for name in dir(self) if name.startswith("try_")])
        function, arguments = getattr(self, name)()
        function(*self.spoiler.spoiled(arguments))

    def try_unique(self) -> tuple[Any, list[Any]]:
        s, size = self.spoiler, self.spoiler.random.choice([self.spoiler.size(), 140_000])
        return self.native.unique, [
            s.keys(size),
            s.keys(size),
            s.below(9, size),
            s.below(9, size),
            s.random.choice([1, 4]),
        ]

    def try_sharded(self) -> tuple[Any, list[Any]]:
        s, size, shards = self.spoiler, self.spoiler.size(), self.spoiler.random.choice([1, 2, 3, 8, 1023, 1024])
        bounds = np.empty(shards + 1, np.int64)
        return self.native.sharded, [s.keys(size), shards, s.keys(size), bounds, s.below(9, size), s.threads()]

    def try_shard_of(self) -> tuple[Any, list[Any]]:
        s, size = self.spoiler, self.spoiler.size()
        return self.native.shard_of, [s.keys(size), s.random.choice([1, 2, 1024]), s.below(9, size), s.threads()]

    def try_pools(self) -> tuple[Any, list[Any]]:
        s, positions, bags, rows, dim = (
            self.spoiler, self.spoiler.size(), self.spoiler.size(), 1 + self.spoiler.size(), self.spoiler.dim(),
        )  # fmt: skip
        bags = max(1, bags)
        ids = [s.below(rows, positions), s.offsets(bags, positions)]
        mean = s.random.random() < 0.5
        weights = None if mean or s.random.random() < 0.5 else s.floats(positions)
        table, pooled = s.floats(rows, dim), s.floats(bags, dim)
        return s.random.choice(
            [
                (self.native.pool, [table, *ids, weights, mean, pooled, s.threads()]),
                (self.native.pool_backward, [pooled, *ids, weights, mean, table, s.threads()]),
                (self.native.pool_weight_gradient, [pooled, table, *ids, s.floats(positions), s.threads()]),
            ]
        )

    def try_rows(self) -> tuple[Any, list[Any]]:
        s, count, dim = self.spoiler, self.spoiler.size(), self.spoiler.dim()
        rows, halves = s.floats(count, dim), s.below(65_536, count * dim, "u2").reshape(count, dim)
        kind = s.random.choice([1, 2])
        return s.random.choice(
            [
                (self.native.encode_rows, [rows, halves, s.floats(count), s.threads()]),
                (self.native.decode_rows, [halves, s.floats(count), rows, s.threads()]),
                (self.native.narrow, [rows, kind, s.keys(count), halves]),
                (self.native.widen, [halves, kind, rows]),
            ]
        )

    def try_compression(self) -> tuple[Any, list[Any]]:
        s, size, bags = self.spoiler, self.spoiler.size(), max(1, self.spoiler.size())
        keys, offsets, sample = s.keys(size), s.offsets(bags, size), s.random.choice(["u2", "u4"])
        if s.random.random() < 0.5:
            buffers = s.keys(size), s.below(9, size), s.below(9, size, sample)
            return self.native.compress_ids, [keys, offsets, *buffers, s.threads()]
        counts = np.diff(s.offsets(max(1, s.size()), size)).astype(np.uint32)
        return self.native.expand_ids, [s.keys(len(counts)), counts, s.below(bags, size, sample), keys, offsets]

    def try_strings(self) -> tuple[Any, list[Any]]:
        s, strings, content = self.spoiler, self.spoiler.size(), self.spoiler.size()
        first = s.random.choice([0, 0, 1, 9])
        data = np.array(s.random.choices(b"0123456789-+x", k=content), np.uint8)
        offsets = s.offsets(max(1, first + strings), content, s.random.choice(["i4", "i8"]))
        out = s.keys(max(0, len(offsets) - 1 - first))
        validity = None if s.random.random() < 0.5 else s.below(256, (len(offsets) + 7) // 8, "u1")
        function = s.random.choice([self.native.hash_strings, self.native.string_ids])
        return function, [data, offsets, validity, first, out, s.random.randrange(2**64), 0, s.threads()]

    def try_limits(self) -> tuple[Any, list[Any]]:
        """Sizes between what is cheap and what is refused would be taken for real."""
        s, refused = self.spoiler, [0, -1, 2**46 + 1, 2**63, 2**64 - 1, None]
        if s.random.random() < 0.5:
            rows, words = s.random.choice([1, 5, 100, *refused]), s.random.choice([4, 60, 64, 68, 256, 6, *refused])
            return self._field, [rows, words, s.below(100, s.size(), "i8")]
        return self._copy, [s.random.choice([1, 999, *refused])]

    def _field(self, rows: Any, row_bytes: Any, numbers: Any) -> None:
        if not isinstance(rows, int) or not isinstance(row_bytes, int) or not 10**6 < rows * row_bytes <= 2**46:
            self.native.RowField(rows, row_bytes, 1).read_seconds(numbers, 2)

    def _copy(self, size: Any) -> None:
        if not isinstance(size, int) or not 10**6 < size <= 2**46:
            self.native.CopyField(size, 1).copy_seconds(2)


class Tables:
    """Some tables of different kinds, and batches that wander between them."""

    def __init__(self, native: ModuleType, spoiler: Spoiler, folder: Path) -> None:
        self.native, self.spoiler, self.folder = native, spoiler, folder
        self.tables: list[tuple[Any, Any]] = []  # with their specs
        self.batches: list[tuple[Any, Any]] = []  # with the table that planned them

    def spec(self) -> Any:
        s, native = self.spoiler, self.native
        optimizer, life, admission = native.Optimizer(), native.Life(), native.Admission()
        optimizer.rule = s.random.choice([getattr(native.Rule, rule) for rule in RULES])
        optimizer.lr = s.random.choice([0.1, 0.0, float("nan"), -1.0])
        optimizer.correct_by_row = s.random.random() < 0.5
        optimizer.swap_period = s.random.choice([0, 0, 1, 1000, 2**64 - 1])
        life.eviction = s.random.choice([getattr(native.Eviction, each) for each in ("none", "lru", "lfu", "refuse")])
        life.capacity_rows = 0 if life.eviction == native.Eviction.none else s.random.choice([1, 2, 64, 100, 2**40])
        life.keep_evicted = s.random.random() < 0.5
        life.gone_keys_max = s.random.choice([0, 1, 100, 2**64 - 1])
        life.expiry = s.random.choice([0, 0, 1, 5000, 2**62])
        admission.kind = s.random.choice([getattr(native.AdmissionKind, k) for k in ("everyone", "at_least", "chance")])
        admission.count = s.random.choice([0, 1, 2, 255, 2**31])
        admission.filter_bytes = s.random.choice([0, 0, 1, 64, 10_000])
        admission.probability = s.random.choice([0.0, 0.5, 1.0, float("nan")])
        if s.random.random() < 0.1:
            life.capacity_rows, life.expiry = s.number() % 2**64, s.number() % 2**64
            admission.filter_bytes = s.random.choice([2**46 + 1, 2**63, 2**64 - 1])
        life.admission = admission
        given = [
            s.dim(),
            s.random.choice([0, 1, 2]),
            optimizer,
            s.random.choice([0, 1, 2]),
            0.5,
            s.random.randrange(2**64),
        ]
        given += [life, s.random.random() < 0.5, s.random.random() < 0.5, s.random.choice([0, 0, 1, 3, 5])]
        spoiled = s.spoiled(given) if s.random.random() < 0.3 else given
        native.TableSpec(*spoiled)  # bounds every number, so what is left of them below is small
        return native.TableSpec(*[min(spoiled[0], 100), *spoiled[1:]])  # long rows would take real memory

    def call(self) -> None:
        s = self.spoiler
        if len(self.tables) < 3 or s.random.random() < 0.01:
            self.tables = [*self.tables[-5:], self.made()]
        if not self.batches or s.random.random() < 0.2:
            tier, _ = self.tables[-1] if s.random.random() < 0.5 else s.random.choice(self.tables)
            keys = s.keys(s.size())
            given = [np.unique(keys) if s.random.random() < 0.5 else keys, s.threads()]
            batch = tier.batch(*(s.spoiled(given) if s.random.random() < 0.2 else given))
            self.batches = [*self.batches[-7:], (tier, batch)]
        name, (tier, *arguments) = self.planned()
        getattr(tier, name)(*(s.spoiled(arguments) if s.random.random() < 0.5 else arguments))
        if s.random.random() < 0.02:
            faults = tier.verify()
            assert faults == [], faults[:3]

    def made(self) -> tuple[Any, Any]:
        s, spec = self.spoiler, self.spec()
        spec.rows_within(*s.spoiled([10**7, True]))
        path = self.folder / f"hotrow-fuzz-{s.random.randrange(4)}.rows"
        path.unlink(missing_ok=True)
        segment = None if s.random.random() < 0.6 else (str(path), [("a", "b")], False, s.random.random() < 0.5)
        return self.native.RamTier(spec, segment), spec

    def planned(self) -> tuple[str, list[Any]]:
        s = self.spoiler
        tier, spec = s.random.choice(self.tables)
        own = [batch for planner, batch in self.batches if planner is tier]
        batch = s.random.choice(own if own and s.random.random() < 0.8 else [batch for _, batch in self.batches])
        per_unique = s.random.random() < 0.5
        dim, state_dim = self.dim_of(tier), tier.state_dim
        rows = batch.unique if per_unique else len(batch)
        out = None if s.random.random() < 0.3 else s.floats(rows, dim)
        keys, samples = s.keys(s.size()), s.random.choice([None, 0, 1000, 10**6, s.number()])
        step = s.random.choice([0, 1, 5000, 2**32, 2**64 - 1])
        weights = None if per_unique or s.random.random() < 0.5 else s.floats(rows)
        named = None if per_unique or s.random.random() < 0.5 else s.below(7, rows)
        gradients = s.floats(7 if named is not None else rows, dim)
        state = None if s.random.random() < 0.5 else s.floats(len(batch), state_dim)
        clocks = s.below(2**32, len(batch)) if "clock" in spec.fields and s.random.random() < 0.5 else None
        fields = {name: s.below(2**32, len(batch)) for name in spec.fields if s.random.random() < 0.5}
        count = s.random.choice([0, 1, 10, 1000])
        if s.random.random() < 0.3:
            count = s.random.choice([count, self.fallen(tier, batch)])
        whole = {name: s.below(9, count) for name in spec.fields}
        columns = [s.keys(count), s.floats(count, dim), s.floats(count, state_dim), whole]
        threads = s.threads()
        plans: dict[str, list[Any]] = {
            "find": [batch, out, per_unique, threads],
            "find_or_init": [batch, out, per_unique, s.random.random() < 0.7, samples, threads],
            "apply": [batch, gradients, weights, named, per_unique, step, 10**6, 1.0, threads],
            "add": [batch, s.floats(len(batch), dim), state, clocks, step, 10**6, threads],
            "put": [batch, s.floats(len(batch), dim), state, fields, threads],
            "read": [batch, s.random.choice(FIELDS), s.below(9, len(batch)), threads],
            "touch": [batch, samples, threads],
            "expire": [samples, threads],
            "erase": [batch, threads],
            "first_values": [keys, s.floats(len(keys), dim), threads],
            "export_rows": [s.random.choice([0, 0, 3, s.number()]), *columns],
            "evicted": [batch, *columns],
            "evicted_rows": [batch],
            "take_gone_keys": [],
            "eviction_order": [s.random.choice([0, 1, 31, s.number()])],
            "stats": [],
            "verify": [],
            "attach": [threads],
            "push_begin": [s.number()],
            "push_finish": [s.number()],
            "push_partly": [],
            "push_newest": [],
            "leave_segment": [],
            "close_segment": [],
            "batch": [keys, threads],
        }
        name = (
            s.random.choice(list(plans))
            if s.random.random() < 0.5
            else s.random.choice(["find_or_init", "apply", "put"])
        )
        if name in ("leave_segment", "close_segment") and s.random.random() < 0.9:
            name = "find_or_init"
        if s.random.random() < 0.05:
            self.look_at(batch)
        return name, [tier, *plans[name]]

    def dim_of(self, tier: Any) -> int:
        """Only the shape that is refused tells it."""
        try:
            tier.first_values(np.empty(0, np.uint64), np.empty((0, 0), np.float32), 1)
        except ValueError as error:
            return int(str(error).rsplit(" ", 1)[1].rstrip(")"))
        raise AssertionError("a table without columns")

    def fallen(self, tier: Any, batch: Any) -> int:
        try:
            return int(tier.evicted_rows(batch))
        except ValueError:
            return 3

    def look_at(self, batch: Any) -> None:
        s = self.spoiler
        for call, good in (
            (batch.keys, s.keys(batch.unique)),
            (batch.inverse, s.below(9, len(batch))),
            (batch.absent_mask, np.empty(len(batch), np.bool_)),
        ):
            call(*s.spoiled([good]))


RULES = ("sgd", "adagrad", "rowwise_adagrad", "decayed_adagrad", "adam", "ftrl")


class Segments:
    """A sound file with rows, damaged in every turn, attached and used."""

    def __init__(self, native: ModuleType, spoiler: Spoiler, folder: Path) -> None:
        self.native, self.spoiler = native, spoiler
        self.path = folder / "hotrow-fuzz-damaged.rows"
        life = native.Life()
        life.capacity_rows, life.eviction = 600, native.Eviction.lfu
        self.spec = native.TableSpec(5, 1, native.Optimizer(), 0, 1.0, 1, life, True, True, 1)
        tier = self.open()
        for start in (0, 300, 100):
            tier.find_or_init(
                tier.batch(np.arange(start, start + 400, dtype=np.uint64), 1), None, False, True, None, [], 1
            )
        tier.push_begin(5)
        tier.leave_segment()
        self.sound = self.path.read_bytes()
        self.used = len(self.sound.rstrip(b"\0"))

    def open(self) -> Any:
        return self.native.RamTier(self.spec, (str(self.path), [("dim", "5")], False, True))

    def call(self) -> None:
        image = self.damaged()
        if self.spoiler.random.random() < 0.3:
            self.write(image)
            self.use_as_pieces()
        self.write(image)
        self.native.inspect_segment(str(self.path))
        tier = self.open()
        if tier.attached:
            tier.attach(2)
        assert tier.verify() == []
        keys = self.spoiler.keys(700)
        tier.find_or_init(tier.batch(keys, 2), np.empty((700, 5), np.float32), False, True, None, [], 2)
        assert tier.verify() == []

    def write(self, image: bytes) -> None:
        self.path.write_bytes(image)
        self.path.chmod(0o600)

    def use_as_pieces(self) -> None:
        segment = self.native.Segment(str(self.path), [("dim", "5")], False, True)
        for number, (*_, size) in enumerate(segment.pieces()):
            assert len(segment.piece(number)) == size
            segment.piece(number)[-1:] = 1
        segment.allocate(1, 2, 3, 100)[:] = 7
        segment.push_begin(9)
        segment.push_finish(9)
        segment.leave()

    def damaged(self) -> bytes:
        s, data = self.spoiler, bytearray(self.sound)
        for _ in range(s.random.choice([0, 1, 1, 5, 500])):
            start, end = s.random.choice([(0, 64), (4096, 528_384), *[(528_384, self.used)] * 8])
            data[s.random.randrange(start, end)] = s.random.choice([0, 1, 127, 255, s.random.randrange(256)])
        match s.random.randrange(10):
            case 0:
                del data[s.random.randrange(len(data)) :]
            case 1:
                data += bytes(s.random.choice([1, 64, 4096, 10**6]))
            case 2:
                data += s.random.randbytes(100)
        return bytes(data)


def main(native_path: str, errors_path: str, folder: str, seed: int, calls: int) -> None:
    errors = load("hotrow.errors", errors_path)
    native = load("_native", native_path)
    expected = (*EXPECTED, errors.SegmentError)
    spoiler = Spoiler(seed)
    kernels, tables = Kernels(native, spoiler), Tables(native, spoiler, Path(folder))
    segments = Segments(native, spoiler, Path(folder))
    parts: list[Callable[[], None]] = [kernels.call] * 10 + [tables.call] * 10 + [segments.call]
    worked = refused = 0
    for number in range(calls):
        try:
            spoiler.random.choice(parts)()
            worked += 1
        except expected:
            refused += 1
        except BaseException:
            print(f"seed {seed}, call {number}", flush=True)
            raise
    print(f"{worked} worked, {refused} refused", flush=True)
    assert min(worked, refused) > calls // 5


if __name__ == "__main__":
    native_module, errors_module, its_folder, its_seed, how_many = sys.argv[1:]
    main(native_module, errors_module, its_folder, int(its_seed), int(how_many))
