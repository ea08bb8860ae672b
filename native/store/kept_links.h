// The order of eviction of one partition as it was at a moment: links that change later are kept as they were. Copying
// all links at once would hold the partition's lock for as long as it takes to read every row.
#pragma once

#include <cstdint>
#include <vector>

#include "store/slots.h"

namespace hotrow::store {

struct KeptLinks {
  std::uint32_t end = 0;              // later slots were not part of the order
  std::vector<std::uint32_t> oldest;  // of each list; empty: no link changed yet
  SlotSet changed;
  SlotNumbers newer;  // links of rows that were not the newest, of those that changed

  // Before the link of a slot changes.
  void keep(std::uint32_t slot, std::uint32_t link) {
    if (slot >= end || changed.has(slot)) return;
    if (link != SlotNumbers::kNone) newer.add(slot, link);
    changed.insert(slot);
  }
};

}  // namespace hotrow::store
