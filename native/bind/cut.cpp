// Cuts of a table in hotrow._native.RamTier; hotrow.store.cut is their Python face.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include <tuple>
#include <utility>

#include "bind/columns.h"

namespace hotrow::bind {
namespace {

using store::Key;
using store::RamTier;

void check_partition(const std::string& who, const RamTier& tier, std::size_t partition) {
  demand(partition >> tier.partitions_log2() == 0, who + ": there is no such partition");
}

std::tuple<std::size_t, std::size_t, std::uint64_t> begin_cut(RamTier& tier, bool changed_only) {
  const nb::gil_scoped_release unlocked;
  const store::CutFacts facts = tier.begin_cut(changed_only);
  return {facts.rows, facts.changed_rows, facts.samples};
}

std::size_t cut_rows(RamTier& tier, const HostArray<std::uint64_t, 1>& keys, const HostArray<float, 2>& values,
                     const HostArray<float, 2>& state, const Fields& fields) {
  const OutColumns out(tier, keys, values, state, fields);
  const nb::gil_scoped_release unlocked;
  return tier.cut_rows(out.rows(), out.columns());
}

nb::bytes cut_removed(RamTier& tier) {
  std::vector<Key> keys;
  {
    const nb::gil_scoped_release unlocked;
    keys = tier.cut_removed();
  }
  return nb::bytes(keys.data(), keys.size() * sizeof(Key));
}

// Keys and counts, as bytes.
std::pair<nb::bytes, nb::bytes> cut_waiting(const RamTier& tier, std::size_t partition) {
  check_partition("cut_waiting", tier, partition);
  std::vector<Key> keys;
  std::vector<std::uint32_t> counts;
  {
    const nb::gil_scoped_release unlocked;
    for (const auto& [key, count] : tier.cut_waiting(partition)) {
      keys.push_back(key);
      counts.push_back(count);
    }
  }
  return {nb::bytes(keys.data(), keys.size() * sizeof(Key)),
          nb::bytes(counts.data(), counts.size() * sizeof(std::uint32_t))};
}

nb::bytes cut_filter(const RamTier& tier, std::size_t partition) {
  check_partition("cut_filter", tier, partition);
  std::vector<std::uint8_t> filter;
  {
    const nb::gil_scoped_release unlocked;
    filter = tier.cut_filter(partition);
  }
  return nb::bytes(filter.data(), filter.size());
}

void restore_waiting(RamTier& tier, const HostArray<const std::uint64_t, 1>& keys,
                     const HostArray<const std::uint32_t, 1>& counts) {
  check_shape("restore_waiting: counts", counts, {keys.shape(0)});
  demand(tier.counts_waiting(), "restore_waiting: the table counts no keys exactly");
  for (std::size_t i = 0; i < counts.size(); ++i)
    demand(counts.data()[i] != 0, "restore_waiting: counts holds a 0: keys that wait have come");
  const nb::gil_scoped_release unlocked;
  tier.restore_waiting(span_of(keys), counts.data());
}

void restore_filter(RamTier& tier, std::size_t partition, const HostArray<const std::uint8_t, 1>& filter) {
  check_partition("restore_filter", tier, partition);
  check_shape("restore_filter: filter", filter, {tier.filter_bytes()});
  const nb::gil_scoped_release unlocked;
  tier.restore_filter(partition, span_of(filter));
}

}  // namespace

void bind_cut(nb::class_<RamTier>& tier) {
  tier.def("track_changes", &RamTier::track_changes, "on"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("begin_cut", &begin_cut, "changed_only"_a)
      .def("cut_rows", &cut_rows, "keys"_a.noconvert(), "values"_a.noconvert(), "state"_a.noconvert(), "fields"_a)
      .def("cut_removed", &cut_removed)
      .def("cut_waiting", &cut_waiting, "partition"_a)
      .def("cut_filter", &cut_filter, "partition"_a)
      .def("cut_copied_bytes", &RamTier::cut_copied_bytes, nb::call_guard<nb::gil_scoped_release>())
      .def("end_cut", &RamTier::end_cut, "saved"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("forget_waiting", &RamTier::forget_waiting, nb::call_guard<nb::gil_scoped_release>())
      .def("restore_waiting", &restore_waiting, "keys"_a.noconvert(), "counts"_a.noconvert())
      .def_prop_ro("filter_bytes", &RamTier::filter_bytes)
      .def("restore_filter", &restore_filter, "partition"_a, "filter"_a.noconvert());
}

}  // namespace hotrow::bind
