// A checksum of a page of a scratch file, kept in memory: a page that is not what was written last is noticed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "store/disk_format.h"
#include "store/hash.h"

namespace hotrow::store {

// Four chains, so that their multiplications overlap.
inline std::uint32_t page_sum(std::uint64_t number, const std::byte* page) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(page);
  std::array<std::uint64_t, 4> sums{number, 1, 2, 3};
  for (std::size_t word = 0; word < kPage / 8; word += 4)
    for (std::size_t i = 0; i < 4; ++i) sums[i] = fold_product(sums[i] ^ words[word + i], kGolden) + kGolden;
  const std::uint64_t sum = fold_product(sums[0] ^ sums[1], kGolden) + fold_product(sums[2] ^ sums[3], sums[1] | 1);
  return static_cast<std::uint32_t>(sum ^ (sum >> 32));
}

}  // namespace hotrow::store
