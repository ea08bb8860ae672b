// hotrow._native.RamTier. The Python face (hotrow.store.ram) has told a user's mistakes in sentences before a
// call gets here; the checks below keep memory safe whoever calls.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "bind/columns.h"
#include "bind/plans.h"
#include "store/bags.h"
#include "store/indices.h"
#include "store/ram_tier.h"

namespace hotrow::bind {
namespace {

using store::Batch;
using store::Key;
using store::Per;
using store::RamTier;

template <typename T, int dims>
using Array = HostArray<T, dims>;
using Keys = Array<const std::uint64_t, 1>;
using Rows = Array<float, 2>;
using ConstRows = Array<const float, 2>;
using Weights = Array<const float, 1>;
using Integers = Array<const std::uint32_t, 1>;

std::size_t rows_of(const Batch& batch, bool per_unique) { return per_unique ? batch.unique() : batch.size(); }
Per per(bool per_unique) { return per_unique ? Per::unique : Per::key; }

using Flags = Array<const bool, 1>;

store::Selection selection(const std::string& who, const Batch& batch, const std::optional<Flags>& only,
                           bool as_found) {
  if (only) check_shape(who + ": only", *only, {batch.unique()});
  demand(!as_found || batch.looked_up, who + ": as_found: the batch has not been looked up yet");
  // As bytes: a caller's flag may be any.
  return {only ? reinterpret_cast<const std::uint8_t*>(only->data()) : nullptr, as_found};
}

using SegmentArgs = std::tuple<std::string, store::Identity, bool, bool>;  // path, identity, huge, keep

RamTier* make_tier(const store::TableSpec& spec, const std::optional<SegmentArgs>& segment) {
  std::unique_ptr<store::Segment> memory;
  if (segment) {
    const auto& [path, identity, huge, keep] = *segment;
    const nb::gil_scoped_release unlocked;
    memory = std::make_unique<store::Segment>(store::SegmentSpec{path, identity, huge, keep});
  }
  return new RamTier(spec, std::move(memory));
}

std::size_t find(const RamTier& tier, Batch& batch, const std::optional<Rows>& out, bool per_unique, int threads) {
  check_threads(threads);
  if (out) check_shape("find: out", *out, {rows_of(batch, per_unique), tier.layout().dim()});
  const nb::gil_scoped_release unlocked;
  return tier.find(batch, out ? out->data() : nullptr, per(per_unique), threads);
}

std::size_t find_or_init(RamTier& tier, Batch& batch, const std::optional<Rows>& out, bool per_unique, bool seen,
                         const std::optional<std::uint64_t>& samples, const std::vector<const Batch*>& pinned,
                         int threads) {
  check_threads(threads);
  if (out) check_shape("find_or_init: out", *out, {rows_of(batch, per_unique), tier.layout().dim()});
  check_plans("find_or_init: pinned", pinned);
  const nb::gil_scoped_release unlocked;
  return tier.find_or_init(batch, out ? out->data() : nullptr, per(per_unique), {seen, samples}, threads, pinned);
}

void read_rows(const RamTier& tier, Batch& batch, const Rows& out, bool per_unique, const std::optional<Flags>& only,
               bool as_found, int threads) {
  check_threads(threads);
  check_shape("read_rows: out", out, {rows_of(batch, per_unique), tier.layout().dim()});
  const store::Selection selected = selection("read_rows", batch, only, as_found);
  const nb::gil_scoped_release unlocked;
  tier.read(batch, out.data(), per(per_unique), selected, threads);
}

using Counts = std::tuple<std::size_t, std::size_t, std::size_t, std::size_t, std::size_t>;

Counts counts(const store::Applied& done) {
  return {done.rows, done.refused, done.absent, done.weightless, done.unadmitted};
}

Counts apply(RamTier& tier, Batch& batch, const ConstRows& gradients, const std::optional<Weights>& weights,
             const std::optional<Integers>& rows, bool per_unique, std::uint64_t step, std::uint64_t samples,
             double lr_scale, const std::optional<Flags>& only, bool as_found, int threads) {
  const std::size_t expected = rows_of(batch, per_unique);
  check_threads(threads);
  check_shape("apply: gradients", gradients, {rows ? gradients.shape(0) : expected, tier.layout().dim()});
  demand(!per_unique || (!weights && !rows), "apply: gradients per unique key take neither weights nor rows");
  demand(!weights || weights->shape(0) == expected, "apply: weights must hold one number per key");
  demand(!rows || rows->shape(0) == expected, "apply: rows must hold one number per key");
  const store::Selection selected = selection("apply", batch, only, as_found);
  const nb::gil_scoped_release unlocked;
  thread_local store::Scratch<std::uint32_t> rows_scratch;
  std::span<const std::uint32_t> named;
  if (rows) named = store::copied(span_of(*rows), rows_scratch);
  store::check_below("apply", "rows", named, gradients.shape(0));
  const auto done =
      tier.apply(batch, {gradients.data(), weights ? weights->data() : nullptr, rows ? named.data() : nullptr},
                 per(per_unique), {step, samples, lr_scale}, threads, selected);
  return counts(done);
}

Counts add(RamTier& tier, Batch& batch, const ConstRows& values, const std::optional<ConstRows>& state,
           const std::optional<Integers>& clocks, std::uint64_t step, std::uint64_t samples, int threads) {
  check_threads(threads);
  check_shape("add: values", values, {batch.size(), tier.layout().dim()});
  if (state) check_shape("add: state", *state, {batch.size(), tier.layout().state_dim()});
  demand(!clocks || clocks->shape(0) == batch.size(), "add: clocks must hold one number per key");
  demand(!clocks || tier.layout().has(store::kClock), "add: this table keeps no clocks");
  const nb::gil_scoped_release unlocked;
  const auto done = tier.add(batch, values.data(), state ? state->data() : nullptr, clocks ? clocks->data() : nullptr,
                             {step, samples}, threads);
  return counts(done);
}

std::size_t put(RamTier& tier, Batch& batch, const ConstRows& values, const std::optional<ConstRows>& state,
                const Fields& fields, const std::vector<const Batch*>& pinned, int threads) {
  check_threads(threads);
  check_plans("put: pinned", pinned);
  const InColumns in("put", tier, batch.size(), values, state, fields);
  const nb::gil_scoped_release unlocked;
  return tier.put(batch, in.columns(), threads, pinned);
}

// Keys, values, state, fields.
using PutColumns = std::tuple<Keys, ConstRows, std::optional<ConstRows>, Fields>;

std::size_t put_parts(RamTier& tier, const std::vector<PutColumns>& given, int threads) {
  check_threads(threads);
  std::vector<InColumns> kept;
  std::vector<store::RowsPart> parts;
  for (const auto& [keys, values, state, fields] : given) {
    kept.emplace_back("put_parts", tier, keys.size(), values, state, fields);
    store::Columns columns = kept.back().columns();
    columns.keys = const_cast<Key*>(keys.data());
    parts.push_back({columns, keys.size()});
  }
  const nb::gil_scoped_release unlocked;
  return tier.put(parts, threads);
}

void reserve(RamTier& tier, std::size_t rows, int threads) {
  check_threads(threads);
  const nb::gil_scoped_release unlocked;
  tier.reserve(rows, threads);
}

void read(const RamTier& tier, Batch& batch, const std::string& field, const Array<std::uint32_t, 1>& out,
          int threads) {
  check_threads(threads);
  demand(out.shape(0) == batch.size(), "read: out must hold one number per key");
  const auto number = static_cast<store::Field>(field_number(tier, field));
  const nb::gil_scoped_release unlocked;
  tier.read(batch, number, out.data(), threads);
}

void first_values(const RamTier& tier, const Keys& keys, const Rows& out, int threads) {
  check_threads(threads);
  check_shape("first_values: out", out, {keys.shape(0), tier.layout().dim()});
  const nb::gil_scoped_release unlocked;
  tier.first_values({keys.data(), keys.size()}, out.data(), threads);
}

std::tuple<std::size_t, std::uint64_t> export_rows(const RamTier& tier, std::uint64_t cursor,
                                                   const Array<std::uint64_t, 1>& keys, const Rows& values,
                                                   const Rows& state, const Fields& fields) {
  const OutColumns out(tier, keys, values, state, fields);
  const nb::gil_scoped_release unlocked;
  const std::size_t written = tier.export_rows(cursor, out.rows(), out.columns());
  return {written, cursor};
}

void read_columns(const RamTier& tier, Batch& batch, const Array<std::uint64_t, 1>& keys, const Rows& values,
                  const Rows& state, const Fields& fields, int threads) {
  check_threads(threads);
  const OutColumns out(tier, keys, values, state, fields);
  demand(out.rows() == batch.size(), "read_columns: columns must have room for exactly the keys of the batch");
  const nb::gil_scoped_release unlocked;
  tier.read(batch, out.columns(), threads);
}

std::size_t preview_evictions(RamTier& tier, Batch& batch, bool lookup, bool seen,
                              const std::optional<std::uint64_t>& samples, const std::vector<const Batch*>& pinned,
                              int threads) {
  check_threads(threads);
  check_plans("preview_evictions: pinned", pinned);
  const nb::gil_scoped_release unlocked;
  const std::optional<store::Sight> sight = lookup ? std::optional(store::Sight{seen, samples}) : std::nullopt;
  return tier.preview_evictions(batch, sight, threads, pinned);
}

void evicted(const RamTier& tier, const Batch& batch, const Array<std::uint64_t, 1>& keys, const Rows& values,
             const Rows& state, const Fields& fields) {
  const OutColumns out(tier, keys, values, state, fields);
  demand(out.rows() == tier.evicted_rows(batch), "evicted: columns must have room for exactly the evicted rows");
  const nb::gil_scoped_release unlocked;
  tier.evicted(batch, out.columns());
}

nb::bytes as_bytes(const std::vector<Key>& keys) { return nb::bytes(keys.data(), keys.size() * sizeof(Key)); }

std::tuple<nb::bytes, bool> take_gone_keys(RamTier& tier) {
  std::vector<Key> keys;
  bool whole;
  {
    const nb::gil_scoped_release unlocked;
    whole = tier.take_gone_keys(keys);
  }
  return {as_bytes(keys), whole};
}

nb::bytes eviction_order(const RamTier& tier, std::size_t partition) {
  demand(partition >> tier.partitions_log2() == 0, "eviction_order: there is no such partition");
  std::vector<Key> keys;
  {
    const nb::gil_scoped_release unlocked;
    keys = tier.eviction_order(partition);
  }
  return as_bytes(keys);
}

nb::typed<nb::dict, std::string, std::uint64_t> stats(const RamTier& tier) {
  store::Stats found;
  {
    const nb::gil_scoped_release unlocked;
    found = tier.stats();
  }
  nb::dict out;
  out["rows"] = found.rows;
  out["slab_bytes"] = found.slab_bytes;
  out["index_bytes"] = found.index_bytes;
  out["admission_bytes"] = found.admission_bytes;
  out["bytes"] = found.bytes;
  out["splits"] = found.splits;
  out["created"] = found.counts.created;
  out["erased"] = found.counts.erased;
  out["evicted"] = found.counts.evicted;
  out["expired"] = found.counts.expired;
  out["turned_away"] = found.counts.turned_away;
  out["saturated"] = found.counts.saturated;
  out["refused"] = found.refused;
  out["absent"] = found.absent;
  out["unadmitted"] = found.unadmitted;
  return out;
}

}  // namespace

void bind_table(nb::module_& m) {
  nb::class_<store::TableClock>(m, "TableClock");
  nb::class_<RamTier> table(m, "RamTier");
  table.def(nb::new_(&make_tier), "spec"_a, "segment"_a.none())
      .def_prop_ro("samples", &RamTier::samples)
      .def("clock", &RamTier::clock)
      .def("restore_clock", &RamTier::restore_clock, "clock"_a)
      .def("__len__", &RamTier::size, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("counts_occurrences", &RamTier::counts_occurrences)
      .def_prop_ro("state_dim", [](const RamTier& tier) { return tier.layout().state_dim(); })
      .def(
          "batch",
          [](const RamTier& tier, const Keys& keys, int threads) {
            check_threads(threads);
            const nb::gil_scoped_release unlocked;
            return tier.batch({keys.data(), keys.size()}, threads);
          },
          "keys"_a.noconvert(), "threads"_a)
      .def("find", &find, "batch"_a, "out"_a.noconvert().none(), "per_unique"_a, "threads"_a)
      .def("find_or_init", &find_or_init, "batch"_a, "out"_a.noconvert().none(), "per_unique"_a, "seen"_a,
           "samples"_a.none(), "pinned"_a, "threads"_a)
      .def("read_rows", &read_rows, "batch"_a, "out"_a.noconvert(), "per_unique"_a, "only"_a.noconvert().none(),
           "as_found"_a, "threads"_a)
      .def("apply", &apply, "batch"_a, "gradients"_a.noconvert(), "weights"_a.noconvert().none(),
           "rows"_a.noconvert().none(), "per_unique"_a, "step"_a, "samples"_a, "lr_scale"_a,
           "only"_a.noconvert().none(), "as_found"_a, "threads"_a)
      .def("add", &add, "batch"_a, "values"_a.noconvert(), "state"_a.noconvert().none(), "clocks"_a.noconvert().none(),
           "step"_a, "samples"_a, "threads"_a)
      .def("reserve", &reserve, "rows"_a, "threads"_a)
      .def("put", &put, "batch"_a, "values"_a.noconvert(), "state"_a.noconvert().none(), "fields"_a, "pinned"_a,
           "threads"_a)
      .def("put_parts", &put_parts, "parts"_a.noconvert(), "threads"_a)
      .def("read", &read, "batch"_a, "field"_a, "out"_a.noconvert(), "threads"_a)
      .def(
          "touch",
          [](RamTier& tier, Batch& batch, const std::optional<std::uint64_t>& samples, int threads) {
            check_threads(threads);
            const nb::gil_scoped_release unlocked;
            return tier.touch(batch, {true, samples}, threads);
          },
          "batch"_a, "samples"_a.none(), "threads"_a)
      .def(
          "expire",
          [](RamTier& tier, const std::optional<std::uint64_t>& samples, int threads) {
            check_threads(threads);
            const nb::gil_scoped_release unlocked;
            return tier.expire(samples, threads);
          },
          "samples"_a.none(), "threads"_a)
      .def("read_columns", &read_columns, "batch"_a, "keys"_a.noconvert(), "values"_a.noconvert(),
           "state"_a.noconvert(), "fields"_a, "threads"_a)
      .def("preview_evictions", &preview_evictions, "batch"_a, "lookup"_a, "seen"_a, "samples"_a.none(), "pinned"_a,
           "threads"_a)
      .def("evicted_rows", &RamTier::evicted_rows, "batch"_a)
      .def("evicted", &evicted, "batch"_a, "keys"_a.noconvert(), "values"_a.noconvert(), "state"_a.noconvert(),
           "fields"_a)
      .def("take_gone_keys", &take_gone_keys)
      .def("eviction_order", &eviction_order, "partition"_a)
      .def(
          "erase",
          [](RamTier& tier, Batch& batch, int threads) {
            check_threads(threads);
            const nb::gil_scoped_release unlocked;
            return tier.erase(batch, threads);
          },
          "batch"_a, "threads"_a)
      .def("first_values", &first_values, "keys"_a.noconvert(), "out"_a.noconvert(), "threads"_a)
      .def("export_rows", &export_rows, "cursor"_a, "keys"_a.noconvert(), "values"_a.noconvert(), "state"_a.noconvert(),
           "fields"_a)
      .def("stats", &stats)
      .def("verify", &RamTier::verify, nb::call_guard<nb::gil_scoped_release>());
  bind_table_segment(table);
  bind_cut(table);
  bind_cache(table);
}

}  // namespace hotrow::bind
