// Places for a batch in the rows of a worker's cache (HET): which rows are there and how they are, rows for absent
// keys. cache/clocks.py states the rules of the clocks; tests compare the two.
#include <algorithm>
#include <limits>

#include "store/ram_tier_visit.h"
#include "store/scratch.h"

namespace hotrow::store {
namespace {

constexpr int kStates = 4;

template <typename T>
void close_up(T* column, std::size_t width, std::size_t from, std::size_t count, std::size_t to) {
  if (column != nullptr) std::copy_n(column + from * width, count * width, column + to * width);
}

}  // namespace

CachedState RamTier::cached_state(const std::byte* row, std::uint64_t staleness, std::uint32_t& clock) const {
  clock = 0;
  if (row == nullptr) return CachedState::absent;
  const std::uint32_t start = layout_.field(row, kClock), updates = Layout::version(row) - 1;
  if (start >= kMadeNow) return CachedState::awaited;
  clock = start + updates;
  return updates > staleness ? CachedState::ahead : CachedState::valid;
}

// The rows of a block are seen while the next block is on its way: their places in the order are in the caches by then.
CachedCounts RamTier::find_places(Batch& batch, std::uint32_t use, std::uint64_t staleness, const CachedKeys& out,
                                  int threads) {
  static thread_local Scratch<std::uint8_t> state_room;
  static thread_local Scratch<std::uint32_t> clock_room;
  std::uint8_t* const states = state_room.take(batch.unique());
  std::uint32_t* const clocks = clock_room.take(batch.unique());
  const bool ordered = spec_.life.ordered();
  advance({});
  const auto look = [&](Partition& partition, std::span<Visit> visits, Applied&) {
    for (const Visit& visit : visits) {
      states[visit.unique] = static_cast<std::uint8_t>(cached_state(visit.row, staleness, clocks[visit.unique]));
      if (ordered && visit.row != nullptr) partition.order.prefetch_neighbours(batch.slots()[visit.unique]);
    }
    const std::uint32_t first = visits.front().unique;
    if (first != batch.unique_begin(partition.number)) see(partition, batch, first - kVisitBlock, first, use);
  };
  const auto see_last = [&](Partition& partition, std::size_t begin, std::size_t end) {
    see(partition, batch, end - 1 - (end - 1 - begin) % kVisitBlock, end, use);
  };
  visit(batch, threads, {true, layout_.header_bytes()}, look, see_last);
  return by_state(batch, states, clocks, out);
}

CachedCounts RamTier::by_state(Batch& batch, const std::uint8_t* states, const std::uint32_t* clocks,
                               const CachedKeys& out) {
  std::array<std::size_t, kStates> counts{};
  batch.ahead.clear();
  for (std::uint32_t unique = 0; unique < batch.unique(); ++unique) {
    ++counts[states[unique]];
    if (states[unique] == static_cast<std::uint8_t>(CachedState::ahead)) batch.ahead.push_back(unique);
  }
  const auto count = [&](CachedState state) { return counts[static_cast<std::size_t>(state)]; };
  const CachedCounts found{count(CachedState::valid), count(CachedState::absent), count(CachedState::ahead),
                           count(CachedState::awaited)};
  std::array<std::size_t, kStates> next{};
  next[static_cast<std::size_t>(CachedState::absent)] = found.valid;
  next[static_cast<std::size_t>(CachedState::ahead)] = found.valid + found.absent;
  next[static_cast<std::size_t>(CachedState::awaited)] = found.valid + found.absent + found.ahead;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const std::uint32_t unique = batch.inverse()[i];
    const std::size_t at = next[states[unique]]++;
    out.keys[at] = batch.keys()[unique];
    out.clocks[at] = clocks[unique];
  }
  return found;
}

