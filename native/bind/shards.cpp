// Shards of keys in hotrow._native; hotrow.store.shards is their Python face.
#include "store/shards.h"

#include "bind/arrays.h"

namespace hotrow::bind {
namespace {

using Keys = HostArray<const store::Key, 1>;
using KeysOut = HostArray<store::Key, 1>;
using NumbersOut = HostArray<std::uint32_t, 1>;
using BoundsOut = HostArray<std::int64_t, 1>;

constexpr std::size_t kKeysMax = 0xfffffffe;  // unique keys are numbered in 32 bits

void check_numbers(const std::string& who, std::size_t keys, std::uint32_t shards, int threads) {
  demand(shards >= 1 && shards <= store::kShardsMax,
         who + ": shards=" + std::to_string(shards) + ": must be from 1 to " + std::to_string(store::kShardsMax));
  demand(keys <= kKeysMax,
         who + ": keys holds " + std::to_string(keys) + " ids: must be below 2^32 - 1 (split the batch)");
  check_threads(threads);
}

void shard_of(const Keys& keys, std::uint32_t shards, const NumbersOut& out, int threads) {
  check_numbers("shard_of", keys.size(), shards, threads);
  check_shape("shard_of: out", out, {keys.size()});
  const nb::gil_scoped_release unlocked;
  store::shards_of(span_of(keys), shards, out.data(), threads);
}

std::size_t sharded(const Keys& keys, std::uint32_t shards, const KeysOut& unique_keys, const BoundsOut& bounds,
                    const NumbersOut& inverse, int threads) {
  check_numbers("sharded", keys.size(), shards, threads);
  check_shape("sharded: unique_keys", unique_keys, {keys.size()});
  check_shape("sharded: bounds", bounds, {shards + std::size_t{1}});
  check_shape("sharded: inverse", inverse, {keys.size()});
  const nb::gil_scoped_release unlocked;
  return store::sharded(span_of(keys), shards, unique_keys.data(), bounds.data(), inverse.data(), threads);
}

}  // namespace

void bind_shards(nb::module_& m) {
  m.def("shard_of", &shard_of, "keys"_a.noconvert(), "shards"_a, "out"_a.noconvert(), "threads"_a,
        "The shard of each key.");
  m.def("sharded", &sharded, "keys"_a.noconvert(), "shards"_a, "unique_keys"_a.noconvert(), "bounds"_a.noconvert(),
        "inverse"_a.noconvert(), "threads"_a,
        "Deduplicate, grouped by shard and then by first occurrence; return the number of unique keys.");
}

}  // namespace hotrow::bind
