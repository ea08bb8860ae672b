// The rows of a worker's cache (HET): places for a batch, changes against the base, rows that come from the server.
// cache/clocks.py states the rules of the clocks; tests compare the two.
#include <algorithm>
#include <limits>

#include "store/ram_tier_visit.h"
#include "store/scratch.h"

namespace hotrow::store {
namespace {

constexpr std::uint32_t kAwaited = std::numeric_limits<std::uint32_t>::max();  // clock of a row that did not come yet

// From the order of unique keys to that of the keys of the batch.
template <typename T>
void spread(const Batch& batch, const T* found, T* out) {
  for (std::size_t i = 0; i < batch.size(); ++i) out[i] = found[batch.inverse()[i]];
}

std::vector<std::uint32_t> places_of(const Batch& batch) {
  if (batch.unique() != batch.size()) throw std::invalid_argument("a key stands in the batch twice");
  std::vector<std::uint32_t> places(batch.size());
  for (std::size_t i = 0; i < batch.size(); ++i) places[batch.inverse()[i]] = static_cast<std::uint32_t>(i);
  return places;
}

}  // namespace

CachedState RamTier::cached_state(const std::byte* row, std::uint64_t staleness, std::uint32_t& clock) const {
  clock = 0;
  if (row == nullptr) return CachedState::absent;
  const std::uint32_t start = layout_.field(row, kClock), updates = Layout::version(row) - 1;
  if (start == kAwaited) return CachedState::awaited;
  clock = start + updates;
  return updates > staleness ? CachedState::ahead : CachedState::valid;
}

PlacedCounts RamTier::place(Batch& batch, std::uint32_t use, std::uint64_t staleness,
                            std::span<const Batch* const> pinned, const CachedFacts& out, int threads) {
  for (const Batch* plan : pinned) check_plan(*plan);
  static thread_local Scratch<std::uint8_t> state_room;
  static thread_local Scratch<std::uint32_t> clock_room;
  static thread_local Scratch<bool> placed_room;
  std::uint8_t* const states = state_room.take(batch.unique());
  std::uint32_t* const clocks = clock_room.take(batch.unique());
  bool* const placed = placed_room.take(batch.unique());
  advance({});
  start_eviction(batch);
  const auto look = [&](auto&, const Visit& visit, Applied&) {
    states[visit.unique] = static_cast<std::uint8_t>(cached_state(visit.row, staleness, clocks[visit.unique]));
  };
  const auto finish = [&](Partition& partition, std::size_t begin, std::size_t end) {
    PinnedRows stay(pinned, partition.number, partition.slab, &batch);
    see(partition, batch, begin, end, use);
    partition.order.restart();
    const std::uint64_t before = partition.counts.evicted;
    std::fill(placed + begin, placed + end, true);
    for (std::size_t unique = begin; unique < end; ++unique) {
      if (batch.slots()[unique] < kTurnedAway) continue;
      if (layout_.has(kNextUse)) partition.window.remove(batch.keys()[unique], use);
      std::byte* const row = create(partition, batch, unique, stay, Start::zeros);
      placed[unique] = row != nullptr;
      if (row == nullptr) {
        batch.slots()[unique] = kTurnedAway;
        ++partition.counts.turned_away;
        continue;
      }
      layout_.field(row, kClock) = kAwaited;
      Layout::mark(row, 1);
    }
    if (partition.counts.evicted == before) return;
    for (std::size_t unique = begin; unique < end; ++unique) {  // a new row may have gone for a later one
      const std::uint32_t slot = batch.slots()[unique];
      if (!placed[unique]) continue;
      const std::byte* row = partition.slab.row(slot);
      placed[unique] = Layout::live(row) && Layout::key(row) == batch.keys()[unique];
    }
  };
  visit(batch, threads, {true, layout_.header_bytes()}, look, finish);
  spread(batch, states, out.states);
  spread(batch, clocks, out.clocks);
  spread(batch, placed, out.placed);
  return {static_cast<std::size_t>(std::count(placed, placed + batch.unique(), false)), evicted_rows(batch)};
}

std::size_t RamTier::read_placed(Batch& batch, float* out, float otherwise, int threads) const {
  const std::vector<std::uint32_t> places = places_of(batch);
  const std::size_t dim = layout_.dim();
  const auto copy = [&](auto&, const Visit& visit, Applied& done) {
    float* const to = out + places[visit.unique] * dim;
    if (visit.row != nullptr) {
      std::copy_n(layout_.value(static_cast<const std::byte*>(visit.row)), dim, to);
    } else {
      std::fill_n(to, dim, otherwise);
      ++done.absent;
    }
  };
  return visit(batch, threads, {false, layout_.value_end()}, copy).absent;
}

std::uint32_t RamTier::announce(Batch& batch, int threads) {
  std::uint32_t number = ++announced_;
  if (number == 0) number = ++announced_;  // 0 means that no use is known
  for (const auto& partition : partitions_) {
    const std::unique_lock held(partition->mutex);
    partition->order.announce(number);
  }
  visit(batch, threads, {true, sizeof(Key)}, [&](Partition& partition, Visit& visit, Applied&) {
    const std::uint32_t next = partition.window.announce(batch.keys()[visit.unique], number);
    if (visit.row != nullptr && next == number) partition.order.use_next(batch.slots()[visit.unique], number);
  });
  return number;
}

void RamTier::withdraw(Batch& batch, std::uint32_t use, int threads) {
  visit(batch, threads, {true, sizeof(Key)}, [&](Partition& partition, Visit& visit, Applied&) {
    const std::uint32_t next = partition.window.remove(batch.keys()[visit.unique], use);
    if (visit.row != nullptr && layout_.field(visit.row, kNextUse) != next)
      partition.order.use_next(batch.slots()[visit.unique], next);
  });
}

// Before an update. A row of version 1 is as it was fetched.
void RamTier::keep_base(Partition& partition, std::byte* row) const {
  if (Layout::version(row) != 1) return;
  const std::size_t dim = layout_.dim(), state_dim = layout_.state_dim();
  float* const base = layout_.base(row);
  std::copy_n(layout_.value(row), dim, base);
  std::copy_n(layout_.state(row), state_dim, base + dim);
  if (layout_.has(kBasePeriod)) layout_.field(row, kBasePeriod) = layout_.field(row, kPeriod);
  ++partition.changed;
}

void RamTier::change_of(const std::byte* row, const ChangeColumns& out, std::size_t at) const {
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
}

void RamTier::take_changes(Batch& batch, const ChangeColumns& out, int threads) {
  const std::vector<std::uint32_t> places = places_of(batch);
  visit(batch, threads, {true, layout_.row_bytes()}, [&](Partition& partition, Visit& visit, Applied&) {
    const std::size_t at = places[visit.unique];
    const bool changed = visit.row != nullptr && Layout::version(visit.row) > 1;
    if (out.changed != nullptr) out.changed[at] = changed;
    if (!changed) return;
    change_of(visit.row, out, at);
    layout_.field(visit.row, kClock) = out.clocks[at];
    Layout::mark(visit.row, 1);
    --partition.changed;
  });
}

std::size_t RamTier::evicted_changed(const Batch& batch) const {
  evicted_rows(batch);  // of this table
  std::size_t count = 0;
  for (const auto& rows : batch.evicted)
    for (std::size_t byte = 0; byte < rows.size(); byte += layout_.row_bytes())
      count += Layout::version(rows.data() + byte) > 1;
  return count;
}

void RamTier::evicted_changes(const Batch& batch, const ChangeColumns& out) const {
  std::size_t at = 0;
  for (const auto& rows : batch.evicted)
    for (std::size_t byte = 0; byte < rows.size(); byte += layout_.row_bytes())
      if (Layout::version(rows.data() + byte) > 1) change_of(rows.data() + byte, out, at++);
}

void RamTier::fill(Batch& batch, const FetchedRows& rows, int threads) {
  const std::vector<std::uint32_t> places = places_of(batch);
  if (rows.periods != nullptr && batch.size() != 0)
    advance_to(period_, *std::max_element(rows.periods, rows.periods + batch.size()));
  visit(batch, threads, {true, layout_.row_bytes()}, [&](Partition& partition, Visit& visit, Applied&) {
    if (visit.row != nullptr) fill_row(partition, visit.row, rows, places[visit.unique]);
  });
}

// The row of the server becomes the base of a row with changes, which stay on top of it. States of different SWAP
// periods are brought to the latest.
void RamTier::fill_row(Partition&, std::byte* row, const FetchedRows& rows, std::size_t at) const {
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
