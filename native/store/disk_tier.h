// The rows of a table on disk: a log of fixed slots in extents, and an index of them. A row is appended, never changed;
// a newer copy of its key supersedes it. Extents whose rows have all been superseded are used again, those with few are
// emptied in the background.
//
// Locks, in this order: `append_` (whoever adds slots: writes, erasures, compaction; nothing else changes the index),
// `reclaim_` (retired extents become free), `state_` (index, extents, counters: shared to look up, and never held over
// disk I/O: `locked` takes it when the pages of the index that a call needs are in memory).
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "store/disk_file.h"
#include "store/disk_format.h"
#include "store/extents.h"
#include "store/slot_index.h"
#include "store/slot_partitions.h"
#include "store/staging.h"

namespace hotrow::store {

constexpr std::uint32_t kExtentsForCompaction = 2;  // free extents that writes leave alone

struct DiskSpec {
  std::string path;
  Identity identity;  // what must agree between the file and the table
  SlotLayout layout;
  std::uint64_t capacity_bytes;
  bool direct;
  IoChoice io;
  int depth;  // requests under way at a time
  std::size_t write_behind;
  std::string staging;  // a file of shared memory for rows that are not written yet; empty: memory of the process
  int threads;
  std::optional<std::size_t> index_cache = {};  // bytes of its pages in memory, where the index is in a file
  WrapEngine rows_io = {}, index_io = {};       // of the two files
};

// What was in a file that was there.
struct OpenedFile {
  std::size_t rows = 0;
  std::size_t torn = 0;        // slots that are not whole
  std::size_t superseded = 0;  // whole copies that do not count
  double seconds = 0;
};

struct DiskStats {
  std::size_t rows = 0, shadowed = 0, tombstones = 0, capacity_rows = 0, staged_rows = 0;
  std::size_t extents = 0, free_extents = 0, slots_per_extent = 0, slot_bytes = 0, extent_bytes = 0;
  std::size_t index_bytes = 0, index_filter_bytes = 0, index_cache_bytes = 0, bitmap_bytes = 0, staging_bytes = 0;
  std::uint64_t file_bytes = 0, reads = 0, read_bytes = 0, writes = 0, write_bytes = 0, syncs = 0;
  std::uint64_t rows_read = 0, rows_read_buffered = 0, rows_written = 0, rows_erased = 0;
  std::uint64_t compacted_extents = 0, compacted_rows = 0, reused_extents = 0, damaged = 0;
  std::uint64_t index_file_bytes = 0, index_reads = 0, index_writes = 0;
  double read_wait_s = 0, write_stall_s = 0;
  bool direct = false;
  std::string io;
};

class DiskTier {
 public:
  explicit DiskTier(DiskSpec spec);
  // In a forked child it only lets go of its memory: threads and file are the parent's.
  ~DiskTier();
  DiskTier(const DiskTier&) = delete;
  DiskTier& operator=(const DiskTier&) = delete;

  const SlotLayout& layout() const { return spec_.layout; }
  const std::optional<OpenedFile>& opened() const { return opened_; }
  std::size_t size() const;
  std::size_t unshadowed() const;
  std::size_t room_rows() const;  // rows that a write takes without raising, as long as no other call takes them

  // The keys of one call are distinct. Without `shadowed` rows that are shadowed count as absent.
  void contains(std::span<const Key> keys, bool shadowed, bool* out);
  // The rows that are there, one after the other in the order of the keys; returns how many.
  std::size_t read(std::span<const Key> keys, bool shadowed, bool* found, const DiskColumns& out);
  // DiskFullError where the rows do not fit: nothing has changed then.
  void write(const DiskColumns& rows, std::size_t count);
  void shadow(std::span<const Key> keys);
  std::size_t erase(std::span<const Key> keys);
  // Returns when all rows and erasures of calls that have ended are on disk.
  void flush();
  // Until no extent is below the threshold.
  void compact();
  DiskStats stats() const;
  std::vector<std::string> verify();
  // Flushes, unless the file is removed. A second call does nothing.
  void close(bool remove);

