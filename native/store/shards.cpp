#include "store/shards.h"

#include <algorithm>
#include <vector>

#include "store/parallel.h"
#include "store/scratch.h"
#include "store/unique.h"

namespace hotrow::store {
namespace {

constexpr std::size_t kKeysPerTask = 16384;

template <typename Body>
void for_each_key(std::size_t size, int threads, Body&& body) {
  parallel_for(threads, (size + kKeysPerTask - 1) / kKeysPerTask, [&](std::size_t task) {
    const std::size_t end = std::min(size, (task + 1) * kKeysPerTask);
    for (std::size_t i = task * kKeysPerTask; i < end; ++i) body(i);
  });
}

// Counting sort of the unique keys by shard; places[u] becomes where the u-th one found went. The sums are made in
// memory of this call's own: `bounds` is the caller's, who may write to it meanwhile.
void group(std::span<const Key> found, std::uint32_t shards, Key* unique_keys, std::int64_t* bounds,
           std::uint32_t* places) {
  std::vector<std::int64_t> next(shards + 1);  // counted one place up: after the sums, where each shard begins
  for (const Key key : found) ++next[shard_of(key, shards) + 1];
  for (std::uint32_t s = 0; s < shards; ++s) next[s + 1] += next[s];
  std::ranges::copy(next, bounds);
  for (std::size_t u = 0; u < found.size(); ++u) {
    const std::int64_t place = next[shard_of(found[u], shards)]++;
    unique_keys[place] = found[u];
    places[u] = static_cast<std::uint32_t>(place);
  }
}

}  // namespace

void shards_of(std::span<const Key> keys, std::uint32_t shards, std::uint32_t* out, int threads) {
  for_each_key(keys.size(), threads, [&](std::size_t i) { out[i] = shard_of(keys[i], shards); });
}

std::size_t sharded(std::span<const Key> keys, std::uint32_t shards, Key* unique_keys, std::int64_t* bounds,
                    std::uint32_t* inverse, int threads) {
  static thread_local Scratch<Key> found_room;
  static thread_local Scratch<std::uint32_t> numbers_room, inverse_room;
  std::uint32_t* const numbers = numbers_room.take(keys.size());
  if (shards == 1) {  // nothing to group: the keys are written where they stay
    const std::size_t count = unique(keys, unique_keys, inverse, numbers, threads);
    bounds[0] = 0;
    bounds[1] = static_cast<std::int64_t>(count);
    return count;
  }
  Key* const found = found_room.take(keys.size());
  std::uint32_t* const own_inverse = inverse_room.take(keys.size());  // the caller's may be written to meanwhile
  const std::size_t count = unique(keys, found, own_inverse, numbers, threads);
  group({found, count}, shards, unique_keys, bounds, numbers);
  for_each_key(keys.size(), threads, [&](std::size_t i) { inverse[i] = numbers[own_inverse[i]]; });
  return count;
}

}  // namespace hotrow::store
