// The index of a disk file: in memory, or in a file with a filter in memory.
#pragma once

#include <limits>
#include <memory>

#include "store/disk_index.h"
#include "store/paged_index.h"

namespace hotrow::store {

class SlotIndex {
 public:
  void use_file(std::unique_ptr<PagedIndex> paged) { paged_ = std::move(paged); }
  PagedIndex* paged() const { return paged_.get(); }  // null: it is in memory
  // Keys of one call whose pages are brought together.
  std::size_t keys_at_once() const { return paged_ ? paged_->keys_at_once() : std::numeric_limits<std::size_t>::max(); }

  std::size_t size() const { return paged_ ? paged_->size() : memory_.size(); }
  std::size_t bytes() const { return paged_ ? paged_->bytes() : memory_.bytes(); }
  void prefetch(Key key) const {
    if (!paged_) memory_.prefetch(key);
  }
  std::uint32_t find(Key key) const { return paged_ ? paged_->find(key) : memory_.find(key); }
  std::uint32_t put(Key key, std::uint32_t slot) { return paged_ ? paged_->put(key, slot) : memory_.put(key, slot); }
  std::uint32_t erase(Key key) { return paged_ ? paged_->erase(key) : memory_.erase(key); }
  void verify(std::vector<std::string>& faults) const { memory_.verify(faults); }

 private:
  DiskIndex memory_;
  std::unique_ptr<PagedIndex> paged_;
};

}  // namespace hotrow::store
