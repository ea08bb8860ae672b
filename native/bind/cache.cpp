// Rows of a cache in hotrow._native.RamTier; hotrow.cache.rows is their Python face.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <span>
#include <tuple>

#include "bind/columns.h"
#include "store/ram_tier.h"

namespace hotrow::bind {
namespace {

using store::Batch;
using store::Key;
using store::RamTier;
using Numbers = HostArray<std::uint32_t, 1>;
using OutKeys = HostArray<std::uint64_t, 1>;
using ConstNumbers = HostArray<const std::uint32_t, 1>;
using Slots = HostArray<std::int64_t, 1>;
using Matrix = HostArray<float, 2>;
using ConstMatrix = HostArray<const float, 2>;

void check_cached(const std::string& who, const RamTier& tier) {
  demand(tier.layout().keeps_base() && tier.layout().has(store::kClock), who + ": the table is not that of a cache");
}

void check_distinct(const std::string& who, const Batch& batch) {
  demand(batch.unique() == batch.size(), who + ": a key stands in the batch twice");
}

using StateCounts = std::tuple<std::size_t, std::size_t, std::size_t, std::size_t, std::size_t>;

StateCounts find_places(RamTier& tier, Batch& batch, std::uint32_t use, std::uint64_t staleness, const OutKeys& keys,
                        const Numbers& clocks, const Numbers& uniques, int threads) {
  check_threads(threads);
  check_cached("find_places", tier);
  check_distinct("find_places", batch);
  const std::size_t count = batch.size();
  const bool fits = keys.size() == count && clocks.size() == count && uniques.size() == count;
  demand(fits, "find_places: keys, clocks and uniques must hold one entry per key");
  const nb::gil_scoped_release unlocked;
  const store::CachedKeys out{keys.data(), clocks.data(), uniques.data()};
  const store::CachedCounts found = tier.find_places(batch, use, staleness, out, threads);
  return {found.valid, found.absent, found.ahead, found.awaited, found.beyond};
}

std::size_t read_placed(const RamTier& tier, Batch& batch, const Matrix& out, float otherwise, int threads) {
  check_threads(threads);
  check_cached("read_placed", tier);
  check_distinct("read_placed", batch);
  check_shape("read_placed: out", out, {batch.size(), tier.layout().dim()});
  const nb::gil_scoped_release unlocked;
  return tier.read_placed(batch, out.data(), otherwise, threads);
}

std::span<const std::uint32_t> uniques_of(const std::string& who, const Batch& batch, const ConstNumbers& uniques) {
  const std::span<const std::uint32_t> of{uniques.data(), uniques.size()};
  const bool known = std::ranges::all_of(of, [&](std::uint32_t unique) { return unique < batch.unique(); });
  demand(known, who + ": uniques must be numbers of the batch's unique keys");
  return of;
}

void place_slots(const RamTier& tier, Batch& batch, const ConstNumbers& uniques, const Slots& slots,
                 const Numbers& versions, int threads) {
  check_threads(threads);
  check_cached("place_slots", tier);
  const auto of = uniques_of("place_slots", batch, uniques);
  const bool fits = slots.size() == of.size() && versions.size() == of.size();
  demand(fits, "place_slots: slots and versions must hold one number per key");
  const nb::gil_scoped_release unlocked;
  tier.place_slots(batch, of, slots.data(), versions.data(), threads);
}

std::uint32_t announce(RamTier& tier, Batch& batch, int threads) {
  check_threads(threads);
  demand(tier.layout().has(store::kNextUse), "announce: the table does not evict by next use");
  const nb::gil_scoped_release unlocked;
  return tier.announce(batch, threads);
}

void withdraw(RamTier& tier, Batch& batch, std::uint32_t use, int threads) {
  check_threads(threads);
  demand(tier.layout().has(store::kNextUse), "withdraw: the table does not evict by next use");
  const nb::gil_scoped_release unlocked;
  tier.withdraw(batch, use, threads);
}

void check_changes(const std::string& who, const RamTier& tier, std::size_t rows, const Matrix& values,
                   const Matrix& state, const Numbers& clocks, const Numbers& updates, const Numbers& periods) {
  check_cached(who, tier);
  check_shape(who + ": values", values, {rows, tier.layout().dim()});
  check_shape(who + ": state", state, {rows, tier.layout().state_dim()});
  const bool fits = clocks.size() == rows && updates.size() == rows && periods.size() == rows;
  demand(fits, who + ": clocks, updates and periods must hold one number per row");
}

void take_changes(RamTier& tier, Batch& batch, const Matrix& values, const Matrix& state, const Numbers& clocks,
                  const Numbers& updates, const Numbers& periods, const HostArray<bool, 1>& changed,
                  const std::optional<Slots>& slots, int threads) {
  check_threads(threads);
  check_changes("take_changes", tier, batch.size(), values, state, clocks, updates, periods);
  check_distinct("take_changes", batch);
  demand(changed.size() == batch.size(), "take_changes: changed must hold one flag per key");
  demand(!slots || slots->size() == batch.size(), "take_changes: slots must hold one number per key");
  const nb::gil_scoped_release unlocked;
  tier.take_changes(batch,
                    {nullptr, values.data(), state.data(), clocks.data(), updates.data(), periods.data(),
                     changed.data(), batch.size(), slots ? slots->data() : nullptr},
                    threads);
}

std::tuple<std::size_t, std::size_t> make_places(RamTier& tier, Batch& batch, std::uint32_t use,
                                                 const std::vector<const Batch*>& pinned, const OutKeys& keys,
                                                 const Matrix& values, const Matrix& state, const Numbers& clocks,
                                                 const Numbers& updates, const Numbers& periods,
                                                 const std::optional<Slots>& slots, int threads) {
  check_threads(threads);
  check_changes("make_places", tier, keys.size(), values, state, clocks, updates, periods);
  check_distinct("make_places", batch);
  demand(batch.looked_up, "make_places: the batch was not looked up: call find_places first");
  demand(!slots || slots->size() == keys.size(), "make_places: slots must hold one number per key");
  for (const Batch* plan : pinned) demand(plan != nullptr, "make_places: pinned holds None: give plans of this table");
  const nb::gil_scoped_release unlocked;
  const auto [changes, beyond] =
      tier.make_places(batch, use, pinned,
                       {keys.data(), values.data(), state.data(), clocks.data(), updates.data(), periods.data(),
                        nullptr, keys.size(), slots ? slots->data() : nullptr},
                       threads);
  return {changes, beyond};
}

void fill(RamTier& tier, Batch& batch, const ConstNumbers& uniques, const ConstMatrix& values, const ConstMatrix& state,
          const ConstNumbers& clocks, const std::optional<ConstNumbers>& periods, int threads) {
  check_threads(threads);
  check_cached("fill", tier);
  const auto of = uniques_of("fill", batch, uniques);
  check_shape("fill: values", values, {of.size(), tier.layout().dim()});
  check_shape("fill: state", state, {of.size(), tier.layout().state_dim()});
  demand(clocks.size() == of.size(), "fill: clocks must hold one number per key");
  demand(!periods || periods->size() == of.size(), "fill: periods must hold one number per key");
  const nb::gil_scoped_release unlocked;
  tier.fill(batch, of, {values.data(), state.data(), clocks.data(), periods ? periods->data() : nullptr}, threads);
}

Batch batch_of_distinct(const RamTier& tier, const HostArray<const std::uint64_t, 1>& keys) {
  const nb::gil_scoped_release unlocked;
  return tier.batch_of_distinct({keys.data(), keys.size()});
}

nb::bytes changed_keys(const RamTier& tier) {
  std::vector<Key> keys;
  {
    const nb::gil_scoped_release unlocked;
    keys = tier.changed_keys();
  }
  return nb::bytes(keys.data(), keys.size() * sizeof(Key));
}

}  // namespace

void bind_cache(nb::class_<RamTier>& tier) {
  tier.def("batch_of_distinct", &batch_of_distinct, "keys"_a.noconvert())
      .def("find_places", &find_places, "batch"_a, "use"_a, "staleness"_a, "keys"_a.noconvert(), "clocks"_a.noconvert(),
           "uniques"_a.noconvert(), "threads"_a)
      .def("make_places", &make_places, "batch"_a, "use"_a, "pinned"_a, "keys"_a.noconvert(), "values"_a.noconvert(),
           "state"_a.noconvert(), "clocks"_a.noconvert(), "updates"_a.noconvert(), "periods"_a.noconvert(),
           "slots"_a.noconvert().none(), "threads"_a)
      .def("place_slots", &place_slots, "batch"_a, "uniques"_a.noconvert(), "slots"_a.noconvert(),
           "versions"_a.noconvert(), "threads"_a)
      .def("read_placed", &read_placed, "batch"_a, "out"_a.noconvert(), "otherwise"_a, "threads"_a)
      .def("announce", &announce, "batch"_a, "threads"_a)
      .def("withdraw", &withdraw, "batch"_a, "use"_a, "threads"_a)
      .def("take_changes", &take_changes, "batch"_a, "values"_a.noconvert(), "state"_a.noconvert(),
           "clocks"_a.noconvert(), "updates"_a.noconvert(), "periods"_a.noconvert(), "changed"_a.noconvert(),
           "slots"_a.noconvert().none(), "threads"_a)
      .def("fill", &fill, "batch"_a, "uniques"_a.noconvert(), "values"_a.noconvert(), "state"_a.noconvert(),
           "clocks"_a.noconvert(), "periods"_a.noconvert().none(), "threads"_a)
      .def_prop_ro("changed_rows", &RamTier::changed_rows)
      .def("changed_keys", &changed_keys);
}

}  // namespace hotrow::bind