  // Rows of one moment, read while others write: its extents are not used again until it is released.
  class Snapshot {
   public:
    explicit Snapshot(DiskTier& tier) : tier_(tier) {}
    ~Snapshot() { tier_.release(*this); }
    Snapshot(const Snapshot&) = delete;
    Snapshot& operator=(const Snapshot&) = delete;
    // Up to `most` further rows; 0: the end. Used by one thread at a time.
    std::size_t next(std::size_t most, const DiskColumns& out) { return tier_.next_rows(*this, most, out); }
    std::size_t rows() const { return rows_; }

   private:
    friend class DiskTier;
    struct Held {
      std::uint32_t extent;
      std::vector<std::uint64_t> slots;
    };
    DiskTier& tier_;
    std::vector<Held> held_;
    std::size_t at_ = 0;      // of held_
    std::uint32_t slot_ = 0;  // within it
    std::size_t rows_ = 0;
  };
  // All rows that are not shadowed.
  std::unique_ptr<Snapshot> snapshot();

  // A cut is a snapshot with a number: the next one can be of the rows written since. One at a time.
  struct Cut {
    std::uint64_t number;
    std::unique_ptr<Snapshot> rows;
    std::vector<Key> removed;  // erased since the cut before; none in a cut of all rows
  };
  // std::invalid_argument: not all changes since that cut are known, or a cut is under way.
  Cut begin_cut(std::optional<std::uint64_t> since);
  // Changes of a cut that was not saved belong to the next.
  void end_cut(Cut& cut, bool saved);

 private:
  struct SlotRead {
    std::uint64_t offset;
    std::uint32_t slot, row;  // row: where it goes
    std::uint64_t generation;
    std::optional<Key> key;  // none: whichever is there
  };
  struct Victim {
    std::uint32_t extent;
    std::uint64_t generation;
    AlignedBuffer bytes;
  };
  enum class Urgency { background, forced, tombstones };

  // disk_tier_open.cpp
  using FoundExtent = std::pair<std::uint32_t, ExtentHeader>;  // number and header; generation 0: it has none
  void open_file();
  void check_bounds() const;
  std::size_t take_over_staged();
  std::uint32_t keep_whole_slots(std::byte* slots, const ExtentHeader& header, std::size_t& damaged) const;
  void scan(std::size_t damaged);
  std::vector<FoundExtent> find_extents();
  struct FoundTombstone {
    std::uint32_t extent;  // that counts it
    std::uint64_t sequence;
  };
  using FoundTombstones = std::unordered_map<Key, FoundTombstone>;
  // Where slots go that were found: into the index, or first into parts of it.
  struct Replay {
    FoundTombstones counts_in;
    std::optional<SlotPartitions> parts;
  };
  void replay(std::span<const FoundExtent> part, const AlignedBuffer& bytes, Replay& into);
  int part_bits(std::size_t slots) const;
  int level_bits(int bits) const;
  void replay_parts(ScratchBlocks& scratch, SlotPartitions& parts, int done, int bits);
  void replay_slots(std::span<const ScannedSlot> slots, FoundTombstones& counts_in);
  void replay_slot(const ScannedSlot& slot, FoundTombstones& counts_in);

  // disk_tier_read.cpp
  void read_slots(std::vector<SlotRead>& wanted, const DiskColumns& out);
  std::size_t next_rows(Snapshot& snapshot, std::size_t most, const DiskColumns& out);
  void release(Snapshot& snapshot);
  std::unique_ptr<Snapshot> hold(SlotBit among);
  void note_removed(Key key);

  // disk_tier_append.cpp; `append_` is held
  void check_capacity(std::span<const Key> keys);
  void make_room(std::size_t slots);
  bool make_room_or_parts(std::size_t slots);
  bool snapshots_held() const;
  bool may_grow(std::size_t slots) const;
  bool grow_file(std::uint32_t extents);
  void open_extent();
  void seal_extent();
  void wipe_unused();
  std::uint32_t room();  // slots of the open extent; opens the next one where it is full
  void kill(std::uint32_t slot);
  void retire_if_empty(std::uint32_t extent);
  std::byte* take_buffer();
  void write_staged();
  void write_loop();
  void raise_fault() const;
  void retry_fault();

  // disk_tier_clean.cpp; `append_` is held but by `reclaim`
  std::optional<Victim> load_victim(Urgency urgency);
  std::vector<Key> erased_for_good(const Victim& victim);
  bool move_victim(const Victim& victim);
  bool drop_tombstones();
  std::size_t reclaim(bool forced);
  bool clean_step(Urgency urgency);
  bool seal_last_tombstones();
  bool tombstones_press() const;
  void clean_loop();

