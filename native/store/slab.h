// The rows of one partition, addressed by a 32-bit index. Rows lie in chunks that never move: a few that double, so
// that small tables stay small, then chunks of equal size, so that growing is one small piece at a time. Free rows form
// a list through their key.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "store/arena.h"
#include "store/layout.h"

namespace hotrow::store {

constexpr std::uint32_t kNoRow = 0xffffffffu;

class Slab {
 public:
  Slab(Arena& arena, std::size_t row_bytes) : arena_(arena), row_bytes_(row_bytes), full_log2_(kFirstLog2) {
    while (row_bytes << (full_log2_ + 1) <= kChunkBytes) ++full_log2_;
  }

  std::byte* row(std::uint32_t index) const {
    return reinterpret_cast<std::byte*>(bases_[chunk_of(index)] + std::uintptr_t{index} * row_bytes_);
  }

  // A row to fill: the last one given back, or a new one at the end. Its version is 0 until the caller sets it.
  std::uint32_t take() {
    if (free_head_ != kNoRow) {
      const std::uint32_t index = free_head_;
      free_head_ = static_cast<std::uint32_t>(Layout::key(row(index)));
      --free_rows_;
      return index;
    }
    if (end_ == kRowsMax) throw std::length_error("a partition is full: give the table more partitions");
    if (chunk_of(end_) == bases_.size()) add_chunk();
    return end_++;
  }

  void give(std::uint32_t index) {
    std::byte* freed = row(index);
    Layout::version(freed) = 0;
    Layout::key(freed) = free_head_;
    free_head_ = index;
    ++free_rows_;
  }

  std::uint32_t end() const { return end_; }  // indexes below it were handed out at some time
  std::uint32_t rows() const { return end_ - free_rows_; }
  std::uint32_t free_rows() const { return free_rows_; }
  std::uint32_t free_head() const { return free_head_; }
  std::size_t row_bytes() const { return row_bytes_; }

 private:
  static constexpr int kFirstLog2 = 6;
  static constexpr std::size_t kChunkBytes = 512 << 10;
  static constexpr std::uint32_t kRowsMax = 0xffffff00u;

  // Chunk 0 holds 2^6 rows, chunk c below the full size the rows [2^(5+c), 2^(6+c)), the others 2^full_log2 rows each.
  std::size_t chunk_of(std::uint32_t index) const {
    const std::uint32_t full = index >> full_log2_;
    if (full != 0) return static_cast<std::size_t>(full_log2_ - kFirstLog2) + full;
    return static_cast<std::size_t>(std::bit_width(index >> kFirstLog2));
  }

  void add_chunk() {
    const std::uint32_t doubling = std::max(end_, 1u << kFirstLog2);
    const std::size_t rows = std::min<std::size_t>(doubling, std::size_t{1} << full_log2_);
    if (bases_.size() == bases_.capacity()) bases_.reserve(std::max<std::size_t>(8, bases_.size() * 2));
    // The address row 0 would have, so that row() needs no second number per chunk.
    bases_.push_back(reinterpret_cast<std::uintptr_t>(arena_.allocate(rows * row_bytes_)) -
                     std::uintptr_t{end_} * row_bytes_);
  }

  Arena& arena_;
  std::size_t row_bytes_;
  int full_log2_;
  std::vector<std::uintptr_t> bases_;
  std::uint32_t end_ = 0;
  std::uint32_t free_head_ = kNoRow;
  std::uint32_t free_rows_ = 0;
};

}  // namespace hotrow::store
