// The rows of one partition, addressed by a 32-bit index. Rows lie in chunks that never move: a few that double, so
// that small tables stay small, then chunks of equal size, so that growing is one small piece at a time. Free rows form
// a list through their key. Chunks come from the arena, or from a segment that outlives the process.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "store/arena.h"
#include "store/layout.h"
#include "store/segment.h"

namespace hotrow::store {

constexpr std::uint32_t kNoRow = 0xffffffffu;

class Slab {
 public:
  // At most `rows_max` rows; none are taken beyond them, and the last chunk ends there. `segment` may be null.
  Slab(Arena& arena, Segment* segment, std::uint32_t partition, std::size_t row_bytes, std::uint32_t rows_max)
      : arena_(arena),
        segment_(segment),
        partition_(partition),
        row_bytes_(row_bytes),
        rows_max_(std::min(rows_max, kRowsMax)),
        full_log2_(kFirstLog2) {
    while (row_bytes << (full_log2_ + 1) <= kChunkBytes) ++full_log2_;
  }

  // Of a chunk of a large slab.
  static std::size_t chunk_bytes(std::size_t row_bytes) {
    std::size_t bytes = row_bytes << kFirstLog2;
    while (bytes * 2 <= kChunkBytes) bytes *= 2;
    return bytes;
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
    if (end_ == rows_max_) throw std::length_error("a partition is full: give the table more partitions");
    if (chunk_of(end_) == bases_.size()) add_chunk();
    return end_++;
  }

  void give(std::uint32_t index) {
    std::byte* freed = row(index);
    Layout::mark(freed, 0);
    Layout::key(freed) = free_head_;
    free_head_ = index;
    ++free_rows_;
  }

  // Adds chunks for so many rows. Not in a segment: what is added there and not used would stay when the process ends.
  void reserve(std::size_t rows) {
    while (segment_ == nullptr && room_ < std::min<std::size_t>(rows, rows_max_)) add_chunk();
  }

  bool full() const { return free_head_ == kNoRow && end_ == rows_max_; }
  std::uint32_t rows_max() const { return rows_max_; }

  // Takes over a chunk that an earlier process left in the segment; false: it is not the one that comes next.
  bool adopt(const Piece& piece) {
    if (room_ == rows_max_ || piece.tag.first_index != room_ || piece.tag.rows != next_chunk_rows() ||
        piece.bytes < piece.tag.rows * row_bytes_)
      return false;
    push_chunk(piece.memory, piece.tag.rows);
    return true;
  }
  std::uint32_t room() const { return room_; }  // rows that the chunks hold, used or not

  // After adopting: rows up to the last live one were handed out, those between are free.
  void recover() {
    end_ = room_;
    while (end_ > 0 && !Layout::live(row(end_ - 1))) --end_;
    for (std::uint32_t index = end_; index-- > 0;)
      if (!Layout::live(row(index))) give(index);
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

  std::uint32_t next_chunk_rows() const {
    const std::uint32_t doubling = std::max(room_, 1u << kFirstLog2);
    return std::min({doubling, 1u << full_log2_, rows_max_ - room_});
  }

  void add_chunk() {
    const std::uint32_t rows = next_chunk_rows();
    const std::size_t bytes = rows * row_bytes_;
    reserve_chunk();
    push_chunk(segment_ != nullptr ? segment_->allocate({partition_, room_, rows}, bytes) : arena_.allocate(bytes),
               rows);
  }

  void reserve_chunk() {
    if (bases_.size() == bases_.capacity()) bases_.reserve(std::max<std::size_t>(8, bases_.size() * 2));
  }

  void push_chunk(std::byte* memory, std::uint32_t rows) {
    reserve_chunk();
    // The address row 0 would have, so that row() needs no second number per chunk.
    bases_.push_back(reinterpret_cast<std::uintptr_t>(memory) - std::uintptr_t{room_} * row_bytes_);
    room_ += rows;
  }

  Arena& arena_;
  Segment* segment_;
  std::uint32_t partition_;
  std::size_t row_bytes_;
  std::uint32_t rows_max_;
  int full_log2_;
  std::vector<std::uintptr_t> bases_;
  std::uint32_t room_ = 0, end_ = 0;
  std::uint32_t free_head_ = kNoRow;
  std::uint32_t free_rows_ = 0;
};

}  // namespace hotrow::store
