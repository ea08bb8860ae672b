// Inside of the RAM tier: what a partition is, and how a call walks the rows of a batch.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <mutex>
#include <span>
#include <stdexcept>
#include <type_traits>

#include "store/admission.h"
#include "store/cut.h"
#include "store/order.h"
#include "store/parallel.h"
#include "store/ram_tier.h"
#include "store/remembered.h"
#include "store/scratch.h"
#include "store/window.h"

namespace hotrow::store {

constexpr std::size_t kSmallBatch = 2048;        // not worth a second thread
constexpr std::size_t kPrefetchBytesMax = 1024;  // longer rows: the processor's own prefetcher follows
constexpr std::uintptr_t kLine = 64;
constexpr std::uint32_t kVisitBlock = 16;  // keys that go through a stage of visit together
constexpr std::uint32_t kAwaited = std::numeric_limits<std::uint32_t>::max();  // clock of a row that did not come yet
constexpr std::size_t kRemovedMax = 1 << 20;  // keys that a cut may list as removed, where there are fewer rows

inline void prefetch(const std::byte* from, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(from);
  const std::uintptr_t end = begin + std::min(bytes, kPrefetchBytesMax);
  for (std::uintptr_t line = begin & ~(kLine - 1); line < end; line += kLine)
    __builtin_prefetch(reinterpret_cast<const void*>(line));
}

inline std::uint32_t clamp32(std::uint64_t value) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(value, std::numeric_limits<std::uint32_t>::max()));
}

inline void bump_version(std::byte* row) {
  std::uint32_t& version = Layout::version(row);
  version = version == std::numeric_limits<std::uint32_t>::max() ? 2 : version + 1;  // 0 and 1 mean free and fresh
}

// Room for one row of floats per unique key while a call runs. It is kept from call to call, so it stays in the caches
// and in 2 MB pages: memory of the batch's own cost 8 % of a step at dim 16.
inline float* unique_rows(const Batch& batch, std::size_t floats) {
  static thread_local Scratch<float> room;
  return room.take(batch.unique() * floats);
}

// Of a batch of distinct keys: where each unique one stands in it. Good until the thread's next one.
inline const std::uint32_t* places_of(const Batch& batch) {
  if (batch.unique() != batch.size()) throw std::invalid_argument("a key stands in the batch twice");
  static thread_local Scratch<std::uint32_t> room;
  std::uint32_t* const places = room.take(batch.size());
  for (std::size_t i = 0; i < batch.size(); ++i) places[batch.inverse()[i]] = static_cast<std::uint32_t>(i);
  return places;
}

struct alignas(64) RamTier::Partition {
  Partition(RamTier& tier, std::size_t p)
      : number(p),
        quota(tier.quota(p)),
        slab(*tier.arena_, tier.segment_.get(), static_cast<std::uint32_t>(p), tier.layout_.row_bytes(),
             tier.slab_rows_max(p)),
        index(*tier.arena_, slab, share(tier, p)),
        order(tier.spec_.life, tier.layout_, slab, quota),
        remembered(tier.remembers_evicted() ? tier.quota(p) : 0),
        admission(tier.spec_.life.admission, tier.spec_.first_values.stream, std::size_t{1} << tier.partitions_log2(),
                  share(tier, p)),
        changes({tier.layout_, slab, tier.ticks_, tier.spec_.life.ordered()}, kRemovedMax >> tier.partitions_log2()) {}

  static double share(const RamTier& tier, std::size_t p) { return std::ldexp(p, -tier.partitions_log2()); }

  mutable std::shared_mutex mutex;
  std::size_t number;
  std::uint32_t quota;  // of rows
  Slab slab;
  Index index;
  Order order;    // empty where the table evicts nobody
  Window window;  // of the batches that were announced
  Remembered remembered;
  std::size_t changed = 0;  // rows with changes that the server does not know, where rows keep a base
  Admission admission;
  Changes changes;  // what is changed is told to it first
  Counts counts;
  std::vector<Key> gone;             // evicted or expired since someone asked
  bool gone_is_whole = true;         // false: the list was full
  std::uint32_t asked_for = kNoRow;  // the row that is likely to be evicted next
  std::uint32_t swept = 0;           // where the search for expired rows goes on
  std::uint32_t seen_since = 0;      // no row was last seen before this tick
};

