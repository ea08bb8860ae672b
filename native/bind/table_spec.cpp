// hotrow._native.TableSpec: what a table is, in the words of the store. hotrow.store.native_spec fills it in.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind/arrays.h"
#include "store/order.h"
#include "store/ram_tier.h"

namespace hotrow::bind {
namespace {

using store::Optimizer;

// Sizes of rows, chunks and ticks are computed without further checks: these bounds keep them far from overflow.
constexpr std::size_t kDimMax = 65'536;
constexpr std::uint64_t kNumberMax = std::uint64_t{1} << 62;       // of rows and samples
constexpr std::uint64_t kFilterBytesMax = std::uint64_t{1} << 46;  // more than any machine has

// "dim=0: must be from 1 to 65536"
void check_range(const std::string& field, std::uint64_t value, std::uint64_t low, std::uint64_t high) {
  demand(value >= low && value <= high,
         field + "=" + std::to_string(value) + ": must be from " + std::to_string(low) + " to " + std::to_string(high));
}

void check_choice(const std::string& field, int value, int last) {
  demand(value >= 0 && value <= last,
         field + "=" + std::to_string(value) + ": must be from 0 to " + std::to_string(last));
}

store::TableSpec table_spec(std::size_t dim, int type, const Optimizer& optimizer, int init_kind, float init_amount,
                            std::uint64_t stream, const store::LifeSpec& life, bool clock, bool last_seen,
                            int partitions_log2, bool keeps_base) {
  check_range("dim", dim, 1, kDimMax);
  check_choice("type", type, 2);
  check_choice("partitions_log2", partitions_log2, store::kPartitionBits);
  check_choice("init_kind", init_kind, 2);
  check_range("life.capacity_rows", life.capacity_rows, 0, kNumberMax);
  check_range("life.expiry", life.expiry, 0, kNumberMax);
  check_range("life.admission.filter_bytes", life.admission.filter_bytes, 0, kFilterBytesMax);
  demand(life.capacity_rows == 0 || life.capacity_rows >> partitions_log2 > 0,
         "capacity must be at least one row per partition");
  demand((life.eviction == store::Eviction::none) == (life.capacity_rows == 0),
         "a capacity and what happens at it belong together");
  check_range("life.hot", life.hot, 1, store::Order::kFrequencies);
  demand(!keeps_base || type == 0, "rows with a base are float32");
  return {dim,       static_cast<store::RowType>(type),
          optimizer, {static_cast<store::InitKind>(init_kind), init_amount, stream},
          life,      clock,
          last_seen, partitions_log2,
          keeps_base};
}

std::vector<std::string> fields_of(const store::Layout& layout) {
  std::vector<std::string> names;
  for (int field = 0; field < store::kExportedFields; ++field)
    if (layout.has(store::Field(field))) names.emplace_back(store::kFieldNames[field]);
  return names;
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
      .def_rw("workers", &Optimizer::workers)
      .def_rw("beta1", &Optimizer::beta1)
      .def_rw("beta2", &Optimizer::beta2)
      .def_rw("correct_by_row", &Optimizer::correct_by_row)
      .def_rw("beta", &Optimizer::beta)
      .def_rw("l1", &Optimizer::l1)
      .def_rw("swap_period", &Optimizer::swap_period)
      .def_rw("swap_decay", &Optimizer::swap_decay)
      .def_rw("swap_floor", &Optimizer::swap_floor);
}

void bind_life(nb::module_& m) {
  nb::enum_<store::Eviction>(m, "Eviction")
      .value("none", store::Eviction::none)
      .value("lru", store::Eviction::lru)
      .value("lfu", store::Eviction::lfu)
      .value("refuse", store::Eviction::refuse)
      .value("light_lfu", store::Eviction::light_lfu)
      .value("ahead", store::Eviction::ahead);
  nb::enum_<store::AdmissionKind>(m, "AdmissionKind")
      .value("everyone", store::AdmissionKind::everyone)
      .value("at_least", store::AdmissionKind::at_least)
      .value("chance", store::AdmissionKind::chance);
  nb::class_<store::AdmissionSpec>(m, "Admission")
      .def(nb::init<>())
      .def_rw("kind", &store::AdmissionSpec::kind)
      .def_rw("count", &store::AdmissionSpec::count)
      .def_rw("filter_bytes", &store::AdmissionSpec::filter_bytes)
      .def_rw("probability", &store::AdmissionSpec::probability);
  nb::class_<store::LifeSpec>(m, "Life")
      .def(nb::init<>())
      .def_rw("capacity_rows", &store::LifeSpec::capacity_rows)
      .def_rw("eviction", &store::LifeSpec::eviction)
      .def_rw("hot", &store::LifeSpec::hot)
      .def_rw("expiry", &store::LifeSpec::expiry)
      .def_rw("admission", &store::LifeSpec::admission)
      .def_rw("default_value", &store::LifeSpec::default_value)
      .def_rw("keep_evicted", &store::LifeSpec::keep_evicted)
      .def_rw("evicted_stay", &store::LifeSpec::evicted_stay)
      .def_rw("gone_keys_max", &store::LifeSpec::gone_keys_max);
}

}  // namespace

void bind_table_spec(nb::module_& m) {
  bind_optimizer(m);
  bind_life(m);
  nb::class_<store::TableSpec>(m, "TableSpec")
      .def(nb::new_(&table_spec), "dim"_a, "type"_a, "optimizer"_a, "init_kind"_a, "init_amount"_a, "stream"_a,
           "life"_a, "clock"_a, "last_seen"_a, "partitions_log2"_a, "keeps_base"_a = false)
      .def_prop_ro("fields", [](const store::TableSpec& spec) { return fields_of(store::layout_of(spec)); })
      .def_prop_ro("capacity_rows", [](const store::TableSpec& spec) { return spec.life.capacity_rows; })
      .def("rows_within", &store::RamTier::rows_within, "bytes"_a, "in_segment"_a);
}

}  // namespace hotrow::bind
