// Taking over the rows that an earlier process left in a segment. Rows are the truth: index, free rows and the order of
// eviction are made again from them, in one scan.
#include <stdexcept>

#include "store/ram_tier_visit.h"

namespace hotrow::store {

Attached RamTier::attach(int threads) {
  for (const Piece& piece : segment_->pieces())
    if (piece.tag.partition >= partitions_.size() || !partitions_[piece.tag.partition]->slab.adopt(piece))
      throw SegmentError("the segment is damaged: rows of partition " + std::to_string(piece.tag.partition) +
                         " from row " + std::to_string(piece.tag.first_index) +
                         " on do not fit those before: remove it and restore a checkpoint");
  std::atomic<std::size_t> rows{0}, dropped{0};
  parallel_for(threads, partitions_.size(), [&](std::size_t p) {
    Partition& partition = *partitions_[p];
    const std::unique_lock held(partition.mutex);
    std::uint32_t newest = 0, period = 0;
    dropped += recover(partition, newest, period);
    advance_to(now_, newest);
    advance_to(period_, period);
    if (spec_.life.ordered()) recover_order(partition);
    rows += partition.slab.rows();
  });
  segment_->take_over();
  return {rows, dropped};
}

// Rows -> index. A key that stands twice, or in a partition that is not its own, is nothing a process can leave behind
// by dying; its row is dropped. Returns how many were; `newest` becomes the latest tick at which a row was seen,
// `period` the latest SWAP period at which one stands.
std::size_t RamTier::recover(Partition& partition, std::uint32_t& newest, std::uint32_t& period) const {
  constexpr std::uint32_t kAhead = 16;
  Slab& slab = partition.slab;
  const std::uint32_t room = slab.room();
  const auto is_ours = [&](Key key) {
    return partition_bits(hash_key(key)) >> (kPartitionBits - spec_.partitions_log2) == partition.number;
  };
  partition.index.reserve(room);
  std::size_t dropped = 0;
  for (std::uint32_t at = 0; at < room; ++at) {
    if (at + kAhead < room)
      __builtin_prefetch(
          partition.index.home(secret_hash(Layout::key(static_cast<const std::byte*>(slab.row(at + kAhead))))));
    std::byte* row = slab.row(at);
    if (!Layout::live(row)) continue;
    const Key key = Layout::key(row);
    const SecretHash hash = secret_hash(key);
    if (is_ours(key) && partition.index.find(hash, key) == kNoRow) {
      partition.index.insert(hash, at);
      if (layout_.has(kLastSeen)) newest = std::max(newest, layout_.field(row, kLastSeen));
      if (layout_.has(kPeriod)) period = std::max(period, layout_.field(row, kPeriod));
    } else {
      Layout::mark(row, 0);
      ++dropped;
    }
  }
  slab.recover();
  return dropped;
}

// By the time a row was last seen, and rows of one tick by their place; the frequency is in the row. A radix sort, byte
// by byte: comparing took longer than everything else.
void RamTier::recover_order(Partition& partition) const {
  std::vector<std::uint64_t> rows, sorted;
  rows.reserve(partition.slab.rows());
  std::uint32_t newest = 0;
  for (std::uint32_t at = 0; at < partition.slab.end(); ++at) {
    const std::byte* row = partition.slab.row(at);
    if (!Layout::live(row)) continue;
    const std::uint32_t last_seen = layout_.field(row, kLastSeen);
    newest = std::max(newest, last_seen);
    rows.push_back(std::uint64_t{last_seen} << 32 | at);
  }
  sorted.resize(rows.size());
  for (int shift = 32; shift < 64 && newest >> (shift - 32) != 0; shift += 8) {
    std::size_t begin[257] = {};
    for (const std::uint64_t row : rows) ++begin[(row >> shift & 255) + 1];
    for (int digit = 0; digit < 256; ++digit) begin[digit + 1] += begin[digit];
    for (const std::uint64_t row : rows) sorted[begin[row >> shift & 255]++] = row;
    rows.swap(sorted);
  }
  constexpr std::size_t kAhead = 16;
  for (std::size_t n = 0; n < rows.size(); ++n) {
    if (n + kAhead < rows.size())
      __builtin_prefetch(partition.slab.row(static_cast<std::uint32_t>(rows[n + kAhead])), 1);
    partition.order.add(static_cast<std::uint32_t>(rows[n]));
  }
}

}  // namespace hotrow::store
