// The keys of one batch, planned once and used by the lookup and the update alike: duplicates folded, unique keys
// grouped by partition, and for each of them the row where the last lookup found it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "store/hash.h"
#include "store/recycled.h"

namespace hotrow::store {

class Batch {
 public:
  // `counted`: occurrences() will be asked for.
  Batch(std::span<const Key> keys, int partitions_log2, bool counted, int threads);
  // Of keys that the caller knows to be distinct: none is looked for twice.
  static Batch of_distinct(std::span<const Key> keys, int partitions_log2, bool counted);

  std::size_t size() const { return size_; }
  std::size_t unique() const { return unique_begin_.back(); }
  std::size_t partitions() const { return unique_begin_.size() - 1; }
  // Partition p owns the unique keys [unique_begin(p), unique_begin(p + 1)).
  std::uint32_t unique_begin(std::size_t partition) const { return unique_begin_[partition]; }

  const Key* keys() const { return keys_.get(); }                  // unique, by partition, then by first occurrence
  const std::uint32_t* inverse() const { return inverse_.get(); }  // key of the batch -> number of its unique key
  bool counted() const { return counts_.get() != nullptr || unique() == 0; }
  std::uint32_t occurrences(std::size_t unique) const { return counts_[unique]; }
  std::uint32_t* slots() { return slots_.get(); }
  const std::uint32_t* slots() const { return slots_.get(); }
  // Whether one of the others, planned for the same partitions, holds the key: one flag per unique key. `theirs` (null,
  // or of a single other): the same for its unique keys.
  void overlap(std::span<const Batch* const> others, bool* out, int threads, bool* theirs = nullptr) const;
  std::size_t without_room = 0;  // unique keys for which the last find_or_init found no room
  bool looked_up = false;        // slots hold what a lookup found; a slot is a hint, the row's key decides

  // Of a cache: unique keys whose rows have to be written back, by number, and the tick at which all rows were seen.
  std::vector<std::uint32_t> ahead;
  std::uint32_t seen_at = 0;

  // Rows that fell out for this batch, whole, by partition; filled where the table keeps them. Only the table with this
  // number can read them.
  std::vector<std::vector<std::byte>> evicted;
  std::uint64_t evicted_by = 0;

 private:
  Batch(std::size_t size, int partitions_log2);
  void fold_partitions(std::span<const Key> keys, int partitions_log2, bool counted, int threads);
  void group(const Key* found, std::size_t count, int partitions_log2, bool counted, std::uint32_t* numbers);

  std::size_t size_;
  std::vector<std::uint32_t> unique_begin_;
  Recycled<Key> keys_;
  Recycled<std::uint32_t> inverse_, slots_, counts_;
};

}  // namespace hotrow::store
