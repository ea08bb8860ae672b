// Looking at the whole table: export, statistics, verification.
#include <cstring>

#include "store/ram_tier_visit.h"

namespace hotrow::store {

std::size_t RamTier::export_rows(std::uint64_t& cursor, std::size_t most, const Columns& out) const {
  std::size_t written = 0;
  std::size_t p = cursor >> 32;
  auto index = static_cast<std::uint32_t>(cursor);
  for (; p < partitions_.size() && written < most; ++p, index = 0) {
    const Partition& partition = *partitions_[p];
    const std::shared_lock held(partition.mutex);
    for (; index < partition.slab.end() && written < most; ++index) {
      const std::byte* row = partition.slab.row(index);
      if (Layout::live(row) && !expired(row)) copy_columns(row, out, written++);
    }
    if (index < partition.slab.end()) break;
  }
  cursor = std::uint64_t{p} << 32 | index;
  return written;
}

std::size_t RamTier::size() const {
  std::size_t rows = 0;
  for (const auto& partition : partitions_) {
    const std::shared_lock held(partition->mutex);
    rows += partition->slab.rows();
  }
  return rows;
}

Counts& Counts::operator+=(const Counts& more) {
  created += more.created;
  erased += more.erased;
  evicted += more.evicted;
  expired += more.expired;
  turned_away += more.turned_away;
  saturated += more.saturated;
  return *this;
}

Stats RamTier::stats() const {
  Stats stats;
  for (const auto& partition : partitions_) {
    const std::shared_lock held(partition->mutex);
    stats.rows += partition->slab.rows();
    stats.slab_bytes += partition->slab.end() * layout_.row_bytes();
    stats.index_bytes += partition->index.bytes();
    stats.admission_bytes += partition->admission.bytes();
    stats.splits += partition->index.splits();
    stats.bytes += partition->window.bytes() + partition->remembered.bytes();
    stats.bytes += partition->order.bytes() + partition->gone.capacity() * sizeof(Key) + partition->changes.bytes();
    stats.counts += partition->counts;
  }
  stats.bytes += arena_->bytes() + stats.admission_bytes + (segment_ != nullptr ? segment_->bytes() : 0);
  stats.refused = refused_;
  stats.absent = absent_;
  stats.unadmitted = unadmitted_;
  return stats;
}

std::vector<std::string> RamTier::verify() const {
  std::vector<std::string> faults;
  for (std::size_t p = 0; p < partitions_.size(); ++p) {
    const Partition& partition = *partitions_[p];
    const std::shared_lock held(partition.mutex);
    partition.index.verify(faults);
    std::size_t live = 0;
    for (std::uint32_t slot = 0; slot < partition.slab.end(); ++slot) {
      const std::byte* row = partition.slab.row(slot);
      if (!Layout::live(row)) continue;
      ++live;
      const Key key = Layout::key(row);
      const std::string who = "row of key " + std::to_string(key);
      if (partition_bits(hash_key(key)) >> (kPartitionBits - spec_.partitions_log2) != p)
        faults.push_back(who + " lies in partition " + std::to_string(p) + ", which is not its own");
      else if (partition.index.find(secret_hash(key), key) != slot)
        faults.push_back(who + " is not where the index says");
    }
    if (live != partition.index.entries())
      faults.push_back("partition " + std::to_string(p) + ": " + std::to_string(live) + " live rows, " +
                       std::to_string(partition.index.entries()) + " in the index");
    if (live != partition.slab.rows())
      faults.push_back("partition " + std::to_string(p) + ": wrong count of free rows");
    std::size_t freed = 0;
    for (std::uint32_t slot = partition.slab.free_head(); slot != kNoRow && freed <= partition.slab.end(); ++freed)
      slot = static_cast<std::uint32_t>(Layout::key(const_cast<const std::byte*>(partition.slab.row(slot))));
    if (freed != partition.slab.free_rows())
      faults.push_back("partition " + std::to_string(p) + ": the list of free rows is broken");
    if (partition.slab.rows() > partition.slab.rows_max())
      faults.push_back("partition " + std::to_string(p) + " holds more rows than its capacity");
    if (spec_.life.ordered()) verify_order(partition, live, faults);
  }
  return faults;
}

void RamTier::verify_order(const Partition& partition, std::size_t live, std::vector<std::string>& faults) const {
  const std::string who = "partition " + std::to_string(partition.number) + ": ";
  std::size_t walked = 0;
  std::uint32_t before = kNoRow, frequency_before = 0;
  partition.order.walk([&](std::uint32_t index, bool oldest) {
    const std::byte* row = partition.slab.row(index);
    if (!Layout::live(row)) faults.push_back(who + "a free row stands in the order of eviction");
    if (partition.order.before(index) != (oldest ? kNoRow : before))
      faults.push_back(who + "the links of the order do not fit together");
    if (layout_.has(kFrequency) && !(layout_.has(kNextUse) && layout_.field(row, kNextUse) != 0)) {
      const std::uint32_t frequency = std::min(layout_.field(row, kFrequency), partition.order.most_frequent());
      if (frequency < frequency_before) faults.push_back(who + "a row stands at a frequency that is not its own");
      frequency_before = frequency;
    }
    before = index;
    ++walked;
  });
  if (walked != live || partition.order.rows() != live)
    faults.push_back(who + std::to_string(live) + " live rows, " + std::to_string(walked) +
                     " in the order of eviction");
}

}  // namespace hotrow::store
