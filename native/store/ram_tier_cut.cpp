// Cuts of the whole table: one moment for all partitions, then one after the other is read.
#include <algorithm>
#include <stdexcept>

#include "store/ram_tier_visit.h"

namespace hotrow::store {
namespace {

constexpr std::uint32_t kHold = 1024;          // rows that are read before the partition's lock is given back
constexpr std::uint32_t kHoldSlots = 1 << 14;  // slots of which one field is read

}  // namespace

void RamTier::track_changes(bool on) {
  const std::lock_guard alone(cut_mutex_);
  if (cut_open_) throw std::invalid_argument("track_changes: a cut of the table is open: close it first");
  if (on == tracks_changes_) return;
  for (const auto& partition : partitions_) {
    const std::unique_lock held(partition->mutex);
    partition->changes.track(on);
  }
  tracks_changes_ = on;
}

// Nobody else holds the locks of two partitions. What needs memory of some size is made before or after the moment.
CutFacts RamTier::begin_cut(bool changed_only) {
  const std::lock_guard alone(cut_mutex_);
  if (cut_open_) throw std::invalid_argument("begin_cut: a cut of the table is open: close it first");
  std::vector<std::unique_ptr<ChangeLog>> logs(partitions_.size());
  for (auto& log : logs) log = std::make_unique<ChangeLog>();
  std::vector<std::unique_lock<std::shared_mutex>> held;
  held.reserve(partitions_.size());
  for (const auto& partition : partitions_) held.emplace_back(partition->mutex);
  for (const auto& partition : partitions_)
    if (changed_only && !partition->changes.complete())
      throw std::invalid_argument(
          "changed_only=True: not all changes since the last cut are known: take a cut of all rows");
  CutFacts facts{.samples = samples()};
  std::vector<std::unique_ptr<PartitionCut>> cuts;
  for (const auto& partition : partitions_) {
    const RowFacts rows{layout_, partition->slab, ticks_, spec_.life.ordered()};
    cuts.push_back(std::make_unique<PartitionCut>(rows, changed_only, now_));
  }
  for (std::size_t p = 0; p < partitions_.size(); ++p) {  // nothing below throws
    Partition& partition = *partitions_[p];
    facts.rows += partition.slab.rows();
    facts.changed_rows += changed_only ? partition.changes.changed_rows() : partition.slab.rows();
    if (spec_.life.ordered()) partition.order.keep_links(&cuts[p]->links);
    partition.changes.open(std::move(cuts[p]), std::move(logs[p]));
  }
  cut_open_ = true;
  cut_changed_only_ = changed_only;
  cut_partition_ = 0;
  return facts;
}

void RamTier::check_cut() const {
  if (!cut_open_) throw std::invalid_argument("the table has no open cut");
}

std::size_t RamTier::cut_rows(std::size_t most, const Columns& out) {
  const std::lock_guard alone(cut_mutex_);
  check_cut();
  // All partitions first: until its order is read, every call that changes it pays for links that are kept.
  if (spec_.life.ordered() && cut_partition_ == 0)
    for (const auto& partition : partitions_)
      if (!partition->changes.cut()->prepared) prepare_cut(*partition);
  std::size_t written = 0;
  while (cut_partition_ < partitions_.size() && written < most) {
    Partition& partition = *partitions_[cut_partition_];
    PartitionCut& cut = *partition.changes.cut();
    if (!cut.prepared) prepare_cut(partition);
    written += cut_some(partition, most - written, out, written);
    const std::size_t end = spec_.life.ordered() ? cut.order.size() : cut.end();
    if (cut.next < end) continue;
    const std::unique_lock held(partition.mutex);
    cut.release_rows();
    ++cut_partition_;
  }
  return written;
}

// Lists what expired, where only changes are exported, and finds the order of eviction.
void RamTier::prepare_cut(Partition& partition) const {
  PartitionCut& cut = *partition.changes.cut();
  if (cut_changed_only_) list_expired(partition);
  if (spec_.life.ordered()) {
    std::vector<std::uint32_t> newer(cut.end());
    for (std::uint32_t begin = 0; begin < cut.end(); begin += kHoldSlots) {
      const std::shared_lock held(partition.mutex);
      partition.order.copy_links(begin, std::min(begin + kHoldSlots, cut.end()), newer.data());
    }
    {
      const std::unique_lock held(partition.mutex);
      partition.order.keep_links(nullptr);
    }
    cut.order = cut.in_order(newer);
    cut.links = {};
  }
  cut.prepared = true;
}

// Expired rows are not removed at once. Of a table without its clock they would come back.
void RamTier::list_expired(Partition& partition) const {
  PartitionCut& cut = *partition.changes.cut();
  if (spec_.life.expiry == 0 || cut.expired_listed) return;
  for (std::uint32_t begin = 0; begin < cut.end(); begin += kHoldSlots) {
    const std::shared_lock held(partition.mutex);
    cut.list_expired(begin, std::min(begin + kHoldSlots, cut.end()));
  }
  cut.expired_listed = true;
}

// Up to `most` rows in one hold of the lock, at `at` of the columns; returns how many.
std::size_t RamTier::cut_some(Partition& partition, std::size_t most, const Columns& out, std::size_t at) const {
  constexpr std::uint32_t kAhead = 8;
  PartitionCut& cut = *partition.changes.cut();
  const std::shared_lock held(partition.mutex);
  std::size_t written = 0;
  const auto take = [&](std::uint32_t slot) {
    const std::byte* row = cut.take(slot);
    if (row != nullptr) copy_columns(row, out, at + written++);
  };
  if (spec_.life.ordered()) {
    const auto end = static_cast<std::uint32_t>(std::min<std::size_t>(cut.order.size(), std::size_t{cut.next} + kHold));
    for (; cut.next < end && written < most; ++cut.next) {
      if (cut.next + kAhead < cut.order.size())
        prefetch(partition.slab.row(cut.order[cut.next + kAhead]), layout_.row_bytes());
      take(cut.order[cut.next]);
    }
    return written;
  }
  if (cut_changed_only_) {
    const SlotSet& changed = cut.changes.changed;
    cut.next = changed.next(cut.next, cut.end());
    for (std::uint32_t seen = 0; cut.next < cut.end() && seen < kHold && written < most; ++seen) {
      take(cut.next);
      cut.next = changed.next(cut.next + 1, cut.end());
    }
    return written;
  }
  const std::uint32_t end = std::min(cut.end(), cut.next + kHold);
  for (; cut.next < end && written < most; ++cut.next) take(cut.next);
  return written;
}

std::vector<Key> RamTier::cut_removed() {
  const std::lock_guard alone(cut_mutex_);
  check_cut();
  std::vector<Key> keys;
  if (!cut_changed_only_) return keys;
  for (const auto& partition : partitions_) {
    list_expired(*partition);
    const std::shared_lock held(partition->mutex);
    const std::vector<Key>& removed = partition->changes.cut()->changes.removed;
    keys.insert(keys.end(), removed.begin(), removed.end());
  }
  return keys;
}

std::vector<std::pair<Key, std::uint32_t>> RamTier::cut_waiting(std::size_t p) const {
  const std::lock_guard alone(cut_mutex_);
  check_cut();
  const Partition& partition = *partitions_[p];
  const std::shared_lock held(partition.mutex);
  return partition.changes.cut()->counts(partition.admission).waiting();
}

std::vector<std::uint8_t> RamTier::cut_filter(std::size_t p) const {
  const std::lock_guard alone(cut_mutex_);
  check_cut();
  const Partition& partition = *partitions_[p];
  const std::shared_lock held(partition.mutex);
  const auto filter = partition.changes.cut()->counts(partition.admission).filter();
  return {filter.begin(), filter.end()};
}

std::size_t RamTier::cut_copied_bytes() const {
  const std::lock_guard alone(cut_mutex_);
  check_cut();
  std::size_t bytes = 0;
  for (const auto& partition : partitions_) {
    const std::shared_lock held(partition->mutex);
    bytes += partition->changes.cut()->copied_bytes();
  }
  return bytes;
}

void RamTier::end_cut(bool saved) {
  const std::lock_guard alone(cut_mutex_);
  check_cut();
  for (const auto& partition : partitions_) {
    std::unique_ptr<PartitionCut> cut;  // destroyed after the lock is given back
    const std::unique_lock held(partition->mutex);
    partition->order.keep_links(nullptr);
    cut = partition->changes.close(saved);
  }
  cut_open_ = false;
}

void RamTier::forget_waiting() {
  for (const auto& partition : partitions_) {
    const std::unique_lock held(partition->mutex);
    partition->changes.before_admission(partition->admission);
    partition->admission.forget();
  }
}

void RamTier::restore_waiting(std::span<const Key> keys, const std::uint32_t* counts) {
  for (std::size_t i = 0; i < keys.size(); ++i) {
    Partition& partition = *partitions_[partition_bits(hash_key(keys[i])) >> (kPartitionBits - spec_.partitions_log2)];
    const std::unique_lock held(partition.mutex);
    partition.changes.before_admission(partition.admission);
    partition.admission.restore(keys[i], counts[i]);
  }
}

bool RamTier::counts_waiting() const {
  return spec_.life.admission.kind == AdmissionKind::at_least && spec_.life.admission.filter_bytes == 0;
}

std::size_t RamTier::filter_bytes() const { return partitions_[0]->admission.filter().size(); }

void RamTier::restore_filter(std::size_t p, std::span<const std::uint8_t> filter) {
  Partition& partition = *partitions_[p];
  const std::unique_lock held(partition.mutex);
  partition.changes.before_admission(partition.admission);
  partition.admission.restore(filter);
}

}  // namespace hotrow::store
