// Ragged bags: bag b holds the positions offsets[b] up to offsets[b + 1]. What pooling and id compression share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hotrow::store {

// Both throw std::invalid_argument with a sentence that begins with `who`; everything after may trust its indices.
void check_offsets(const char* who, std::span<const std::int64_t> offsets, std::size_t positions);
void check_below(const char* who, const char* name, std::span<const std::uint32_t> values, std::size_t end);

// Visits every position in order: put(cursor[group[position]]++, bag, position). With cursors at the start of each
// group's run this is a counting sort that keeps the order within a group.
template <typename Put>
void group_positions(std::span<const std::int64_t> offsets, const std::uint32_t* group, std::int64_t* cursor, Put put) {
  for (std::size_t bag = 0; bag + 1 < offsets.size(); ++bag)
    for (std::int64_t at = offsets[bag]; at < offsets[bag + 1]; ++at)
      put(static_cast<std::size_t>(cursor[group[at]]++), bag, static_cast<std::size_t>(at));
}

}  // namespace hotrow::store
