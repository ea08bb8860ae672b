// The two hashes of a key.
//
// `hash_key` is public and the same everywhere: it says where a row lives (shard, partition) and what it starts with,
// which must not change from run to run. Shard and partition take disjoint bits, so that the keys of one shard still
// spread evenly over the partitions below it.
//
//   63    54 53        44 43                 0
//   [ shard ] [ partition ] [ nobody's        ]
//
// `secret_hash` is keyed by random numbers that each process draws anew: it orders structures in memory that are
// derived from the rows (the index, the folding of duplicates, exact counts of admission) and shows in no result. Ids
// come from users; whoever chose them to collide would have to know the numbers.
//
//   63      40 39     24 23    8 7   0
//   [ directory ] [ bucket ] [ ... ] [ tag ]
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

struct HashSecret {
  std::uint64_t add, multiply, add_again, multiply_again;  // the factors are odd
};
extern const HashSecret process_secret;  // hash.cpp

// A type of its own: an index that is asked by the public hash would not find its rows.
struct SecretHash {
  std::uint64_t bits;
};

// Both halves of a product of 128 bits. XOR and one odd factor alone would not do: keys that differ in the highest bits
// collide under every seed then, because a low half never sees them.
inline std::uint64_t fold_product(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

inline SecretHash secret_hash(Key key) {
  const HashSecret& secret = process_secret;
  return {fold_product(fold_product(key ^ secret.add, secret.multiply) ^ secret.add_again, secret.multiply_again)};
}

constexpr int kPartitionBits = 10;
constexpr int kDirectoryBits = 24;  // enough for more segments than a slab has rows for
constexpr int kBucketBits = 16;

constexpr std::uint32_t bit_field(std::uint64_t hash, int low, int bits) {
  return static_cast<std::uint32_t>(hash >> low) & ((1u << bits) - 1);
}
constexpr std::uint32_t shard_bits(std::uint64_t hash) { return bit_field(hash, 54, 10); }
constexpr std::uint32_t partition_bits(std::uint64_t hash) { return bit_field(hash, 44, kPartitionBits); }
constexpr std::uint32_t directory_bits(SecretHash hash) { return bit_field(hash.bits, 40, kDirectoryBits); }
constexpr std::uint32_t bucket_bits(SecretHash hash) { return bit_field(hash.bits, 24, kBucketBits); }
constexpr std::uint32_t tag_bits(SecretHash hash) { return bit_field(hash.bits, 0, 8); }

}  // namespace hotrow::store
