// One bit for each of a few thousand things, and the first that is clear from a place on.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace hotrow::store {

class Flags {
 public:
  void reset(std::size_t count) { words_.assign((count + 63) / 64, 0); }
  void grow(std::size_t count) { words_.resize((count + 63) / 64); }
  bool has(std::uint32_t index) const { return (words_[index / 64] >> index % 64 & 1) != 0; }
  void set(std::uint32_t index) { words_[index / 64] |= std::uint64_t{1} << index % 64; }
  void clear(std::uint32_t index) { words_[index / 64] &= ~(std::uint64_t{1} << index % 64); }

  // `from`, or the next one whose flag is clear; behind the last where all are set.
  std::uint32_t next_clear(std::uint32_t from) const {
    std::size_t word = from / 64;
    if (word >= words_.size()) return from;
    std::uint64_t clear = ~words_[word] & ~std::uint64_t{0} << from % 64;
    while (clear == 0 && ++word < words_.size()) clear = ~words_[word];
    const int bit = clear == 0 ? 0 : std::countr_zero(clear);
    return static_cast<std::uint32_t>(word * 64) + static_cast<std::uint32_t>(bit);
  }

 private:
  std::vector<std::uint64_t> words_;
};

}  // namespace hotrow::store
