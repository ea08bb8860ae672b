// The extents of a disk file in memory: what each is used for, how many of its rows count, and four bits per slot.
//
//   free -> open -> sealed -> stored -> retired -> free
//
// An extent is open while rows are appended to its copy in memory, sealed when it waits to be written, stored when it
// is on disk, retired when none of its rows counts any more. It is free again when no read and no snapshot needs it,
// the rows that superseded its own are on disk for sure, and its header there says that it is empty.
//
// The caller locks; pins alone are counted under a shared lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <vector>

#include "store/disk_format.h"

namespace hotrow::store {

enum class ExtentState : std::uint8_t { free, open, sealed, stored, retired };

enum SlotBit : int {
  kLive,      // the newest copy of its key
  kShadowed,  // memory has a newer row, the copy stays for a crash
  kChanged,   // written since the last saved cut began
  kInCut,     // was changed when the cut that is under way began
  kSlotBits,
};

struct Extent {
  ExtentState state = ExtentState::free;
  bool damaged = false;                 // holds a row that counts and is not whole: its slots stay where they are
  std::uint32_t used = 0, written = 0;  // slots in memory and on disk
  std::uint32_t live = 0;
  std::uint32_t dead = 0;              // copies that were superseded or erased, and are still on disk
  std::uint32_t tombstones = 0;        // erasures that copies elsewhere on the disk still need
  std::atomic<std::uint32_t> pins{0};  // reads under way
  std::uint32_t holds = 0;             // snapshots
  std::uint64_t generation = 0, opened_at = 0, retired_at = 0;
  std::uint64_t last_tombstone = 0;  // the highest sequence of its tombstones
  std::byte* memory = nullptr;       // while open or sealed, and then until another extent needs the buffer
  std::unique_ptr<std::uint64_t[]> bits;
};

class Extents {
 public:
  explicit Extents(const DiskGeometry& geometry) : geometry_(geometry), words_((geometry.slots() + 63) / 64) {}

  std::uint32_t size() const { return static_cast<std::uint32_t>(extents_.size()); }
  Extent& operator[](std::uint32_t number) { return extents_[number]; }
  const Extent& operator[](std::uint32_t number) const { return extents_[number]; }
  std::uint32_t extent_of(std::uint32_t slot) const { return slot / geometry_.slots(); }
  std::uint32_t first_slot(std::uint32_t extent) const { return extent * geometry_.slots(); }
  std::uint32_t words() const { return words_; }
  std::uint64_t slot_at(std::uint32_t slot) const {
    return geometry_.slot_at(extent_of(slot), slot % geometry_.slots());
  }
  const std::byte* in_memory(std::uint32_t slot) const {
    const std::byte* memory = extents_[extent_of(slot)].memory;
    return memory == nullptr ? nullptr : memory + kExtentHeader + slot % geometry_.slots() * geometry_.slot_bytes;
  }

  // New ones at the end of the file, all of them free.
  void add(std::uint32_t count);
  std::size_t free() const { return free_.size(); }
  // The lowest free one, as open; the file has less to give back at its end then.
  std::uint32_t open(std::uint64_t generation, std::uint64_t opened_at, std::byte* memory);
  // As found in a file, without rows so far. It is sealed until all of them are known.
  void found(std::uint32_t number, const ExtentHeader& header);
  void release(std::uint32_t number);  // retired -> free

  bool test(SlotBit bit, std::uint32_t slot) const { return (word(bit, slot) >> (index(slot) % 64) & 1) != 0; }
  void set(SlotBit bit, std::uint32_t slot) { word(bit, slot) |= std::uint64_t{1} << (index(slot) % 64); }
  void clear(SlotBit bit, std::uint32_t slot) { word(bit, slot) &= ~(std::uint64_t{1} << (index(slot) % 64)); }
  std::uint64_t* bits(SlotBit bit, std::uint32_t extent) { return extents_[extent].bits.get() + bit * words_; }

  std::size_t bytes() const;  // of memory
  // The lowest opened_at of extents, but one, whose superseded copies are still on disk: tombstones below it protect
  // from nothing.
  std::uint64_t oldest_dirty(std::uint32_t but) const;

 private:
  std::uint32_t index(std::uint32_t slot) const { return slot % geometry_.slots(); }
  std::uint64_t& word(SlotBit bit, std::uint32_t slot) {
    return extents_[extent_of(slot)].bits[bit * words_ + index(slot) / 64];
  }
  const std::uint64_t& word(SlotBit bit, std::uint32_t slot) const {
    return extents_[extent_of(slot)].bits[bit * words_ + index(slot) / 64];
  }

  DiskGeometry geometry_;
  std::uint32_t words_;  // of 64 bits, for one bit per slot
  std::deque<Extent> extents_;
  std::set<std::uint32_t> free_;
};

}  // namespace hotrow::store
