// Inside of the RAM tier: what a partition is, and how a call walks the rows of a batch.
#pragma once

#include <algorithm>
#include <limits>
#include <mutex>
#include <stdexcept>

#include "store/parallel.h"
#include "store/ram_tier.h"

namespace hotrow::store {

constexpr std::size_t kBlock = 32;         // rows asked for together, so that their cache misses overlap
constexpr std::size_t kSmallBatch = 2048;  // not worth a second thread

inline std::uint32_t clamp32(std::uint64_t value) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(value, std::numeric_limits<std::uint32_t>::max()));
}

// Applied, counted by several threads.
struct RamTier::Tally {
  std::atomic<std::size_t> rows{0}, refused{0}, absent{0};
  void count(const Applied& block) {
    rows += block.rows;
    if (block.refused != 0) refused += block.refused;
    if (block.absent != 0) absent += block.absent;
  }
};

struct alignas(64) RamTier::Partition {
  Partition(Arena& arena, std::size_t row_bytes, double share) : slab(arena, row_bytes), index(arena, slab, share) {}
  mutable std::shared_mutex mutex;
  Slab slab;
  Index index;
};

// A block of unique keys of one partition with their rows.
struct RamTier::Visit {
  std::uint32_t first, count;  // unique keys [first, first + count) of the batch
  std::uint64_t hashes[kBlock];
  const Bucket* homes[kBlock];
  std::byte* rows[kBlock];  // null: absent
};

// How a call uses the rows it visits.
struct RamTier::Access {
  bool exclusive;
  std::size_t bytes;  // of each row, from its start
};

// Calls body(partition, block) for all unique keys of the batch, block by block, under the partitions' locks.
template <typename Body>
void RamTier::visit(Batch& batch, int threads, const Access& access, Body&& body) const {
  if (batch.partitions() != partitions_.size())
    throw std::invalid_argument("the batch was planned for a table with another number of partitions");
  if (batch.size() < kSmallBatch) threads = 1;
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
    visit_partition(batch, p, access, body);
  });
  batch.looked_up = true;
}

// Three blocks are under way at a time, each a stage further than the next: its index lines are asked for, then its
// rows, then it is worked on. So the misses of many keys overlap with each other and with the work.
template <typename Body>
void RamTier::visit_partition(Batch& batch, std::size_t p, const Access& access, Body&& body) const {
  Partition& partition = *partitions_[p];
  const std::uint32_t begin = batch.unique_begin(p), end = batch.unique_begin(p + 1);
  const std::uint32_t blocks = (end - begin + kBlock - 1) / kBlock;
  Visit stages[3];
  for (std::uint32_t tick = 0; tick < blocks + 2; ++tick) {
    if (tick < blocks) {
      Visit& block = stages[tick % 3];
      block.first = begin + tick * kBlock;
      block.count = std::min<std::uint32_t>(kBlock, end - block.first);
      if (!batch.looked_up) ask_index(partition, batch, block);
    }
    if (tick >= 1 && tick < blocks + 1) ask_rows(partition, batch, stages[(tick - 1) % 3], access);
    if (tick >= 2) {
      Visit& block = stages[(tick - 2) % 3];
      settle(partition, batch, block);
      body(partition, block);
    }
  }
}

}  // namespace hotrow::store
