#include "store/batch.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "store/parallel.h"
#include "store/scatter.h"
#include "store/scratch.h"
#include "store/unique.h"

namespace hotrow::store {
namespace {

constexpr std::size_t kKeysPerTask = 16384;
constexpr std::size_t kPartitionsMin = 16;  // fewer do not keep many threads busy

}  // namespace

Batch::Batch(std::size_t size, int partitions_log2)
    : size_(size), unique_begin_((std::size_t{1} << partitions_log2) + 1) {
  if (size_ >= 0xffffffffu) throw std::length_error("a batch holds at most 4,294,967,294 keys: split it");
}

Batch Batch::of_distinct(std::span<const Key> keys, int partitions_log2, bool counted) {
  Batch batch(keys.size(), partitions_log2);
  batch.inverse_.make(keys.size());
  std::fill_n(batch.inverse_.get(), keys.size(), 1u);  // each occurs once
  batch.group(keys.data(), keys.size(), partitions_log2, counted, batch.inverse_.get());
  return batch;
}

Batch::Batch(std::span<const Key> keys, int partitions_log2, bool counted, int threads)
    : Batch(keys.size(), partitions_log2) {
  static thread_local Scratch<Key> found_room;
  static thread_local Scratch<std::uint32_t> counts_room;
  Key* const found = found_room.take(size_);
  std::uint32_t* const numbers = counts_room.take(size_);
  inverse_.make(size_);
  if (const int worth = folding_threads(size_, threads);
      worth > 1 && partitions() >= kPartitionsMin && partitions() <= kScatterPartsMax) {
    fold_partitions(keys, partitions_log2, counted, worth);
    return;
  }
  const std::size_t count = store::unique(keys, found, inverse_.get(), numbers, threads);
  group(found, count, partitions_log2, counted, numbers);
  parallel_for(threads, (size_ + kKeysPerTask - 1) / kKeysPerTask, [&](std::size_t task) {
    const std::size_t end = std::min(size_, (task + 1) * kKeysPerTask);
    for (std::size_t i = task * kKeysPerTask; i < end; ++i) inverse_[i] = numbers[inverse_[i]];
  });
}

// Many threads: each folds the keys of whole partitions, which stand in the order that `group` gives them.
void Batch::fold_partitions(std::span<const Key> keys, int partitions_log2, bool counted, int threads) {
  static thread_local ScatteredKeys::Buffers buffers;
  static thread_local Scratch<std::uint32_t> local_room, counts_room;
  const ScatteredKeys scattered(keys, partitions(), threads, buffers, [=](Key key) {
    return partition_bits(hash_key(key)) >> (kPartitionBits - partitions_log2);
  });
  std::uint32_t* const local = local_room.take(size_);  // number of a key in its partition
  std::uint32_t* const occurs = counts_room.take(size_);
  const std::vector<std::uint32_t> order = scattered.largest_first();
  parallel_for(threads, order.size(), [&](std::size_t task) {
    static thread_local Scratch<std::uint32_t> slots;
    const std::size_t p = order[task], begin = scattered.begin(p);
    Key* const own = scattered.keys + begin;
    unique_begin_[p + 1] =
        static_cast<std::uint32_t>(unique_serial({own, scattered.size(p)}, own, local + begin, occurs + begin, slots));
  });
  for (std::size_t p = 0; p < partitions(); ++p) unique_begin_[p + 1] += unique_begin_[p];
  keys_.make(unique());
  slots_.make(unique());
  if (counted) counts_.make(unique());
  parallel_for(threads, partitions() + scattered.chunks(), [&](std::size_t task) {
    if (task >= scattered.chunks()) {
      const std::size_t p = task - scattered.chunks(), count = unique_begin_[p + 1] - unique_begin_[p];
      std::copy_n(scattered.keys + scattered.begin(p), count, keys_.get() + unique_begin_[p]);
      if (counted) std::copy_n(occurs + scattered.begin(p), count, counts_.get() + unique_begin_[p]);
    } else {
      scattered.walk(
          task, [&](std::size_t i, std::size_t p, std::uint32_t at) { inverse_[i] = unique_begin_[p] + local[at]; });
    }
  });
}

// A table of the own keys of a partition, which the others' keys of it are looked up in.
void Batch::overlap(std::span<const Batch* const> others, bool* out, int threads, bool* theirs) const {
  for (const Batch* other : others)
    if (other->partitions() != partitions())
      throw std::invalid_argument("overlap: the batches were planned for tables with other numbers of partitions");
  if (unique() < kKeysPerTask) threads = 1;
  parallel_for(threads, partitions(), [&](std::size_t p) {
    constexpr std::uint32_t kNobody = 0xffffffffu;
    static thread_local Scratch<std::uint32_t> room;
    const std::uint32_t begin = unique_begin_[p], end = unique_begin_[p + 1];
    const std::size_t mask = std::bit_ceil(std::size_t{2} * (end - begin) + 1) - 1;
    std::uint32_t* const table = room.take(mask + 1);
    std::fill_n(table, mask + 1, kNobody);
    // The place of the key, or the empty one where it would stand.
    const auto place_of = [&](Key key) {
      std::size_t place = secret_hash(key).bits & mask;
      while (table[place] != kNobody && keys_[table[place]] != key) place = (place + 1) & mask;
      return place;
    };
    for (std::uint32_t u = begin; u < end; ++u) {
      table[place_of(keys_[u])] = u;
      out[u] = false;
    }
    for (const Batch* other : others)
      for (std::uint32_t u = other->unique_begin(p); u < other->unique_begin(p + 1); ++u) {
        const std::uint32_t own = table[place_of(other->keys_[u])];
        if (own != kNobody) out[own] = true;
        if (theirs != nullptr) theirs[u] = own != kNobody;
      }
  });
}

// Counting sort of the unique keys by partition. numbers[u] says how often the u-th one found occurs, and becomes its
// place.
void Batch::group(const Key* found, std::size_t count, int partitions_log2, bool counted, std::uint32_t* numbers) {
  const auto partition = [=](Key key) { return partition_bits(hash_key(key)) >> (kPartitionBits - partitions_log2); };
  for (std::size_t u = 0; u < count; ++u) ++unique_begin_[partition(found[u]) + 1];
  for (std::size_t p = 0; p < partitions(); ++p) unique_begin_[p + 1] += unique_begin_[p];
  keys_.make(count);
  slots_.make(count);
  if (counted) counts_.make(count);
  std::vector<std::uint32_t> next(unique_begin_);
  for (std::size_t u = 0; u < count; ++u) {
    const std::uint32_t place = next[partition(found[u])]++;
    keys_[place] = found[u];
    if (counted) counts_[place] = numbers[u];
    numbers[u] = place;
  }
}

}  // namespace hotrow::store
