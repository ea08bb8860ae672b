// Which shard has a key, and the keys of a batch as they go to the shards: each once, those of one shard together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "store/hash.h"

namespace hotrow::store {

constexpr int kShardBits = 10;
constexpr std::uint32_t kShardsMax = 1u << kShardBits;  // more of them would leave some without keys

// Shard s takes the shard bits from s / shards of their range on: all shards get the same share of keys, give or take
// 1 / 1024. A key's place must never change, since rows outlive the run that made them.
constexpr std::uint32_t shard_of(Key key, std::uint32_t shards) {
  return shard_bits(hash_key(key)) * shards >> kShardBits;
}

// Fills out[N].
void shards_of(std::span<const Key> keys, std::uint32_t shards, std::uint32_t* out, int threads);

// Fills unique_keys[U] by shard and then by first occurrence, bounds[shards + 1] such that shard s has those from
// bounds[s] to bounds[s + 1], and inverse[N] such that keys[i] == unique_keys[inverse[i]]; returns U. unique_keys has
// room for N, of which what lies beyond U is left undefined. N is below 2^32 - 1. The result does not depend on
// `threads`.
std::size_t sharded(std::span<const Key> keys, std::uint32_t shards, Key* unique_keys, std::int64_t* bounds,
                    std::uint32_t* inverse, int threads);

}  // namespace hotrow::store