// One unique key of the batch on its way through visit: its place in the index, then its row.
struct RamTier::Visit {
  std::uint32_t unique;  // its number
  SecretHash hash;       // set while the index is asked
  const Bucket* home;
  std::byte* row;  // null: absent
};

// Where changes of a partition's rows go: from `at` on.
struct RamTier::ChangeWriter {
  const ChangeColumns& out;
  std::size_t at;
};

// Rows of a partition that are in use: those that a batch has seen since a tick, and those of batches before it.
struct RamTier::RowsInUse {
  std::uint32_t since;
  PinnedRows others;
  std::uint32_t passed = 0;  // among the rows that are the first to be evicted
};

// How a call uses the rows it visits.
struct RamTier::Access {
  bool exclusive;
  std::size_t bytes;  // of each row, from its start
  Selection selection = {};
};

// The unique keys of [begin, end) that a call works on, by number. The list is good until the thread's next one.
struct ChosenKeys {
  ChosenKeys(const std::uint8_t* only, std::uint32_t begin, std::uint32_t end) : first(begin), count(end - begin) {
    if (only == nullptr) return;
    static thread_local Scratch<std::uint32_t> room;
    std::uint32_t* const list = room.take(count + 1);
    count = 0;
    for (std::uint32_t unique = begin; unique < end; ++unique) {
      list[count] = unique;  // kept only if it is chosen: cheaper than a branch no one can guess
      count += only[unique] != 0;
    }
    numbers = list;
  }
  std::uint32_t operator[](std::uint32_t i) const { return numbers == nullptr ? first + i : numbers[i]; }

  const std::uint32_t* numbers = nullptr;
  std::uint32_t first, count;
};

inline void RamTier::ask_index(const Partition& partition, const Batch& batch, Visit& visit) const {
  visit.hash = secret_hash(batch.keys()[visit.unique]);
  visit.home = partition.index.home(visit.hash);
  __builtin_prefetch(visit.home);
}

// Guesses the key's row and asks for its memory: from the slot an earlier lookup left, or by the tag in the index.
inline void RamTier::ask_row(const Partition& partition, Batch& batch, Visit& visit, const Access& access) const {
  std::uint32_t& slot = batch.slots()[visit.unique];
  if (!batch.looked_up) slot = Index::first_match(*visit.home, visit.hash);
  visit.row = slot < partition.slab.end() ? partition.slab.row(slot) : nullptr;
  if (visit.row != nullptr) prefetch(visit.row, access.bytes);
}

// Nobody saw the row for so long that it counts as gone.
inline bool RamTier::expired(const std::byte* row) const {
  return spec_.life.expiry != 0 && ticks_.expired(layout_.field(row, kLastSeen), now_.load(std::memory_order_relaxed));
}

// Of a cache: the row was made for a key whose row the server has not sent yet. Its memory is what another row left.
inline bool RamTier::awaited(const std::byte* row) const {
  return layout_.keeps_base() && layout_.field(row, kClock) == kAwaited;
}

// The row's own key decides; a guess that was wrong, or has become so, is looked up in full.
inline void RamTier::settle(const Partition& partition, Batch& batch, Visit& visit, bool as_found) const {
  const Key key = batch.keys()[visit.unique];
  const std::byte* row = visit.row;
  if (row != nullptr && Layout::key(row) == key && Layout::live(row) && !expired(row)) return;
  if (as_found) {
    visit.row = nullptr;
    return;
  }
  std::uint32_t& slot = batch.slots()[visit.unique];
  const std::uint32_t absent = slot == kTurnedAway ? kTurnedAway : kNoRow;
  slot = partition.index.find(secret_hash(key), key);
  visit.row = slot == kNoRow ? nullptr : partition.slab.row(slot);
  if (visit.row != nullptr && !expired(visit.row)) return;
  visit.row = nullptr;
  slot = absent;
}

inline void RamTier::check_plan(const Batch& batch) const {
  if (batch.partitions() != partitions_.size())
    throw std::invalid_argument("the batch was planned for a table with another number of partitions");
}

