// Rows of one partition that must stay while room is made: those of plans that are still in use. A row is pinned where
// the last lookup of its plan left it, so a key that has lost its row since pins nothing. The set is made when the
// first row is about to be evicted, and so costs nothing where none is.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "store/batch.h"
#include "store/scratch.h"
#include "store/slab.h"

namespace hotrow::store {

class PinnedRows {
 public:
  // Used by one thread, for one partition at a time: the memory of the set is the thread's.
  // `own` (null, or the batch that room is made for): its rows were found in this very call, and stay too.
  PinnedRows(std::span<const Batch* const> plans, std::size_t partition, const Slab& slab, const Batch* own = nullptr)
      : plans_(plans), own_(own), partition_(partition), slab_(slab) {}

  bool contains(std::uint32_t index) {
    if (plans_.empty() && own_ == nullptr) return false;
    if (table_ == nullptr) fill();
    for (std::size_t place = home(index); table_[place] != kNoRow; place = (place + 1) & mask_)
      if (table_[place] == index) return true;
    return false;
  }

  // A row of `own` that was made since: it stays as well.
  void add_made(std::uint32_t index) {
    if (table_ != nullptr && own_ != nullptr) insert(index);
  }

 private:
  std::size_t home(std::uint32_t index) const { return (index * kGolden >> 32) & mask_; }

  void fill() {
    static thread_local Scratch<std::uint32_t> room;
    std::size_t keys = 0;
    for (const Batch* plan : plans_) keys += keys_of(*plan);
    if (own_ != nullptr) keys += keys_of(*own_);
    mask_ = std::bit_ceil(2 * keys + 1) - 1;
    table_ = room.take(mask_ + 1);
    std::fill_n(table_, mask_ + 1, kNoRow);
    for (const Batch* plan : plans_)
      if (plan->looked_up) add(*plan);
    if (own_ != nullptr) add(*own_);
  }

  std::size_t keys_of(const Batch& plan) const {
    return plan.unique_begin(partition_ + 1) - plan.unique_begin(partition_);
  }

  void add(const Batch& plan) {
    for (std::size_t u = plan.unique_begin(partition_); u < plan.unique_begin(partition_ + 1); ++u)
      add(plan.slots()[u], plan.keys()[u]);
  }

  void add(std::uint32_t index, Key key) {
    if (index >= slab_.end()) return;
    const std::byte* row = slab_.row(index);
    if (Layout::key(row) != key || !Layout::live(row)) return;
    insert(index);
  }

  void insert(std::uint32_t index) {
    std::size_t place = home(index);
    while (table_[place] != kNoRow && table_[place] != index) place = (place + 1) & mask_;
    table_[place] = index;
  }

  std::span<const Batch* const> plans_;
  const Batch* own_;
  std::size_t partition_;
  const Slab& slab_;
  std::uint32_t* table_ = nullptr;
  std::size_t mask_ = 0;
};

}  // namespace hotrow::store
