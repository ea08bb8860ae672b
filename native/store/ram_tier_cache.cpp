// The rows of a worker's cache (HET): changes against the base, and rows that come from the server.
#include <algorithm>
#include <utility>

#include "store/ram_tier_visit.h"

namespace hotrow::store {
namespace {

// Some unique keys of a batch, and where each stands among them. Good until the thread's next choice.
struct Choice {
  const std::uint8_t* chosen;
  const std::uint32_t* places;
};

Choice choose(const Batch& batch, std::span<const std::uint32_t> uniques) {
  static thread_local Scratch<std::uint8_t> chosen_room;
  static thread_local Scratch<std::uint32_t> place_room;
  std::uint8_t* const chosen = chosen_room.take(batch.unique());
  std::uint32_t* const places = place_room.take(batch.unique());
  std::fill_n(chosen, batch.unique(), std::uint8_t{0});
  for (std::size_t i = 0; i < uniques.size(); ++i) {
    chosen[uniques[i]] = 1;
    places[uniques[i]] = static_cast<std::uint32_t>(i);
  }
  return {chosen, places};
}

}  // namespace

// Before an update, which only rows that have come get. A row of version 1 is as it was fetched.
void RamTier::keep_base(Partition& partition, std::byte* row) const {
  if (Layout::version(row) != 1) return;
  const std::size_t dim = layout_.dim(), state_dim = layout_.state_dim();
  float* const base = layout_.base(row);
  std::copy_n(layout_.value(row), dim, base);
  std::copy_n(layout_.state(row), state_dim, base + dim);
  if (layout_.has(kBasePeriod)) layout_.field(row, kBasePeriod) = layout_.field(row, kPeriod);
  ++partition.changed;
}

void RamTier::change_of(const Partition& partition, std::uint32_t slot, const ChangeColumns& out,
                        std::size_t at) const {
  const std::byte* const row = partition.slab.row(slot);
  const std::size_t dim = layout_.dim(), state_dim = layout_.state_dim();
  const bool swap = layout_.has(kPeriod);
  const float *value = layout_.value(row), *state = layout_.state(row), *base = layout_.base(row);
  const float decay = swap ? swap_factor(layout_.field(row, kBasePeriod), layout_.field(row, kPeriod)) : 1;
  float *values = out.values + at * dim, *states = out.state + at * state_dim;
  for (std::size_t i = 0; i < dim; ++i) values[i] = value[i] - base[i];
  // Own gradients alone: what other workers were expected to add, they send themselves.
  const auto workers = static_cast<float>(spec_.optimizer.workers);
  for (std::size_t i = 0; i < state_dim; ++i) states[i] = (state[i] - base[dim + i] * decay) / workers;
  out.updates[at] = Layout::version(row) - 1;
  out.clocks[at] = layout_.field(row, kClock) + out.updates[at];
  out.periods[at] = swap ? layout_.field(row, kPeriod) : 0;
  if (out.keys != nullptr) out.keys[at] = Layout::key(row);
  if (out.slots != nullptr) out.slots[at] = outside_slot(partition, slot);
}

void RamTier::take_changes(Batch& batch, const ChangeColumns& out, int threads) {
  const std::uint32_t* const places = places_of(batch);
  visit(batch, threads, {true, layout_.row_bytes()}, [&](Partition& partition, Visit& visit, Applied&) {
    const std::size_t at = places[visit.unique];
    const bool changed = visit.row != nullptr && Layout::version(visit.row) > 1;
    if (out.changed != nullptr) out.changed[at] = changed;
    if (changed) take_change(partition, batch.slots()[visit.unique], out, at);
  });
}

// The row stays, and counts as fetched as it is now.
void RamTier::take_change(Partition& partition, std::uint32_t slot, const ChangeColumns& out, std::size_t at) const {
  change_of(partition, slot, out, at);
  std::byte* const row = partition.slab.row(slot);
  layout_.field(row, kClock) = out.clocks[at];
  Layout::mark(row, 1);
  --partition.changed;
}

// Partitions take turns, so that partitions of about as many rows leave no gaps.
std::int64_t RamTier::outside_slot(const Partition& partition, std::uint32_t slot) const {
  return (std::int64_t{slot} << spec_.partitions_log2) + static_cast<std::int64_t>(partition.number);
}

void RamTier::place_slots(Batch& batch, std::span<const std::uint32_t> uniques, std::int64_t* slots,
                          std::uint32_t* versions, int threads) const {
  const auto [chosen, places] = choose(batch, uniques);
  const Access access{false, layout_.header_bytes(), {chosen}};
  visit(batch, threads, access, [&](const Partition& partition, const Visit& visit, Applied&) {
    const std::size_t at = places[visit.unique];
    slots[at] = visit.row == nullptr ? -1 : outside_slot(partition, batch.slots()[visit.unique]);
    versions[at] = visit.row == nullptr || awaited(visit.row) ? 0 : Layout::version(visit.row);
  });
}

void RamTier::fill(Batch& batch, std::span<const std::uint32_t> uniques, const FetchedRows& rows, int threads) {
  if (uniques.empty()) return;
  if (rows.periods != nullptr) advance_to(period_, *std::max_element(rows.periods, rows.periods + uniques.size()));
  const auto [chosen, places] = choose(batch, uniques);
  const Access access{true, layout_.row_bytes(), {chosen}};
  visit(batch, threads, access, [&](Partition&, Visit& visit, Applied&) {
    if (visit.row != nullptr) fill_row(visit.row, rows, places[visit.unique]);
  });
}

// The row of the server becomes the base of a row with changes, which stay on top of it. States of different SWAP
// periods are brought to the latest.
void RamTier::fill_row(std::byte* row, const FetchedRows& rows, std::size_t at) const {
  const std::size_t dim = layout_.dim(), state_dim = layout_.state_dim();
  const bool swap = layout_.has(kPeriod), changed = Layout::version(row) > 1;
  const float *server = rows.values + at * dim, *server_state = rows.state + at * state_dim;
  float *value = layout_.value(row), *state = layout_.state(row), *base = layout_.base(row);
  const std::uint32_t of_server = swap && rows.periods != nullptr ? rows.periods[at] : 0;
  layout_.field(row, kClock) = rows.clocks[at];
  if (!changed) {
    std::copy_n(server, dim, value);
    std::copy_n(server_state, state_dim, state);
    if (swap) layout_.field(row, kPeriod) = of_server;
    return;
  }
  const std::uint32_t of_row = swap ? layout_.field(row, kPeriod) : 0, to = std::max(of_row, of_server);
  const float decay_server = swap ? swap_factor(of_server, to) : 1, decay_row = swap ? swap_factor(of_row, to) : 1;
  const float decay_base = swap ? swap_factor(layout_.field(row, kBasePeriod), to) : 1;
  for (std::size_t i = 0; i < dim; ++i) {
    value[i] = server[i] + (value[i] - base[i]);
    base[i] = server[i];
  }
  for (std::size_t i = 0; i < state_dim; ++i) {
    const float fetched = server_state[i] * decay_server;
    state[i] = fetched + (state[i] * decay_row - base[dim + i] * decay_base);
    base[dim + i] = fetched;
  }
  if (swap) layout_.field(row, kPeriod) = layout_.field(row, kBasePeriod) = to;
}

std::size_t RamTier::changed_rows() const {
  std::size_t rows = 0;
  for (const auto& partition : partitions_) {
    const std::shared_lock held(partition->mutex);
    rows += partition->changed;
  }
  return rows;
}

std::vector<Key> RamTier::changed_keys() const {
  std::vector<Key> keys;
  for (const auto& partition : partitions_) {
    const std::shared_lock held(partition->mutex);
    for (std::uint32_t index = 0; index < partition->slab.end(); ++index) {
      const std::byte* row = partition->slab.row(index);
      if (Layout::live(row) && Layout::version(row) > 1) keys.push_back(Layout::key(row));
    }
  }
  return keys;
}

}  // namespace hotrow::store
