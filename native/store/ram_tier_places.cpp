// Places for a batch in the rows of a worker's cache (HET): which rows are there and how they are, rows for absent
// keys. cache/clocks.py states the rules of the clocks; tests compare the two.
#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>

#include "store/ram_tier_visit.h"
#include "store/scratch.h"

namespace hotrow::store {
namespace {

constexpr int kStates = 4;

template <typename T>
void close_up(T* column, std::size_t width, std::size_t from, std::size_t count, std::size_t to) {
  if (column != nullptr) std::copy_n(column + from * width, count * width, column + to * width);
}

// The first tick of the newest run of batches in use that no other batch breaks: what was seen since then is in use.
// Of `plans` those that began before it are left: rows of batches that have finished were seen beside theirs.
std::uint32_t leave_unbroken_run(std::vector<const Batch*>& plans, std::uint32_t newest) {
  std::ranges::sort(plans, std::greater{}, &Batch::seen_at);
  std::uint32_t since = newest;
  const auto broken = std::ranges::find_if(plans, [&](const Batch* plan) {
    if (plan->seen_at + 1 < since) return true;
    since = std::min(since, plan->seen_at);
    return false;
  });
  plans.erase(plans.begin(), broken);
  return since;
}

// std::invalid_argument where two of a partition's absent keys are the same: each would get a row. A batch that was
// planned as one of distinct keys was not searched for them.
void check_absent_distinct(const Batch& batch, std::size_t p, std::size_t absent) {
  static thread_local Scratch<std::uint32_t> room;
  const std::size_t mask = std::bit_ceil(2 * absent + 1) - 1;
  std::uint32_t* const table = room.take(mask + 1);
  std::fill_n(table, mask + 1, kNoRow);
  for (std::uint32_t unique = batch.unique_begin(p); unique < batch.unique_begin(p + 1); ++unique) {
    if (batch.slots()[unique] != kNoRow) continue;
    const Key key = batch.keys()[unique];
    std::size_t place = secret_hash(key).bits & mask;
    for (; table[place] != kNoRow; place = (place + 1) & mask)
      if (batch.keys()[table[place]] == key)
        throw std::invalid_argument("make_places: key " + std::to_string(key) +
                                    " stands in the batch twice: give each key once");
    table[place] = unique;
  }
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
  batch.seen_at = now_.load(std::memory_order_relaxed);
  CachedCounts found = by_state(batch, states, clocks, out);
  for (const auto& partition : partitions_) found.beyond += rows_beyond_quota(*partition);
  return found;
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
                           count(CachedState::awaited), 0};
  std::array<std::size_t, kStates> next{};
  next[static_cast<std::size_t>(CachedState::absent)] = found.valid;
  next[static_cast<std::size_t>(CachedState::ahead)] = found.valid + found.absent;
  next[static_cast<std::size_t>(CachedState::awaited)] = found.valid + found.absent + found.ahead;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const std::uint32_t unique = batch.inverse()[i];
    const std::size_t at = next[states[unique]]++;
    out.keys[at] = batch.keys()[unique];
    out.clocks[at] = clocks[unique];
    out.uniques[at] = unique;
  }
  return found;
}

MadePlaces RamTier::make_places(Batch& batch, std::uint32_t use, std::span<const Batch* const> pinned,
                                const ChangeColumns& out, int threads) {
  check_plan(batch);
  if (batch.size() < kSmallBatch) threads = 1;
  std::vector<const Batch*> others(pinned.begin(), pinned.end());
  const std::uint32_t since = leave_unbroken_run(others, batch.seen_at);
  for (const Batch* plan : others) check_plan(*plan);
  // Each partition writes its changes behind those that the partitions before it may have.
  std::vector<std::size_t> first(partitions_.size() + 1), written(partitions_.size());
  for (std::size_t p = 0; p < partitions_.size(); ++p) {
    const std::uint32_t *begin = batch.slots() + batch.unique_begin(p),
                        *end = batch.slots() + batch.unique_begin(p + 1);
    const auto absent = static_cast<std::size_t>(std::count(begin, end, kNoRow));
    check_absent_distinct(batch, p, absent);
    first[p + 1] = first[p] + absent + ahead_of(batch, p).size() + rows_beyond_quota(*partitions_[p]);
  }
  if (first.back() > out.rows) throw std::invalid_argument("make_places: the columns have no room for all changes");
  parallel_for(threads, partitions_.size(), [&](std::size_t p) {
    Partition& partition = *partitions_[p];
    const std::unique_lock held(partition.mutex);
    ChangeWriter changes{out, first[p]};
    take_ahead(partition, batch, changes);
    place_absent(partition, batch, use, {since, PinnedRows(others, p, partition.slab)}, changes);
    written[p] = changes.at - first[p];
  });
  MadePlaces made;
  for (std::size_t p = 0; p < partitions_.size(); ++p) {
    if (made.changes != first[p]) close_up(out, first[p], written[p], made.changes);
    made.changes += written[p];
    made.beyond += rows_beyond_quota(*partitions_[p]);
  }
  return made;
}