  // The slot of a key; `state_` is held.
  std::uint32_t find(Key key, bool shadowed) const {
    const std::uint32_t slot = index_.find(key);
    return slot != kNoSlot && !shadowed && extents_->test(kShadowed, slot) ? kNoSlot : slot;
  }
  // Takes `state_` with all pages in memory that the index needs for these keys.
  template <typename Lock>
  Lock locked(std::span<const Key> keys, IndexUse use) {
    Lock state(state_);
    if (index_.paged() == nullptr) return state;
    IndexPins pins(*index_.paged());
    while (!pins.take(keys, use)) bring_pages(state, pins);
    return state;
  }
  template <typename Lock>
  void bring_pages(Lock& state, const IndexPins& pins) {
    state.unlock();
    try {
      index_.paged()->bring(state_, pins.pages());
    } catch (...) {
      state.lock();  // pins end under it
      throw;
    }
    state.lock();
  }
  // The same for slots that are in the open extent and do not count yet. Where it cannot be had they are wiped: the
  // extent is written as a whole, and the next process would take them for the newest copies of their keys.
  std::unique_lock<std::shared_mutex> locked_to_append(std::span<const Key> keys, IndexUse use) {
    try {
      return locked<std::unique_lock<std::shared_mutex>>(keys, use);
    } catch (...) {
      wipe_unused();
      throw;
    }
  }
  // Calls part(first, keys) with as many keys at a time as the index has pages in memory for.
  template <typename Part>
  void in_parts(std::span<const Key> keys, const Part& part) const {
    const std::size_t most = std::min(keys.size(), index_.keys_at_once());
    for (std::size_t at = 0; at < keys.size(); at += most) part(at, keys.subspan(at, std::min(most, keys.size() - at)));
  }
  std::size_t slots_at_once(std::size_t slots) const { return std::min(slots, index_.keys_at_once()); }
  void verify_pages(std::vector<std::string>& faults);
  std::byte* slot_memory(const Extent& extent, std::uint32_t index) const {
    return extent.memory + kExtentHeader + std::size_t{index} * geometry_.slot_bytes;
  }
  void stop_threads();

  DiskSpec spec_;
  int process_;
  std::unique_ptr<DiskFile> file_;
  DiskGeometry geometry_;
  std::optional<OpenedFile> opened_;
  std::uint32_t extents_max_ = 0;
  std::size_t capacity_rows_ = 0;

  std::mutex append_, reclaim_;
  mutable std::shared_mutex state_;
  std::condition_variable_any changed_;

  SlotIndex index_;
  std::unique_ptr<Extents> extents_;
  std::uint64_t sequence_ = 1, generation_ = 1;
  std::size_t shadowed_ = 0, tombstones_ = 0;
  std::optional<std::uint32_t> open_;
  std::deque<std::uint32_t> sealed_;
  std::vector<std::uint32_t> retired_;
  Staging staging_;
  std::vector<std::byte*> free_buffers_;
  std::deque<std::uint32_t> buffered_;  // stored extents that are still in memory, oldest first: the next buffers
  std::size_t buffers_ = 0;
  std::string fault_;  // why the last write to disk failed
  bool fault_full_ = false, retry_ = false, ends_ = false, closed_ = false;
  bool clean_wanted_ = false;
  std::atomic<std::uint64_t> cleaned_{0};  // extents stored, retired or freed, tombstones dropped: by any thread

  std::uint64_t cuts_ = 0;
  std::optional<std::uint64_t> saved_cut_;  // changes since it are known
  bool cut_open_ = false;
  std::vector<Key> removed_, removed_before_;  // since the last saved cut, or since the cut under way and before it
  bool removed_whole_ = true, removed_before_whole_ = true;

  std::atomic<std::uint64_t> read_wait_ns_{0}, write_stall_ns_{0}, rows_read_{0}, rows_read_buffered_{0};
  std::atomic<std::uint64_t> rows_written_{0}, rows_erased_{0};
  std::atomic<std::uint64_t> compacted_extents_{0}, compacted_rows_{0}, reused_extents_{0}, damaged_{0};
  std::thread writer_, cleaner_;
};

}  // namespace hotrow::store