// Calls body(partition, visit, done) for every chosen unique key of the batch under its partition's lock, or, if it
// takes them, body(partition, visits, done) for up to kVisitBlock of them at a time; and, before the lock is given
// back, finish(partition, first, end) for the partition's unique keys together; returns the sum of what the bodies
// counted in `done`.
template <typename Body, typename Finish>
Applied RamTier::visit(Batch& batch, int threads, const Access& access, Body&& body, Finish&& finish) const {
  check_plan(batch);
  if (counts_occurrences_ && !batch.counted())
    throw std::invalid_argument("the batch was planned for a table that does not count how often keys come");
  if (batch.size() < kSmallBatch) threads = 1;
  Applied total;
  std::mutex counting;
  // Concurrent batches start at different partitions, or they would queue at every lock.
  const std::uint64_t start = next_start_.fetch_add(7, std::memory_order_relaxed);
  parallel_for(threads, partitions_.size(), [&](std::size_t task) {
    const std::size_t p = (task + start) & (partitions_.size() - 1);
    if (batch.unique_begin(p) == batch.unique_begin(p + 1)) return;
    std::shared_lock shared(partitions_[p]->mutex, std::defer_lock);
    std::unique_lock alone(partitions_[p]->mutex, std::defer_lock);
    if (access.exclusive)
      alone.lock();
    else
      shared.lock();
    const Applied done = visit_partition(batch, p, access, body);
    finish(*partitions_[p], batch.unique_begin(p), batch.unique_begin(p + 1));
    const std::lock_guard held(counting);
    total += done;
  });
  batch.looked_up = batch.looked_up || access.selection.only == nullptr;
  return total;
}

// A call that makes rows and has counted them in `made`: where the segment has no room for all, the refusal says how
// many there are. Each is whole and stays, so the same batch may come again.
template <typename Make>
void RamTier::make_rows(const std::atomic<std::size_t>& made, Make&& make) const {
  try {
    make();
  } catch (const SegmentError& error) {
    throw SegmentError(std::string(error.what()) + "; " + std::to_string(made) +
                       " new rows of this batch were made and stay, so give the same batch again once there is room");
  }
}

template <typename Body>
Applied RamTier::visit(Batch& batch, int threads, const Access& access, Body&& body) const {
  return visit(batch, threads, access, body, [](const Partition&, std::size_t, std::size_t) {});
}

// A pipeline of blocks: while the rows of one block are worked on, those of the next are on their way, and the index
// lines of the one after it. So the misses of many keys overlap with each other and with the work.
template <typename Body>
Applied RamTier::visit_partition(Batch& batch, std::size_t p, const Access& access, Body&& body) const {
  Partition& partition = *partitions_[p];
  const ChosenKeys chosen(access.selection.only, batch.unique_begin(p), batch.unique_begin(p + 1));
  const bool as_found = access.selection.as_found && batch.looked_up;
  const std::uint32_t blocks = (chosen.count + kVisitBlock - 1) / kVisitBlock;
  std::array<std::array<Visit, kVisitBlock>, 3> ring;  // a block keeps its place from the first stage to the last
  const auto visits = [&](std::uint32_t block) {
    return std::span(ring[block % 3]).first(std::min(kVisitBlock, chosen.count - block * kVisitBlock));
  };
  Applied done;
  for (std::uint32_t block = 0; block < blocks + 2; ++block) {
    if (block < blocks) {
      std::uint32_t next = block * kVisitBlock;
      for (Visit& visit : visits(block)) {
        visit.unique = chosen[next++];
        if (!batch.looked_up) ask_index(partition, batch, visit);
      }
    }
    if (block >= 1 && block - 1 < blocks)
      for (Visit& visit : visits(block - 1)) ask_row(partition, batch, visit, access);
    if (block < 2) continue;
    const std::span<Visit> settled = visits(block - 2);
    for (Visit& visit : settled) settle(partition, batch, visit, as_found);
    if constexpr (std::is_invocable_v<Body&, Partition&, std::span<Visit>, Applied&>) {
      body(partition, settled, done);
    } else {
      for (Visit& visit : settled) body(partition, visit, done);
    }
  }
  return done;
}

}  // namespace hotrow::store
