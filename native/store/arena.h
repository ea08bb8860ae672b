// Memory of one table: zeroed, handed out in pieces that never move and are given back only all together. Pieces are
// cut one after the other from blocks that are mapped ahead but touched only as they are used, so the system clears
// pages at the pace at which the table grows, and room for growth costs nothing. Blocks of 2 MB and more ask for 2 MB
// pages.
#pragma once

#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace hotrow::store {

class Arena {
 public:
  Arena() = default;
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Zeroed bytes, aligned to a cache line. Throws std::bad_alloc and changes nothing when the system has none left.
  std::byte* allocate(std::size_t bytes);
  std::size_t bytes() const;  // handed out so far

 private:
  void map_block(std::size_t bytes);

  mutable std::mutex mutex_;
  std::vector<std::pair<void*, std::size_t>> mappings_;
  std::byte* free_ = nullptr;  // rest of the block that pieces are cut from
  std::size_t free_bytes_ = 0, handed_out_ = 0;
  std::size_t next_block_ = 256 << 10;  // doubles, so small tables stay small
};

}  // namespace hotrow::store
