#include "store/batch.h"

#include <algorithm>
#include <stdexcept>

#include "store/parallel.h"
#include "store/scratch.h"
#include "store/unique.h"

namespace hotrow::store {
namespace {

constexpr std::size_t kKeysPerTask = 16384;

}  // namespace

// Grouping all keys by partition first and folding each group apart would use every thread, and was slower on two (2.4
// against 1.5 ms for 106,496 keys): the scattered copies cost more than the smaller hash tables save. One part of the
// partitions per thread, each picking its keys out of the batch, took 1.2 to 1.8 ms on two threads and 1.6 on one.
Batch::Batch(std::span<const Key> keys, int partitions_log2, bool counted, int threads)
    : size_(keys.size()), unique_begin_((std::size_t{1} << partitions_log2) + 1) {
  if (size_ >= 0xffffffffu) throw std::length_error("a batch holds at most 4,294,967,294 keys: split it");
  static thread_local Scratch<Key> found_room;
  static thread_local Scratch<std::uint32_t> counts_room;
  Key* const found = found_room.take(size_);
  std::uint32_t* const numbers = counts_room.take(size_);
  inverse_.reset(new std::uint32_t[size_]);
  const std::size_t count = store::unique(keys, found, inverse_.get(), numbers, threads);
  group(found, count, partitions_log2, counted, numbers);
  parallel_for(threads, (size_ + kKeysPerTask - 1) / kKeysPerTask, [&](std::size_t task) {
    const std::size_t end = std::min(size_, (task + 1) * kKeysPerTask);
    for (std::size_t i = task * kKeysPerTask; i < end; ++i) inverse_[i] = numbers[inverse_[i]];
  });
}

// Counting sort of the unique keys by partition. numbers[u] says how often the u-th one found occurs, and becomes its
// place.
void Batch::group(const Key* found, std::size_t count, int partitions_log2, bool counted, std::uint32_t* numbers) {
  const auto partition = [=](Key key) { return partition_bits(hash_key(key)) >> (kPartitionBits - partitions_log2); };
  for (std::size_t u = 0; u < count; ++u) ++unique_begin_[partition(found[u]) + 1];
  for (std::size_t p = 0; p < partitions(); ++p) unique_begin_[p + 1] += unique_begin_[p];
  keys_.reset(new Key[count]);
  slots_.reset(new std::uint32_t[count]);
  if (counted) counts_.reset(new std::uint32_t[count]);
  std::vector<std::uint32_t> next(unique_begin_);
  for (std::size_t u = 0; u < count; ++u) {
    const std::uint32_t place = next[partition(found[u])]++;
    keys_[place] = found[u];
    if (counted) counts_[place] = numbers[u];
    numbers[u] = place;
  }
}

}  // namespace hotrow::store
