// Which keys a page may have: a Bloom filter in blocks of 64 bytes, five bits a key, all of them in one block. At 44
// keys a block about one absent key in a hundred is taken for one that may be there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "store/hash.h"

namespace hotrow::store {

class KeyFilter {
 public:
  static constexpr std::size_t kKeysOfBlock = 44;

  bool room(std::size_t keys) const { return keys <= blocks_ * kKeysOfBlock; }
  // Empty from now on, with room for so many keys.
  void reset(std::size_t keys) {
    const auto blocks = static_cast<std::uint32_t>((keys + kKeysOfBlock - 1) / kKeysOfBlock);
    if (blocks != blocks_) words_ = blocks == 0 ? nullptr : std::make_unique_for_overwrite<std::uint64_t[]>(8 * blocks);
    blocks_ = blocks;
    std::fill_n(words_.get(), 8 * std::size_t{blocks}, 0);
  }
  void add(std::uint64_t hash) {
    const std::uint64_t bits = mixed(hash);
    std::uint64_t* block = words_.get() + 8 * block_of(bits);
    for (int i = 0; i < kBitsOfKey; ++i) block[bits >> (9 * i + 6) & 7] |= std::uint64_t{1} << (bits >> (9 * i) & 63);
  }
  bool may_have(std::uint64_t hash) const {
    if (blocks_ == 0) return false;
    const std::uint64_t bits = mixed(hash);
    const std::uint64_t* block = words_.get() + 8 * block_of(bits);
    bool all = true;
    for (int i = 0; i < kBitsOfKey; ++i) all &= (block[bits >> (9 * i + 6) & 7] >> (bits >> (9 * i) & 63) & 1) != 0;
    return all;
  }
  // Whether it has what a filter of the same size has after `add` of these hashes, and no more.
  template <typename Hashes>
  bool same_as(const Hashes& hashes) const {
    KeyFilter twin;
    twin.reset(blocks_ * kKeysOfBlock);
    for (const std::uint64_t hash : hashes) twin.add(hash);
    return std::equal(words_.get(), words_.get() + 8 * std::size_t{blocks_}, twin.words_.get());
  }
  // With what the heap needs for it.
  std::size_t bytes() const { return blocks_ == 0 ? 0 : 64 * std::size_t{blocks_} + 16; }

 private:
  static constexpr int kBitsOfKey = 5;

  // The keys of a page have equal bits of their hash.
  static std::uint64_t mixed(std::uint64_t hash) { return fold_product(hash ^ kGolden, 0xd6e8feb86659fd93ull); }
  std::size_t block_of(std::uint64_t bits) const { return ((bits >> 45) * blocks_) >> 19; }

  std::unique_ptr<std::uint64_t[]> words_;
  std::uint32_t blocks_ = 0;
};

}  // namespace hotrow::store
