// The order of eviction of one partition as it was at a moment: links that change later are kept as they were. Copying
// all links at once would hold the partition's lock for as long as it takes to read every row.
#pragma once

#include <cstdint>
#include <vector>

#include "store/slots.h"

namespace hotrow::store {

class KeptLinks {
 public:
  explicit KeptLinks(std::uint32_t end) : end_(end) {}

  std::uint32_t end() const { return end_; }  // later slots were not part of the order
  bool kept(std::uint32_t slot) const { return newer_.get(slot) != 0; }
  // 0 means that a link is not kept; kNoRow is the largest number, and no slot comes near it.
  void keep(std::uint32_t slot, std::uint32_t newer) { newer_.set(slot, newer + 2, end_); }
  std::uint32_t newer(std::uint32_t slot) const { return newer_.get(slot) - 2; }

  std::vector<std::uint32_t> oldest;  // of each list; empty: no link was kept yet

 private:
  std::uint32_t end_;
  SlotNumbers newer_;
};

}  // namespace hotrow::store
