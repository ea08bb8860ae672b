#include "store/cut.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace hotrow::store {

PartitionCut::PartitionCut(const RowFacts& rows, bool changed_only, std::uint32_t now)
    : facts_(rows), changed_only_(changed_only), now_(now), end_(rows.slab.end()) {
  links.end = end_;
}

// A row that expires after the cut belongs to it: the clock is that of the cut.
bool PartitionCut::expired(const std::byte* row) const {
  return facts_.layout.has(kLastSeen) && facts_.ticks.expired(facts_.layout.field(row, kLastSeen), now_);
}

// In a table with an order also rows that did not change may be exported, for their place in it.
void PartitionCut::keep_row(std::uint32_t slot) {
  const std::byte* row = facts_.slab.row(slot);
  if (Layout::live(row)) {
    if (expired(row)) {
      if (changed_only_) changes.removed.push_back(Layout::key(row));
    } else if (facts_.ordered || selects(slot)) {
      const auto number = static_cast<std::uint32_t>(copies_);
      if (copies_ % kBlockRows == 0)
        blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(kBlockRows * facts_.slab.row_bytes()));
      std::memcpy(copy(number), row, facts_.slab.row_bytes());
      copy_of_.add(slot, number);
      ++copies_;
    }
  }
  taken_.insert(slot);
}

const std::byte* PartitionCut::take(std::uint32_t slot) {
  if (taken_.has(slot)) {
    const std::uint32_t number = copy_of_.get(slot);
    return number == SlotNumbers::kNone ? nullptr : copy(number);
  }
  taken_.insert(slot);
  const std::byte* row = facts_.slab.row(slot);
  return Layout::live(row) && !expired(row) ? row : nullptr;
}

void PartitionCut::list_expired(std::uint32_t begin, std::uint32_t end) {
  for (std::uint32_t slot = begin; slot < end; ++slot) {
    if (taken_.has(slot)) continue;
    const std::byte* row = facts_.slab.row(slot);
    if (Layout::live(row) && expired(row)) keep_row(slot);
  }
}

// Rows that are put are the newest of their list. Where a row changed and kept its place, those behind it have to be
// put after it, changed or not.
std::vector<std::uint32_t> PartitionCut::in_order(const std::vector<std::uint32_t>& newer) const {
  std::vector<std::uint32_t> slots;
  for (const std::uint32_t oldest : links.oldest) {
    bool put = false;
    for (std::uint32_t slot = oldest; slot != kNoRow; slot = newer[slot]) {
      put = put || selects(slot);
      if (put) slots.push_back(slot);
    }
  }
  return slots;
}

void PartitionCut::release_rows() {
  end_ = 0;
  blocks_.clear();
  copy_of_ = {};
  taken_ = {};
  order = {};
}

void Changes::track(bool on) {
  log_ = on ? std::make_unique<ChangeLog>() : nullptr;
  watching_ = on;
}

void Changes::open(std::unique_ptr<PartitionCut> cut, std::unique_ptr<ChangeLog> fresh) {
  cut_ = std::move(cut);
  if (log_ != nullptr) {
    cut_->changes = std::move(*log_);
    log_ = std::move(fresh);
    log_->complete = true;
  }
  watching_ = true;
}

std::unique_ptr<PartitionCut> Changes::close(bool saved) {
  if (log_ != nullptr && !saved) {
    const ChangeLog& before = cut_->changes;
    const std::uint32_t end = std::min(before.changed.end(), facts_.slab.end());
    for (std::uint32_t slot = before.changed.next(0, end); slot < end; slot = before.changed.next(slot + 1, end))
      if (Layout::live(std::as_const(facts_).slab.row(slot))) log_->changed.insert(slot);
    log_->complete = log_->complete && before.complete;
    for (const Key key : before.removed) list_removed(key);
  }
  watching_ = log_ != nullptr;
  return std::move(cut_);
}

std::size_t Changes::bytes() const {
  std::size_t bytes = 0;
  if (log_ != nullptr) bytes += log_->changed.bytes() + log_->removed.capacity() * sizeof(Key);
  if (cut_ != nullptr) bytes += cut_->bytes();
  return bytes;
}

void Changes::note(std::uint32_t slot) {
  if (cut_ != nullptr) cut_->keep(slot);
  if (log_ != nullptr) log_->changed.insert(slot);
}

void Changes::note_removed(std::uint32_t slot, bool listed) {
  if (cut_ != nullptr) cut_->keep(slot);
  if (log_ == nullptr) return;
  log_->changed.erase(slot);
  if (listed) list_removed(Layout::key(std::as_const(facts_).slab.row(slot)));
}

void Changes::list_removed(Key key) {
  if (!log_->complete) return;  // the next cut is full, whatever the list holds
  if (log_->removed.size() < std::max<std::size_t>(facts_.slab.end(), removed_max_)) {
    log_->removed.push_back(key);
  } else {
    log_->complete = false;
    log_->removed = {};
  }
}

}  // namespace hotrow::store
