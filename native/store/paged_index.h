// Where the rows of a disk file are, in a file of its own: key -> slot, with about two bytes of memory a row.
//
// Extendible hashing: a directory in memory names the page of a hash, and a page that is full is divided in two. Pages
// are blocks of 4 KiB of the file. Memory has a filter for each page, exact after every change, and a bounded number of
// pages; pages that changed are written when they leave. Memory has a checksum of each block, too: one that is not what
// was written last raises DiskError.
//
// The file is scratch: the rows on disk are the truth, and opening them makes the index anew. So it is unlinked as soon
// as it is open, never flushed, and a killed process leaves nothing of it.
//
// The caller locks, shared to find and alone to change, and brings the pages of the keys first: `IndexPins` names them
// under the lock, `bring` reads them without it.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "store/disk_file.h"
#include "store/index_places.h"
#include "store/key_filter.h"

namespace hotrow::store {

enum class IndexUse { find, put, erase };

struct PagedIndexStats {
  std::size_t filter_bytes = 0;  // of the memory of the index
  std::size_t cache_bytes = 0;   // pages in memory
  std::uint64_t file_bytes = 0, reads = 0, writes = 0;
};

class PagedIndex {
 public:
  PagedIndex(const std::string& path, bool direct, IoChoice io, int depth, std::size_t cache_bytes,
             const WrapEngine& wrap = {});
  ~PagedIndex();
  PagedIndex(const PagedIndex&) = delete;
  PagedIndex& operator=(const PagedIndex&) = delete;

  std::size_t size() const { return entries_; }
  std::size_t bytes() const;  // of memory, without the pages in it
  PagedIndexStats stats() const;
  // Of one `bring`: a quarter of the pages that memory has, so that calls at the same time do not displace each other.
  std::size_t keys_at_once() const { return std::max<std::size_t>(64, frames_most_ / 4); }

  std::size_t cache_bytes() const { return frames_most_ * kPage; }
  // Of an index without entries: 2^depth pages, so that keys may come in the order of the low bits of their hashes.
  void divide(int depth);

  // The pages of these keys are in memory.
  std::uint32_t find(Key key) const;  // kNoSlot: absent
  std::uint32_t put(Key key, std::uint32_t slot);
  std::uint32_t erase(Key key);

  // The file has room for the pages that so many keys may add; DiskFullError: nothing has changed.
  void reserve(std::shared_mutex& state, std::size_t keys);
  // Reads pages into memory; `state` is not held. One call at a time works.
  void bring(std::shared_mutex& state, const std::vector<std::uint32_t>& pages);

  std::uint32_t page_count() const { return static_cast<std::uint32_t>(pages_.size()); }
  // Of one page that is in memory; returns its entries.
  std::size_t verify_page(std::uint32_t number, std::vector<std::string>& faults) const;
  std::size_t overflow() const { return overflow_.size(); }

 private:
  friend class IndexPins;
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  static constexpr std::size_t kPlaces = kPage / sizeof(IndexEntry);
  static constexpr std::uint32_t kEntriesMost = 306;    // 0.9 of the places
  static constexpr std::uint32_t kEntriesMerged = 150;  // of two pages that become one

  struct Page {
    KeyFilter filter;
    std::uint32_t frame = kNone;  // kNone: not in memory
    std::uint32_t pins = 0;       // changed under the shared lock
    std::uint32_t sum = 0;        // checksum of its block in the file
    std::uint16_t entries = 0;
    std::uint8_t depth = 0;  // bits of the hash that its keys share
  };
  struct Frame {
    std::byte* memory;
    std::uint32_t page = kNone;
    bool dirty = false;
    std::uint8_t used = 0;  // since the hand passed; set under the shared lock
  };

  std::uint32_t number_of(std::uint64_t hash) const { return directory_[hash & (directory_.size() - 1)]; }
  std::span<IndexEntry> places(const Page& page) const {
    return {reinterpret_cast<IndexEntry*>(frames_[page.frame].memory), kPlaces};
  }
  std::span<IndexEntry> changed_places(std::uint32_t number);
  void rebuild_filter(Page& page);
  bool split(std::uint32_t number, std::uint64_t hash);
  void merge(std::uint32_t number, std::uint64_t hash);
  std::uint32_t buddy_of(std::uint32_t number, std::uint64_t hash) const;
  void drop(std::uint32_t number);
  void halve_directory();

  void bring_part(std::shared_mutex& state, std::span<const std::uint32_t> wanted);
  std::uint32_t take_frame(std::uint32_t page);
  void free_frame(std::uint32_t frame);
  bool evict(std::vector<std::uint32_t>& leaving);
  void take_back(const std::vector<std::uint32_t>& leaving);
  std::vector<std::uint32_t> write_pages(std::span<const std::uint32_t> leaving);
  void read_pages(std::span<IoRequest> requests, std::span<const std::uint32_t> sums);
  // An eighth of the frames is for pages that are divided under the lock, where none can leave.
  std::size_t frames_filled() const { return frames_most_ - frames_most_ / 8; }
  bool crowded() const { return resident_ > frames_filled(); }
  bool absent(const Page& page) const { return page.frame == kNone && page.entries > 0; }

  std::unique_ptr<DiskFile> file_;
  std::size_t frames_most_;
  AlignedBuffer pool_;     // the memory of the first frames; pages beyond the bound have memory of their own
  AlignedBuffer leaving_;  // copies of pages that are being written
  std::mutex bringing_;

  std::vector<std::uint32_t> directory_{0};
  std::deque<Page> pages_;
  std::vector<std::uint32_t> free_pages_;
  std::vector<std::size_t> at_depth_ = std::vector<std::size_t>(33);  // pages of each depth
  std::unordered_map<Key, std::uint32_t> overflow_;                   // keys whose hashes no depth tells apart
  std::size_t entries_ = 0;
  int depth_ = 0;  // of the directory

  std::vector<Frame> frames_;
  std::vector<std::uint32_t> free_frames_, free_extra_;
  std::size_t resident_ = 0, hand_ = 0;
};

// The pages that a call needs, which do not leave memory meanwhile. Made and ended under the lock.
class IndexPins {
 public:
  explicit IndexPins(PagedIndex& index) : index_(index) {}
  ~IndexPins() { release(pages_); }
  IndexPins(const IndexPins&) = delete;
  IndexPins& operator=(const IndexPins&) = delete;

  // Whether all pages of the keys are in memory. Those that a filter answers for are not needed to find.
  bool take(std::span<const Key> keys, IndexUse use);
  bool take_pages(std::vector<std::uint32_t> pages);
  const std::vector<std::uint32_t>& pages() const { return pages_; }

 private:
  void release(const std::vector<std::uint32_t>& pages);

  PagedIndex& index_;
  std::vector<std::uint32_t> pages_;
  bool trimmed_ = false;
};

}  // namespace hotrow::store
