// hotrow._native.RamTier and Batch. The Python face (hotrow.store.ram) has told a user's mistakes in sentences before a
// call gets here; the checks below keep memory safe whoever calls.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "bind/arrays.h"
#include "store/ram_tier.h"

namespace hotrow::bind {
namespace {

using store::Batch;
using store::Key;
using store::Optimizer;
using store::Per;
using store::RamTier;

template <typename T, int dims>
using Array = HostArray<T, dims>;
using Keys = Array<const std::uint64_t, 1>;
using Rows = Array<float, 2>;
using ConstRows = Array<const float, 2>;
using Weights = Array<const float, 1>;
using Integers = Array<const std::uint32_t, 1>;

void demand(bool held, const char* sentence) {
  if (!held) throw nb::value_error(sentence);
}

std::size_t rows_of(const Batch& batch, bool per_unique) { return per_unique ? batch.unique() : batch.size(); }
Per per(bool per_unique) { return per_unique ? Per::unique : Per::key; }

RamTier* make_tier(std::size_t dim, const Optimizer& optimizer, int init_kind, float init_amount, std::uint64_t stream,
                   bool clock, bool last_seen, int partitions_log2) {
  demand(dim > 0, "dim must be 1 or more");
  demand(partitions_log2 >= 0 && partitions_log2 <= store::kPartitionBits, "partitions must be a power of two to 1024");
  demand(init_kind >= 0 && init_kind <= 2, "unknown kind of first values");
  return new RamTier({dim,
                      optimizer,
                      {static_cast<store::InitKind>(init_kind), init_amount, stream},
                      clock,
                      last_seen,
                      partitions_log2});
}

std::size_t find(const RamTier& tier, Batch& batch, const std::optional<Rows>& out, bool per_unique, int threads) {
  if (out) demand_shape("find: out", *out, {rows_of(batch, per_unique), tier.layout().dim()});
  const nb::gil_scoped_release unlocked;
  return tier.find(batch, out ? out->data() : nullptr, per(per_unique), threads);
}

void find_or_init(RamTier& tier, Batch& batch, const std::optional<Rows>& out, bool per_unique, int threads) {
  if (out) demand_shape("find_or_init: out", *out, {rows_of(batch, per_unique), tier.layout().dim()});
  const nb::gil_scoped_release unlocked;
  tier.find_or_init(batch, out ? out->data() : nullptr, per(per_unique), threads);
}

using Counts = std::tuple<std::size_t, std::size_t, std::size_t, std::size_t>;

Counts counts(const store::Applied& done) { return {done.rows, done.refused, done.absent, done.weightless}; }

Counts apply(RamTier& tier, Batch& batch, const ConstRows& gradients, const std::optional<Weights>& weights,
             const std::optional<Integers>& rows, bool per_unique, std::uint64_t step, std::uint64_t samples,
             int threads) {
  const std::size_t expected = rows_of(batch, per_unique);
  demand_shape("apply: gradients", gradients, {rows ? gradients.shape(0) : expected, tier.layout().dim()});
  demand(!per_unique || (!weights && !rows), "apply: gradients per unique key take neither weights nor rows");
  demand(!weights || weights->shape(0) == expected, "apply: weights must hold one number per key");
  demand(!rows || rows->shape(0) == expected, "apply: rows must hold one number per key");
  const nb::gil_scoped_release unlocked;
  if (rows)
    for (std::size_t i = 0; i < expected; ++i)
      if (rows->data()[i] >= gradients.shape(0))
        throw std::out_of_range("apply: rows names a gradient row that is not there");
  const auto done =
      tier.apply(batch, {gradients.data(), weights ? weights->data() : nullptr, rows ? rows->data() : nullptr},
                 per(per_unique), {step, samples}, threads);
  return counts(done);
}

Counts add(RamTier& tier, Batch& batch, const ConstRows& values, const std::optional<ConstRows>& state,
           const std::optional<Integers>& clocks, std::uint64_t step, std::uint64_t samples, int threads) {
  demand_shape("add: values", values, {batch.size(), tier.layout().dim()});
  if (state) demand_shape("add: state", *state, {batch.size(), tier.layout().state_dim()});
  demand(!clocks || clocks->shape(0) == batch.size(), "add: clocks must hold one number per key");
  demand(!clocks || tier.layout().has(store::kClock), "add: this table keeps no clocks");
  const nb::gil_scoped_release unlocked;
  const auto done = tier.add(batch, values.data(), state ? state->data() : nullptr, clocks ? clocks->data() : nullptr,
                             {step, samples}, threads);
  return counts(done);
}

int field_number(const RamTier& tier, const std::string& name) {
  for (int field = 0; field < store::kFields; ++field)
    if (name == store::kFieldNames[field] && tier.layout().has(store::Field(field))) return field;
  throw nb::value_error(("this table's rows have no field '" + name + "'").c_str());
}

void put(RamTier& tier, Batch& batch, const ConstRows& values, const std::optional<ConstRows>& state,
         const nb::dict& fields, int threads) {
  demand_shape("put: values", values, {batch.size(), tier.layout().dim()});
  if (state) demand_shape("put: state", *state, {batch.size(), tier.layout().state_dim()});
  store::Columns columns;
  columns.values = const_cast<float*>(values.data());  // put only reads its columns
  if (state) columns.state = const_cast<float*>(state->data());
  std::vector<Integers> kept;
  for (const auto& [name, column] : fields) {
    kept.push_back(nb::cast<Integers>(column));
    demand(kept.back().shape(0) == batch.size(), "put: a field must hold one number per key");
    columns.fields[field_number(tier, nb::cast<std::string>(name))] = const_cast<std::uint32_t*>(kept.back().data());
  }
  const nb::gil_scoped_release unlocked;
  tier.put(batch, columns, threads);
}

void read(const RamTier& tier, Batch& batch, const std::string& field, const Array<std::uint32_t, 1>& out,
          int threads) {
  demand(out.shape(0) == batch.size(), "read: out must hold one number per key");
  const auto number = static_cast<store::Field>(field_number(tier, field));
  const nb::gil_scoped_release unlocked;
  tier.read(batch, number, out.data(), threads);
}

void first_values(const RamTier& tier, const Keys& keys, const Rows& out, int threads) {
  demand_shape("first_values: out", out, {keys.shape(0), tier.layout().dim()});
  const nb::gil_scoped_release unlocked;
  tier.first_values({keys.data(), keys.size()}, out.data(), threads);
}

std::tuple<std::size_t, std::uint64_t> export_rows(const RamTier& tier, std::uint64_t cursor,
                                                   const Array<std::uint64_t, 1>& keys, const Rows& values,
                                                   const Rows& state, const nb::dict& fields) {
  const std::size_t most = keys.shape(0);
  demand_shape("export: values", values, {most, tier.layout().dim()});
  demand_shape("export: state", state, {most, tier.layout().state_dim()});
  store::Columns columns;
  columns.keys = keys.data();
  columns.values = values.data();
  columns.state = state.data();
  std::vector<Array<std::uint32_t, 1>> kept;
  for (const auto& [name, column] : fields) {
    kept.push_back(nb::cast<Array<std::uint32_t, 1>>(column));
    demand(kept.back().shape(0) == most, "export: a field must have room for every row");
    columns.fields[field_number(tier, nb::cast<std::string>(name))] = kept.back().data();
  }
  for (int field = 0; field < store::kFields; ++field)
    demand(!tier.layout().has(store::Field(field)) || columns.fields[field] != nullptr,
           "export: a field has no column");
  const nb::gil_scoped_release unlocked;
  const std::size_t written = tier.export_rows(cursor, most, columns);
  return {written, cursor};
}

std::vector<std::string> fields_of(const RamTier& tier) {
  std::vector<std::string> names;
  for (int field = 0; field < store::kFields; ++field)
    if (tier.layout().has(store::Field(field))) names.emplace_back(store::kFieldNames[field]);
  return names;
}

nb::dict stats(const RamTier& tier) {
  store::Stats found;
  {
    const nb::gil_scoped_release unlocked;
    found = tier.stats();
  }
  nb::dict out;
  out["rows"] = found.rows;
  out["slab_bytes"] = found.slab_bytes;
  out["index_bytes"] = found.index_bytes;
  out["splits"] = found.splits;
  out["created"] = found.created;
  out["erased"] = found.erased;
  out["refused"] = found.refused;
  out["absent"] = found.absent;
  return out;
}

void batch_keys(const Batch& batch, const Array<std::uint64_t, 1>& out) {
  demand(out.shape(0) == batch.unique(), "keys: out must hold one number per unique key");
  std::copy_n(batch.keys(), batch.unique(), out.data());
}

void batch_inverse(const Batch& batch, const Array<std::uint32_t, 1>& out) {
  demand(out.shape(0) == batch.size(), "inverse: out must hold one number per key");
  std::copy_n(batch.inverse(), batch.size(), out.data());
}

void batch_absent(const Batch& batch, const Array<bool, 1>& out) {
  demand(out.shape(0) == batch.size(), "absent_mask: out must hold one flag per key");
  demand(batch.looked_up, "absent_mask: the batch has not been looked up yet");
  for (std::size_t i = 0; i < batch.size(); ++i) out.data()[i] = batch.slots()[batch.inverse()[i]] == store::kNoRow;
}

void bind_optimizer(nb::module_& m) {
  nb::enum_<store::Rule>(m, "Rule")
      .value("sgd", store::Rule::sgd)
      .value("adagrad", store::Rule::adagrad)
      .value("rowwise_adagrad", store::Rule::rowwise_adagrad)
      .value("decayed_adagrad", store::Rule::decayed_adagrad)
      .value("adam", store::Rule::adam)
      .value("ftrl", store::Rule::ftrl);
  nb::class_<Optimizer>(m, "Optimizer")
      .def(nb::init<>())
      .def_rw("rule", &Optimizer::rule)
      .def_rw("lr", &Optimizer::lr)
      .def_rw("l2", &Optimizer::l2)
      .def_rw("decay", &Optimizer::decay)
      .def_rw("clip", &Optimizer::clip)
      .def_rw("eps", &Optimizer::eps)
      .def_rw("eps_inside", &Optimizer::eps_inside)
      .def_rw("initial", &Optimizer::initial)
      .def_rw("rate", &Optimizer::rate)
      .def_rw("beta1", &Optimizer::beta1)
      .def_rw("beta2", &Optimizer::beta2)
      .def_rw("correct_by_row", &Optimizer::correct_by_row)
      .def_rw("beta", &Optimizer::beta)
      .def_rw("l1", &Optimizer::l1)
      .def_rw("swap_period", &Optimizer::swap_period)
      .def_rw("swap_decay", &Optimizer::swap_decay)
      .def_rw("swap_floor", &Optimizer::swap_floor);
}

}  // namespace

void bind_table(nb::module_& m) {
  bind_optimizer(m);
  nb::class_<Batch>(m, "Batch")
      .def("__len__", &Batch::size)
      .def_prop_ro("unique", &Batch::unique)
      .def_prop_ro("partitions", &Batch::partitions)
      .def_ro("looked_up", &Batch::looked_up)
      .def("keys", &batch_keys, "out"_a.noconvert())
      .def("inverse", &batch_inverse, "out"_a.noconvert())
      .def("absent_mask", &batch_absent, "out"_a.noconvert());
  nb::class_<RamTier>(m, "RamTier")
      .def(nb::new_(&make_tier), "dim"_a, "optimizer"_a, "init_kind"_a, "init_amount"_a, "stream"_a, "clock"_a,
           "last_seen"_a, "partitions_log2"_a)
      .def("__len__", &RamTier::size, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("state_dim", [](const RamTier& tier) { return tier.layout().state_dim(); })
      .def_prop_ro("row_bytes", [](const RamTier& tier) { return tier.layout().row_bytes(); })
      .def_prop_ro("fields", &fields_of)
      .def(
          "batch",
          [](const RamTier& tier, const Keys& keys, int threads) {
            const nb::gil_scoped_release unlocked;
            return tier.batch({keys.data(), keys.size()}, threads);
          },
          "keys"_a.noconvert(), "threads"_a)
      .def("find", &find, "batch"_a, "out"_a.noconvert().none(), "per_unique"_a, "threads"_a)
      .def("find_or_init", &find_or_init, "batch"_a, "out"_a.noconvert().none(), "per_unique"_a, "threads"_a)
      .def("apply", &apply, "batch"_a, "gradients"_a.noconvert(), "weights"_a.noconvert().none(),
           "rows"_a.noconvert().none(), "per_unique"_a, "step"_a, "samples"_a, "threads"_a)
      .def("add", &add, "batch"_a, "values"_a.noconvert(), "state"_a.noconvert().none(), "clocks"_a.noconvert().none(),
           "step"_a, "samples"_a, "threads"_a)
      .def("put", &put, "batch"_a, "values"_a.noconvert(), "state"_a.noconvert().none(), "fields"_a, "threads"_a)
      .def("read", &read, "batch"_a, "field"_a, "out"_a.noconvert(), "threads"_a)
      .def("touch", &RamTier::touch, "batch"_a, "step"_a, "threads"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("erase", &RamTier::erase, "batch"_a, "threads"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("first_values", &first_values, "keys"_a.noconvert(), "out"_a.noconvert(), "threads"_a)
      .def("export_rows", &export_rows, "cursor"_a, "keys"_a.noconvert(), "values"_a.noconvert(), "state"_a.noconvert(),
           "fields"_a)
      .def("stats", &stats)
      .def("verify", &RamTier::verify, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace hotrow::bind