void RamTier::close_up(const ChangeColumns& out, std::size_t from, std::size_t count, std::size_t to) const {
  store::close_up(out.keys, 1, from, count, to);
  store::close_up(out.values, layout_.dim(), from, count, to);
  store::close_up(out.state, layout_.state_dim(), from, count, to);
  for (std::uint32_t* column : {out.clocks, out.updates, out.periods}) store::close_up(column, 1, from, count, to);
  store::close_up(out.slots, 1, from, count, to);
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
    const std::byte* const row = partition.slab.row(slot);
    if (Layout::key(row) == batch.keys()[unique] && Layout::version(row) > 1)
      take_change(partition, slot, changes.out, changes.at++);
  }
}

void RamTier::place_absent(Partition& partition, Batch& batch, std::uint32_t use, RowsInUse used,
                           ChangeWriter& changes) const {
  const std::uint32_t begin = batch.unique_begin(partition.number), end = batch.unique_begin(partition.number + 1);
  PinnedRows nothing({}, partition.number, partition.slab);
  partition.order.restart();
  evict_beyond_quota(partition, used, changes);  // what earlier batches have left: their memory is taken first
  for (std::uint32_t unique = begin; unique < end; ++unique) {
    if (unique + kVisitBlock < end && batch.slots()[unique + kVisitBlock] == kNoRow)
      partition.remembered.prefetch(batch.keys()[unique + kVisitBlock]);
    if (batch.slots()[unique] != kNoRow) continue;
    if (layout_.has(kNextUse)) partition.window.remove(batch.keys()[unique], use);
    std::byte* const row = create(partition, batch, unique, nothing, Start::zeros);
    layout_.field(row, kClock) = kAwaited;
    Layout::mark(row, 1);
    evict_beyond_quota(partition, used, changes);
  }
  partition.order.restart();
}

// As many rows as there are beyond the quota, the first in the order, but for those of them that are in use. A row that
// comes in later moves the others back by one place at most, so those that went before are still among the first.
void RamTier::evict_beyond_quota(Partition& partition, RowsInUse& used, ChangeWriter& changes) const {
  const auto stays = [&](std::uint32_t index) {
    const bool in_use =
        layout_.field(partition.slab.row(index), kLastSeen) >= used.since || used.others.contains(index);
    used.passed += in_use;
    return in_use;
  };
  while (rows_beyond_quota(partition) > used.passed) {
    const std::uint32_t first = partition.order.first(stays);
    if (first == kNoRow || rows_beyond_quota(partition) <= used.passed) return;
    const std::byte* const row = partition.slab.row(first);
    if (Layout::version(row) > 1) change_of(partition, first, changes.out, changes.at++);
    if (remembers_evicted()) partition.remembered.put(Layout::key(row), layout_.field(row, kFrequency));
    partition.order.before_evict(first);
    remove(partition, first);
    ++partition.counts.evicted;
    prefetch_evictions(partition, partition.order.first(stays));
  }
}

std::uint32_t RamTier::rows_beyond_quota(const Partition& partition) const {
  const std::uint32_t rows = partition.slab.rows();
  return rows > partition.quota ? rows - partition.quota : 0;
}

std::size_t RamTier::read_placed(Batch& batch, float* out, float otherwise, int threads) const {
  const std::uint32_t* const places = places_of(batch);
  const std::size_t dim = layout_.dim();
  const auto copy = [&](auto&, const Visit& visit, Applied& done) {
    float* const to = out + places[visit.unique] * dim;
    if (visit.row != nullptr && !awaited(visit.row)) {
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
