// How rows come to stay and to go: seeing, admission, eviction, expiry.
#include <cstring>
#include <utility>

#include "store/ram_tier_visit.h"
#include "store/scratch.h"

namespace hotrow::store {

std::uint32_t RamTier::quota(std::size_t partition) const {
  const std::uint64_t rows = spec_.life.capacity_rows, partitions = std::uint64_t{1} << spec_.partitions_log2;
  if (rows == 0) return std::numeric_limits<std::uint32_t>::max();
  return clamp32(rows / partitions + (partition < rows % partitions));
}

// The rows of a cache's batches come in before others go.
std::uint32_t RamTier::slab_rows_max(std::size_t partition) const {
  return spec_.keeps_base ? std::numeric_limits<std::uint32_t>::max() : quota(partition);
}

// Moves the table's clock: to the samples told, or by one tick for a call that tells none. A table with expiry goes by
// samples alone.
void RamTier::advance(const Sight& sight) {
  if (sight.samples) advance_to(period_, swap_period(*sight.samples));
  if (!layout_.has(kLastSeen)) return;
  if (clock_of_rows_) clock_of_rows_ = false;
  if (sight.samples)
    advance_to(now_, clamp32(ticks_.of(*sight.samples)));
  else if (spec_.life.expiry == 0 && sight.seen)
    advance_to(now_, clamp32(std::uint64_t{now_} + 1));
}

void RamTier::restore_clock(const TableClock& clock) {
  now_ = clock.tick;
  period_ = clock.period;
  clock_of_rows_ = clock.of_rows;
}

void RamTier::advance_to(std::atomic<std::uint32_t>& clock, std::uint32_t to) {
  std::uint32_t now = clock.load();
  while (to > now && !clock.compare_exchange_weak(now, to)) {
  }
}

// The rows of [begin, end) that were found are newest now. Their neighbours in the order lie anywhere in memory, so
// they are asked for ahead of time.
void RamTier::see(Partition& partition, const Batch& batch, std::size_t begin, std::size_t end,
                  std::uint32_t use) const {
  if (!layout_.has(kLastSeen)) return;
  constexpr std::size_t kAhead = 16;
  const bool ordered = spec_.life.ordered(), ahead = layout_.has(kNextUse);
  const std::uint32_t now = now_.load(std::memory_order_relaxed);
  const std::uint32_t* slots = batch.slots();
  for (std::size_t unique = begin; unique < end; ++unique) {
    if (ordered && unique + kAhead < end && slots[unique + kAhead] < kTurnedAway)
      partition.order.prefetch_neighbours(slots[unique + kAhead]);
    if (slots[unique] >= kTurnedAway) continue;
    std::uint32_t& last_seen = layout_.field(partition.slab.row(slots[unique]), kLastSeen);
    if (ordered || last_seen < now) partition.changes.before_change(slots[unique]);
    last_seen = std::max(last_seen, now);
    if (!ordered) continue;
    const std::uint32_t next_use = ahead ? partition.window.remove(batch.keys()[unique], use) : 0;
    partition.order.see(slots[unique], counts_occurrences_ ? batch.occurrences(unique) : 1, next_use);
  }
}

bool RamTier::let_in(Partition& partition, const Batch& batch, std::size_t unique, std::uint64_t call) const {
  if (partition.admission.open()) return true;
  const std::uint32_t occurrences = counts_occurrences_ ? batch.occurrences(unique) : 1;
  partition.changes.before_admission(partition.admission);
  return partition.admission.admit(batch.keys()[unique], occurrences, call);
}

// A row with its first values for an absent key; null: the partition is full and nobody can go. The version comes last:
// a process that dies before leaves a free row. With `zeros` the row stays free until `put_row` has written it.
std::byte* RamTier::create(Partition& partition, Batch& batch, std::size_t unique, PinnedRows& pinned,
                           Start start) const {
  const Key key = batch.keys()[unique];
  const SecretHash hash = secret_hash(key);
  if (spec_.life.expiry != 0) {  // an expired row may still hold the key's place
    const std::uint32_t stale = partition.index.find(hash, key);
    if (stale != kNoRow) let_expire(partition, stale);
  }
  if (partition.slab.full() && !make_room(partition, batch, pinned)) return nullptr;
  const std::uint32_t fresh = partition.slab.take();
  partition.changes.before_change(fresh);
  std::byte* row = partition.slab.row(fresh);
  // Of a cache: value and state come from the server, and a base is written before the first change.
  std::memset(row, 0, spec_.keeps_base ? layout_.header_bytes() : layout_.state_end());
  Layout::key(row) = key;
  if (start == Start::first_values) {
    static thread_local Scratch<float> room;
    float* value = layout_.narrow() ? room.take(layout_.dim()) : layout_.value(row);
    row_kernels().first_values(spec_.first_values, key, value, layout_.dim());
    row_kernels().first_state(rule_, static_cast<float>(spec_.optimizer.initial), value, layout_.state(row),
                              layout_.dim());
    partition.counts.saturated += store_value(row, value, 1);
  }
  if (layout_.has(kLastSeen)) layout_.field(row, kLastSeen) = now_.load(std::memory_order_relaxed);
  if (layout_.has(kPeriod)) layout_.field(row, kPeriod) = period_.load(std::memory_order_relaxed);
  if (layout_.has(kFrequency))
    layout_.field(row, kFrequency) = partition.order.counted(batch.occurrences(unique) + partition.remembered.get(key));
  if (layout_.has(kNextUse)) layout_.field(row, kNextUse) = partition.window.next_use(key);
  try {
    partition.index.insert(hash, fresh);
  } catch (...) {
    partition.slab.give(fresh);
    throw;
  }
  if (start == Start::first_values) Layout::mark(row, 1);
  if (spec_.life.ordered()) partition.order.add(fresh);
  ++partition.counts.created;
  batch.slots()[unique] = fresh;
  if (spec_.life.evicted_stay) pinned.add_made(fresh);
  return row;
}

// False: the table evicts nobody, or every row in it is pinned. Expired rows go first; with LRU they are the oldest
// anyway, otherwise the whole partition is searched, but only when some row in it can have expired.
bool RamTier::make_room(Partition& partition, Batch& batch, PinnedRows& pinned) const {
  if (spec_.life.eviction != Eviction::lru && spec_.life.expiry != 0 &&
      ticks_.expired(partition.seen_since, now_.load(std::memory_order_relaxed))) {
    sweep(partition, partition.slab.end());
    if (!partition.slab.full()) return true;
  }
  if (!spec_.life.ordered()) return false;
  const auto stays = [&](std::uint32_t index) { return pinned.contains(index); };
  const std::uint32_t first = partition.order.first(stays);
  if (first == kNoRow) return false;
  const std::byte* row = partition.slab.row(first);
  if (expired(row)) {
    let_expire(partition, first);
    return true;
  }
  if (spec_.life.keep_evicted) {
    auto& kept = batch.evicted[partition.number];
    kept.insert(kept.end(), row, row + layout_.row_bytes());
  }
  if (!spec_.life.evicted_stay) list_gone(partition, Layout::key(row));
  remove(partition, first, spec_.life.evicted_stay ? Removal::moved : Removal::gone);
  ++partition.counts.evicted;
  prefetch_evictions(partition, partition.order.first(stays));
  return true;
}

// `next` is likely the next row to go. It lies anywhere, as the rows behind it do: they are asked for while new rows
// are made, so that several are on their way. Nothing says yet whether those behind it stay.
void RamTier::prefetch_evictions(Partition& partition, std::uint32_t next) const {
  constexpr int kRowsAhead = 3;
  if (next == kNoRow || next == partition.asked_for) return;  // the same again: new rows go for each other
  partition.asked_for = next;
  const std::byte* const row = partition.slab.row(next);
  prefetch(row, layout_.row_bytes());
  if (!spec_.keeps_base) return;
  __builtin_prefetch(partition.index.home(secret_hash(Layout::key(row))), 1);
  for (int ahead = 0; ahead < kRowsAhead && next != kNoRow; ++ahead) next = partition.order.after(next);
  if (next != kNoRow) prefetch(partition.slab.row(next), layout_.row_bytes());
}

void RamTier::let_expire(Partition& partition, std::uint32_t index) const {
  list_gone(partition, Layout::key(static_cast<const std::byte*>(partition.slab.row(index))));
  remove(partition, index);
  ++partition.counts.expired;
}

void RamTier::remove(Partition& partition, std::uint32_t index, Removal removal) const {
  if (removal == Removal::moved)
    partition.changes.before_move(index);
  else
    partition.changes.before_remove(index);
  if (layout_.keeps_base() && Layout::version(partition.slab.row(index)) > 1) --partition.changed;
  partition.index.erase(secret_hash(Layout::key(static_cast<const std::byte*>(partition.slab.row(index)))), index);
  if (spec_.life.ordered()) partition.order.remove(index);
  partition.slab.give(index);
}

void RamTier::list_gone(Partition& partition, Key key) const {
  if (partition.gone.size() < std::max<std::size_t>(spec_.life.gone_keys_max >> spec_.partitions_log2, 1))
    partition.gone.push_back(key);
  else
    partition.gone_is_whole = false;
}

// Looks at the next `rows` rows in turn, so that the memory of expired ones comes back at the pace of the lookups. A
// sweep over all of them leaves behind since when every row has been seen.
void RamTier::sweep(Partition& partition, std::uint32_t rows) const {
  const bool whole = rows >= partition.slab.end();
  std::uint32_t seen_since = std::numeric_limits<std::uint32_t>::max();
  for (std::uint32_t n = std::min(rows, partition.slab.end()); n > 0; --n) {
    if (partition.swept >= partition.slab.end()) partition.swept = 0;
    const std::byte* row = partition.slab.row(partition.swept);
    if (Layout::live(row)) {
      if (expired(row))
        let_expire(partition, partition.swept);
      else
        seen_since = std::min(seen_since, layout_.field(row, kLastSeen));
    }
    ++partition.swept;
  }
  if (whole) partition.seen_since = std::min(seen_since, now_.load(std::memory_order_relaxed));
}

std::size_t RamTier::expire(std::optional<std::uint64_t> samples, int threads) {
  if (spec_.life.expiry == 0) return 0;
  advance({true, samples});
  std::atomic<std::size_t> gone{0};
  parallel_for(threads, partitions_.size(), [&](std::size_t p) {
    Partition& partition = *partitions_[p];
    const std::unique_lock held(partition.mutex);
    const std::uint64_t before = partition.counts.expired;
    sweep(partition, partition.slab.end());
    gone += partition.counts.expired - before;
  });
  return gone;
}

// Forgets what fell out for the batch before.
void RamTier::start_eviction(Batch& batch) const {
  batch.evicted.clear();
  if (spec_.life.keep_evicted) batch.evicted.resize(partitions_.size());
  batch.evicted_by = number_;
}

std::size_t RamTier::preview_evictions(Batch& batch, const std::optional<Sight>& sight, int threads,
                                       std::span<const Batch* const> pinned) {
  check_plan(batch);
  for (const Batch* plan : pinned) check_plan(*plan);
  // Keys whose rows have expired by the time of the call are counted by the filter of an admission, too.
  if (sight && sight->samples) advance(*sight);
  const std::uint64_t call = calls_.load(std::memory_order_relaxed);
  // Rows of the batch stay. Also where it was looked up before: rows of it may be gone since, and are made again.
  find(batch, nullptr, Per::unique, threads);
  start_eviction(batch);
  parallel_for(batch.size() < kSmallBatch ? 1 : threads, partitions_.size(), [&](std::size_t p) {
    const std::size_t begin = batch.unique_begin(p), end = batch.unique_begin(p + 1);
    if (begin == end) return;
    Partition& partition = *partitions_[p];
    const std::unique_lock held(partition.mutex);
    const std::size_t room = partition.slab.rows_max() - partition.slab.rows();
    if (end - begin <= room) return;
    std::size_t fresh = 0;
    Admission::Preview admission(partition.admission);
    for (std::size_t unique = begin; unique < end; ++unique) {
      if (batch.slots()[unique] < kTurnedAway) continue;
      const Key key = batch.keys()[unique];
      const std::uint32_t slot = partition.index.find(secret_hash(key), key);
      if (slot != kNoRow && !expired(partition.slab.row(slot)))
        batch.slots()[unique] = slot;  // it was made since
      else if (!sight || partition.admission.open())
        ++fresh;
      else if (sight->seen)
        fresh += admission.admits(key, counts_occurrences_ ? batch.occurrences(unique) : 1, call);
    }
    if (fresh <= room) return;
    std::size_t left = fresh - room;
    PinnedRows stay(pinned, p, partition.slab, spec_.life.evicted_stay ? &batch : nullptr);
    auto& kept = batch.evicted[p];
    partition.order.restart();
    partition.order.first([&](std::uint32_t index) {
      if (stay.contains(index)) return true;
      if (left == 0) return false;
      --left;
      const std::byte* row = partition.slab.row(index);
      if (!expired(row)) kept.insert(kept.end(), row, row + layout_.row_bytes());
      return true;
    });
    partition.order.restart();
  });
  return evicted_rows(batch);
}

std::size_t RamTier::evicted_rows(const Batch& batch) const {
  if (!batch.evicted.empty() && batch.evicted_by != number_)
    throw std::invalid_argument("evicted: the batch carries rows of another table: ask the table that it was given to");
  std::size_t bytes = 0;
  for (const auto& rows : batch.evicted) bytes += rows.size();
  return bytes / layout_.row_bytes();
}

void RamTier::evicted(const Batch& batch, const Columns& out) const {
  std::size_t at = 0;
  for (const auto& rows : batch.evicted)
    for (std::size_t byte = 0; byte < rows.size(); byte += layout_.row_bytes())
      copy_columns(rows.data() + byte, out, at++);
}

bool RamTier::take_gone_keys(std::vector<Key>& keys) {
  bool whole = true;
  for (const auto& partition : partitions_) {
    const std::unique_lock held(partition->mutex);
    keys.insert(keys.end(), partition->gone.begin(), partition->gone.end());
    partition->gone = {};
    whole &= std::exchange(partition->gone_is_whole, true);
  }
  return whole;
}

std::vector<Key> RamTier::eviction_order(std::size_t p) const {
  const Partition& partition = *partitions_[p];
  const std::shared_lock held(partition.mutex);
  std::vector<Key> keys;
  partition.order.walk([&](std::uint32_t index, bool) {
    keys.push_back(Layout::key(static_cast<const std::byte*>(partition.slab.row(index))));
  });
  return keys;
}

}  // namespace hotrow::store
