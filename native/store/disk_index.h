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

#include "store/hash.h"

namespace hotrow::store {

constexpr std::uint32_t kNoSlot = ~std::uint32_t{0};

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
#pragma pack(push, 4)
  struct Entry {
    Key key;
    std::uint32_t slot;  // kNoSlot: the place is empty
  };
#pragma pack(pop)
  static_assert(sizeof(Entry) == 12);
  struct Page {
    std::vector<Entry> places;
    std::uint32_t entries = 0;
  };

  static constexpr std::size_t kEntriesPerPage = 512;  // on average
  static constexpr std::size_t kPlacesLeast = 16;

  static std::uint32_t home(std::uint64_t hash, std::size_t places) {
    return static_cast<std::uint32_t>(((hash >> 32) * places) >> 32);
  }
  std::size_t page_of(std::uint64_t hash) const {
    const std::size_t low = hash & ((std::size_t{1} << level_) - 1);
    return low < split_ ? hash & ((std::size_t{2} << level_) - 1) : low;
  }
  static std::size_t next(const Page& page, std::size_t place) {
    return place + 1 == page.places.size() ? 0 : place + 1;
  }
  static std::size_t place_of(const Page& page, std::uint64_t hash, Key key);
  static void insert(Page& page, const Entry& entry);
  static void resize(Page& page, std::size_t entries);
  void split_page();
  void merge_page();

  std::vector<Page> pages_;
  std::size_t entries_ = 0;
  std::size_t split_ = 0;  // the page that is divided next
  int level_ = 0;          // pages_.size() == 2^level_ + split_
};

}  // namespace hotrow::store
