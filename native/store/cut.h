// A cut: the rows of a partition as they were at one moment, read while calls go on changing them; and the record of
// changes since the last cut, from which the next one exports only those.
//
// A row is copied before its first change after the moment, unless it was exported already. Hooks run under the
// partition's lock, held alone. The one thread that exports holds it shared: what it writes, no other reader reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "store/admission.h"
#include "store/kept_links.h"
#include "store/layout.h"
#include "store/life.h"
#include "store/slab.h"
#include "store/slots.h"

namespace hotrow::store {

// Slots whose rows were changed or made since the last cut, and keys whose rows were removed.
struct ChangeLog {
  SlotSet changed;
  std::vector<Key> removed;
  bool complete = false;  // false: there was no cut yet, or more keys were removed than the list holds
};

// What a cut has to know of rows.
struct RowFacts {
  const Layout& layout;
  const Slab& slab;
  const Ticks& ticks;
  bool ordered;  // the table has an order of eviction
};

class PartitionCut {
 public:
  PartitionCut(const RowFacts& rows, bool changed_only, std::uint32_t now);

  // Before the row in a slot changes, and before a free slot is taken.
  void keep(std::uint32_t slot) {
    if (slot < end_ && !taken_.has(slot)) keep_row(slot);
  }
  void keep(const Admission& admission) {
    if (counts_ == nullptr) counts_ = std::make_unique<const Admission>(admission);
  }

  // The row of a slot as it was, each once; null: there was none. Good until the lock is given back.
  const std::byte* take(std::uint32_t slot);
  // Expired rows count as removed: lists those of the slots from `begin` to `end`.
  void list_expired(std::uint32_t begin, std::uint32_t end);
  // The slots to be exported in the order of eviction, from the links of all slots. Without the lock.
  std::vector<std::uint32_t> in_order(const std::vector<std::uint32_t>& newer) const;
  // Rows are exported: what was kept of them goes.
  void release_rows();

  bool selects(std::uint32_t slot) const { return !changed_only_ || changes.changed.has(slot); }
  std::uint32_t end() const { return end_; }
  std::size_t copied_bytes() const { return copies_ * facts_.slab.row_bytes(); }  // since the cut
  std::size_t bytes() const { return blocks_.size() * kBlockRows * facts_.slab.row_bytes(); }
  const Admission& counts(const Admission& now) const { return counts_ != nullptr ? *counts_ : now; }

  ChangeLog changes;  // up to the cut
  KeptLinks links;
  // Where the export is.
  bool prepared = false, expired_listed = false;
  std::vector<std::uint32_t> order;
  std::uint32_t next = 0;  // place in the order, or slot

 private:
  static constexpr std::size_t kBlockRows = 256;

  void keep_row(std::uint32_t slot);
  bool expired(const std::byte* row) const;
  std::byte* copy(std::uint32_t number) const {
    return blocks_[number / kBlockRows].get() + number % kBlockRows * facts_.slab.row_bytes();
  }

  RowFacts facts_;
  bool changed_only_;
  std::uint32_t now_, end_;
  SlotSet taken_;        // exported or copied, or no part of the cut
  SlotNumbers copy_of_;  // number of a slot's copy
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::size_t copies_ = 0;
  std::unique_ptr<const Admission> counts_;
};

// What a partition keeps of its changes: for an open cut, for the next one, or nothing.
class Changes {
 public:
  Changes(const RowFacts& rows, std::size_t removed_max) : facts_(rows), removed_max_(removed_max) {}

  void before_change(std::uint32_t slot) {
    if (watching_) [[unlikely]]
      note(slot);
  }
  void before_remove(std::uint32_t slot) {
    if (watching_) [[unlikely]]
      note_removed(slot, true);
  }
  // Before a row leaves the table for another tier, which has it from then on: it is no removal.
  void before_move(std::uint32_t slot) {
    if (watching_) [[unlikely]]
      note_removed(slot, false);
  }
  void before_admission(const Admission& admission) {
    if (cut_ != nullptr) [[unlikely]]
      cut_->keep(admission);
  }

  void track(bool on);
  bool complete() const { return log_ != nullptr && log_->complete; }
  std::size_t changed_rows() const { return log_ != nullptr ? log_->changed.slots() : 0; }
  void open(std::unique_ptr<PartitionCut> cut, std::unique_ptr<ChangeLog> fresh);
  // Returns the cut, to be destroyed without the lock. One that was not saved leaves its changes to the next.
  std::unique_ptr<PartitionCut> close(bool saved);

  bool tracked() const { return log_ != nullptr; }
  PartitionCut* cut() const { return cut_.get(); }
  std::size_t bytes() const;

 private:
  void note(std::uint32_t slot);
  void note_removed(std::uint32_t slot, bool listed);
  void list_removed(Key key);

  RowFacts facts_;
  std::size_t removed_max_;
  bool watching_ = false;  // there is a cut or a log
  std::unique_ptr<ChangeLog> log_;
  std::unique_ptr<PartitionCut> cut_;
};

}  // namespace hotrow::store
