// What this machine can do at best, for benchmarks to be measured against: reading rows at random places with every
// row asked for in good time, and copying in a straight line. Nothing of the store's own structures takes part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "store/arena.h"

namespace hotrow::store {

// Rows of plain memory in 2 MB pages where the system gives them; all pages are touched when it is made.
class RowField {
 public:
  // row_bytes: a multiple of 4.
  RowField(std::size_t rows, std::size_t row_bytes, int threads);

  std::size_t rows() const { return rows_; }
  std::size_t row_bytes() const { return row_bytes_; }

  // Reads the whole of each of these rows, in order, and returns the seconds it took. Every row must be below rows().
  double read_seconds(std::span<const std::int64_t> rows, int threads) const;

 private:
  std::size_t rows_;
  std::size_t row_bytes_;
  Arena arena_;
  std::uint32_t* words_;
};

// A straight run of memory and room for its copy.
class CopyField {
 public:
  CopyField(std::size_t bytes, int threads);

  std::size_t bytes() const { return bytes_; }

  // Copies all bytes once and returns the seconds it took.
  double copy_seconds(int threads);

 private:
  std::size_t bytes_;
  Arena arena_;
  std::byte* from_;
  std::byte* to_;
};

}  // namespace hotrow::store