MadePlaces RamTier::make_places(Batch& batch, std::uint32_t use, std::span<const Batch* const> pinned,
                                const ChangeColumns& out, bool* placed, int threads) {
  check_plan(batch);
  for (const Batch* plan : pinned) check_plan(*plan);
  if (batch.size() < kSmallBatch) threads = 1;
  // Each partition writes its changes behind those that the partitions before it may have.
  std::vector<std::size_t> first(partitions_.size() + 1), written(partitions_.size()), unplaced(partitions_.size());
  for (std::size_t p = 0; p < partitions_.size(); ++p) {
    const std::uint32_t *begin = batch.slots() + batch.unique_begin(p),
                        *end = batch.slots() + batch.unique_begin(p + 1);
    const auto absent = std::count_if(begin, end, [](std::uint32_t slot) { return slot >= kTurnedAway; });
    first[p + 1] = first[p] + (spec_.life.ordered() ? static_cast<std::size_t>(absent) : 0) + ahead_of(batch, p).size();
  }
  if (first.back() > out.rows) throw std::invalid_argument("make_places: the columns have no room for all changes");
  parallel_for(threads, partitions_.size(), [&](std::size_t p) {
    if (batch.unique_begin(p) == batch.unique_begin(p + 1)) return;
    Partition& partition = *partitions_[p];
    const std::unique_lock held(partition.mutex);
    ChangeWriter changes{out, first[p]};
    take_ahead(partition, batch, changes);
    unplaced[p] = place_absent(partition, batch, use, pinned, changes);
    written[p] = changes.at - first[p];
  });
  MadePlaces made;
  for (std::size_t p = 0; p < partitions_.size(); ++p) {
    if (made.changes != first[p]) close_up(out, first[p], written[p], made.changes);
    made.changes += written[p];
    made.unplaced += unplaced[p];
  }
  if (made.unplaced != 0)
    for (std::size_t i = 0; i < batch.size(); ++i) placed[i] = batch.slots()[batch.inverse()[i]] < kTurnedAway;
  return made;
}

void RamTier::close_up(const ChangeColumns& out, std::size_t from, std::size_t count, std::size_t to) const {
  store::close_up(out.keys, 1, from, count, to);
  store::close_up(out.values, layout_.dim(), from, count, to);
  store::close_up(out.state, layout_.state_dim(), from, count, to);
  for (std::uint32_t* column : {out.clocks, out.updates, out.periods}) store::close_up(column, 1, from, count, to);
}

// Those of the unique keys of a partition whose rows are ahead, by number.
std::span<const std::uint32_t> RamTier::ahead_of(const Batch& batch, std::size_t p) {
  const auto begin = std::lower_bound(batch.ahead.begin(), batch.ahead.end(), batch.unique_begin(p));
  return {begin, std::lower_bound(begin, batch.ahead.end(), batch.unique_begin(p + 1))};
}

void RamTier::take_ahead(Partition& partition, const Batch& batch, ChangeWriter& changes) const {
  for (const std::uint32_t unique : ahead_of(batch, partition.number)) {
    const std::uint32_t slot = batch.slots()[unique];
    if (slot >= partition.slab.end()) continue;
    std::byte* const row = partition.slab.row(slot);
    if (Layout::key(row) == batch.keys()[unique] && Layout::version(row) > 1)
      take_change(partition, row, changes.out, changes.at++);
  }
}

// Returns how many keys have no row: every other row is in use, or their own went for a later one.
std::size_t RamTier::place_absent(Partition& partition, Batch& batch, std::uint32_t use,
                                  std::span<const Batch* const> pinned, ChangeWriter& changes) const {
  const std::uint32_t begin = batch.unique_begin(partition.number), end = batch.unique_begin(partition.number + 1);
  PinnedRows stay(pinned, partition.number, partition.slab);
  static thread_local Scratch<std::uint32_t> room;
  std::uint32_t* const made = room.take(end - begin);
  std::size_t count = 0, unplaced = 0;
  const std::uint64_t before = partition.counts.evicted;
  partition.order.restart();
  for (std::uint32_t unique = begin; unique < end; ++unique) {
    if (unique + kVisitBlock < end && batch.slots()[unique + kVisitBlock] >= kTurnedAway)
      partition.remembered.prefetch(batch.keys()[unique + kVisitBlock]);
    if (batch.slots()[unique] < kTurnedAway) continue;
    if (layout_.has(kNextUse)) partition.window.remove(batch.keys()[unique], use);
    std::byte* const row = create(partition, batch, unique, stay, Start::zeros, &changes);
    if (row == nullptr) {
      batch.slots()[unique] = kTurnedAway;
      ++partition.counts.turned_away;
      ++unplaced;
      continue;
    }
    layout_.field(row, kClock) = partition.counts.evicted == before ? kAwaited : kMadeNow;
    Layout::mark(row, 1);
    made[count++] = unique;
  }
  partition.order.restart();
  for (std::size_t i = 0; i < count; ++i) {  // a new row may have gone for a later one
    std::uint32_t& slot = batch.slots()[made[i]];
    std::byte* const row = partition.slab.row(slot);
    if (Layout::live(row) && Layout::key(row) == batch.keys()[made[i]]) {
      layout_.field(row, kClock) = kAwaited;
    } else {
      slot = kTurnedAway;
      ++unplaced;
    }
  }
  return unplaced;
}

std::size_t RamTier::read_placed(Batch& batch, float* out, float otherwise, int threads) const {
  const std::uint32_t* const places = places_of(batch);
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

}  // namespace hotrow::store
