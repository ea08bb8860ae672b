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
      if (!Layout::live(row)) continue;
      out.keys[written] = Layout::key(row);
      std::memcpy(out.values + written * layout_.dim(), layout_.value(row), layout_.dim() * sizeof(float));
      std::memcpy(out.state + written * layout_.state_dim(), layout_.state(row), layout_.state_dim() * sizeof(float));
      for (int field = 0; field < kFields; ++field)
        if (layout_.has(Field(field))) out.fields[field][written] = layout_.field(row, Field(field));
      ++written;
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

Stats RamTier::stats() const {
  Stats stats;
  for (const auto& partition : partitions_) {
    const std::shared_lock held(partition->mutex);
    stats.rows += partition->slab.rows();
    stats.slab_bytes += partition->slab.end() * layout_.row_bytes();
    stats.index_bytes += partition->index.bytes();
    stats.splits += partition->index.splits();
  }
  stats.created = created_;
  stats.erased = erased_;
  stats.refused = refused_;
  stats.absent = absent_;
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
      const std::uint64_t hash = hash_key(Layout::key(row));
      const std::string who = "row of key " + std::to_string(Layout::key(row));
      if (partition_bits(hash) >> (kPartitionBits - spec_.partitions_log2) != p)
        faults.push_back(who + " lies in partition " + std::to_string(p) + ", which is not its own");
      else if (partition.index.find(hash, Layout::key(row)) != slot)
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
  }
  return faults;
}

}  // namespace hotrow::store
