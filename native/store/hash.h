// The one hash of a key, and who uses which of its bits. Shard, partition, directory, bucket and tag take disjoint
// bits, so that the keys of one shard (or one partition) still spread evenly over everything below it.
//
//   63    54 53        44 43        24 23     8 7   0
//   [ shard ] [ partition ] [ directory ] [ bucket ] [ tag ]
#pragma once

#include <cstdint>

namespace hotrow::store {

using Key = std::uint64_t;

// A bijection on 64 bits (multiply and xor-shift, twice), so distinct keys never share a whole hash.
constexpr std::uint64_t hash_key(Key key) {
  std::uint64_t h = key;
  h ^= h >> 32;
  h *= 0xd6e8feb86659fd93ull;
  h ^= h >> 32;
  h *= 0xd6e8feb86659fd93ull;
  h ^= h >> 32;
  return h;
}

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15ull;  // 2^64 over the golden ratio: sets numbers in a row apart

constexpr int kPartitionBits = 10;
constexpr int kDirectoryBits = 20;
constexpr int kBucketBits = 16;

constexpr std::uint32_t bit_field(std::uint64_t hash, int low, int bits) {
  return static_cast<std::uint32_t>(hash >> low) & ((1u << bits) - 1);
}
constexpr std::uint32_t shard_bits(std::uint64_t hash) { return bit_field(hash, 54, 10); }
constexpr std::uint32_t partition_bits(std::uint64_t hash) { return bit_field(hash, 44, kPartitionBits); }
constexpr std::uint32_t directory_bits(std::uint64_t hash) { return bit_field(hash, 24, kDirectoryBits); }
constexpr std::uint32_t bucket_bits(std::uint64_t hash) { return bit_field(hash, 8, kBucketBits); }
constexpr std::uint32_t tag_bits(std::uint64_t hash) { return bit_field(hash, 0, 8); }

}  // namespace hotrow::store
