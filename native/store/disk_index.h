// Where the rows of a disk file are: key -> slot, in at most 15 bytes of memory a row at every size.
//
// Linear hashing: the table grows by one page at a time, and each time one page is divided in two; it shrinks by the
// same steps back. A page is a small
// open-addressed table of entries of 12 bytes (linear probing, no tombstones) that is kept at a load from 0.80 to 0.90
// by copying it, so that there is never a moment at which half of the memory is empty.
//
// The caller locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "store/index_places.h"

namespace hotrow::store {

class DiskIndex {
 public:
  DiskIndex() : pages_(1) {}

  std::size_t size() const { return entries_; }
  std::size_t bytes() const;
  void prefetch(Key key) const;

  std::uint32_t find(Key key) const;  // kNoSlot: absent
  // Inserts or overwrites; gives what was there, or kNoSlot.
  std::uint32_t put(Key key, std::uint32_t slot);
  // Gives what was there, or kNoSlot.
  std::uint32_t erase(Key key);
  void verify(std::vector<std::string>& faults) const;

 private:
  using Entry = IndexEntry;
  struct Page {
    std::vector<Entry> places;
    std::uint32_t entries = 0;
  };

  static constexpr std::size_t kEntriesPerPage = 512;  // on average
  static constexpr std::size_t kPlacesLeast = 16;

  std::size_t page_of(std::uint64_t hash) const {
    const std::size_t low = hash & ((std::size_t{1} << level_) - 1);
    return low < split_ ? hash & ((std::size_t{2} << level_) - 1) : low;
  }
  static void resize(Page& page, std::size_t entries);
  void split_page();
  void merge_page();

  std::vector<Page> pages_;
  std::size_t entries_ = 0;
  std::size_t split_ = 0;  // the page that is divided next
  int level_ = 0;          // pages_.size() == 2^level_ + split_
};

}  // namespace hotrow::store
