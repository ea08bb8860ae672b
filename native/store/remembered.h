// How often rows had been seen when they were evicted, so that a row that comes back goes on counting. A key has one
// place, which the last key that was evicted there holds: a tag of its hash tells keys apart.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "store/hash.h"

namespace hotrow::store {

class Remembered {
 public:
  static constexpr std::uint32_t kMost = 0xffff;

  // For a partition of so many rows; 0: nothing is remembered.
  explicit Remembered(std::uint64_t rows) : slots_(rows == 0 ? 0 : std::bit_ceil(2 * rows)) {}

  void put(Key key, std::uint32_t frequency) {
    if (slots_.empty()) return;
    const std::uint64_t hash = hash_key(key);
    slots_[hash & (slots_.size() - 1)] = tag(hash) << 16 | std::min(frequency, kMost);
  }

  std::uint32_t get(Key key) const {
    if (slots_.empty()) return 0;
    const std::uint64_t hash = hash_key(key);
    const std::uint32_t slot = slots_[hash & (slots_.size() - 1)];
    return slot >> 16 == tag(hash) ? slot & kMost : 0;
  }

  // Asks for the memory that `get` will touch.
  void prefetch(Key key) const {
    if (!slots_.empty()) __builtin_prefetch(&slots_[hash_key(key) & (slots_.size() - 1)], 1);
  }

  std::size_t bytes() const { return slots_.capacity() * sizeof(std::uint32_t); }

 private:
  static std::uint32_t tag(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 28) & 0xffff; }

  std::vector<std::uint32_t> slots_;
};

}  // namespace hotrow::store
