// Slots are appended to a copy of the open extent in memory; a thread writes extents that are full.
#include <algorithm>
#include <cstring>

#include "store/disk_tier.h"
#include "store/parallel.h"
#include "store/stopwatch.h"

namespace hotrow::store {
namespace {

constexpr std::uint32_t kChunk = 4096;  // slots that one hold of `state_` makes visible
constexpr std::size_t kEncodedByTask = 256;
constexpr std::size_t kWrittenAtOnce = 16;  // extents
constexpr std::size_t kFileFactor = 3, kExtentsAlways = 8;

}  // namespace

void DiskTier::write(const DiskColumns& rows, std::size_t count) {
  if (count == 0) return;
  const std::lock_guard append(append_);
  retry_fault();
  check_capacity({rows.keys, count});
  if (index_.paged() != nullptr) index_.paged()->reserve(state_, count);
  const bool at_once = make_room_or_parts(count);
  for (std::size_t at = 0; at < count;) {
    if (!at_once) make_room(std::min<std::size_t>(geometry_.slots(), count - at));
    const std::uint32_t slots = std::min<std::uint32_t>(room(), kChunk);
    const auto part = static_cast<std::uint32_t>(slots_at_once(std::min<std::size_t>(slots, count - at)));
    Extent& extent = (*extents_)[*open_];
    const std::uint32_t first = extents_->first_slot(*open_) + extent.used;
    // Nothing looks at these slots yet.
    parallel_for(spec_.threads, (part + kEncodedByTask - 1) / kEncodedByTask, [&](std::size_t task) {
      const std::size_t end = std::min<std::size_t>(part, (task + 1) * kEncodedByTask);
      for (std::size_t i = task * kEncodedByTask; i < end; ++i) {
        std::byte* slot = slot_memory(extent, extent.used + static_cast<std::uint32_t>(i));
        spec_.layout.encode(slot, rows, at + i, sequence_ + i);
        spec_.layout.seal(slot, extent.generation, first + i);
      }
    });
    const auto state = locked_to_append({rows.keys + at, part}, IndexUse::put);
    for (std::uint32_t i = 0; i < part; ++i) {
      if (i + 8 < part) index_.prefetch(rows.keys[at + i + 8]);
      const std::uint32_t before = index_.put(rows.keys[at + i], first + i);
      if (before != kNoSlot) kill(before);
      extents_->set(kLive, first + i);
      extents_->set(kChanged, first + i);
    }
    extent.used += part;
    extent.live += part;
    sequence_ += part;
    at += part;
  }
  rows_written_ += count;
}

std::size_t DiskTier::erase(std::span<const Key> keys) {
  const std::lock_guard append(append_);
  retry_fault();
  std::vector<Key> present;
  in_parts(keys, [&](std::size_t, std::span<const Key> part) {
    const auto state = locked<std::shared_lock<std::shared_mutex>>(part, IndexUse::find);
    for (const Key key : part)
      if (index_.find(key) != kNoSlot) present.push_back(key);
  });
  if (present.empty()) return 0;
  const bool at_once = make_room_or_parts(present.size());
  for (std::size_t at = 0; at < present.size();) {
    if (!at_once) make_room(std::min<std::size_t>(geometry_.slots(), present.size() - at));
    const std::uint32_t slots = std::min<std::uint32_t>(room(), kChunk);
    const auto part = static_cast<std::uint32_t>(slots_at_once(std::min<std::size_t>(slots, present.size() - at)));
    Extent& extent = (*extents_)[*open_];
    for (std::uint32_t i = 0; i < part; ++i) {
      std::byte* slot = slot_memory(extent, extent.used + i);
      spec_.layout.encode_erased(slot, present[at + i], sequence_ + i);
      spec_.layout.seal(slot, extent.generation, extents_->first_slot(*open_) + extent.used + i);
    }
    const auto state = locked_to_append(std::span(present).subspan(at, part), IndexUse::erase);
    for (std::uint32_t i = 0; i < part; ++i) {
      kill(index_.erase(present[at + i]));
      note_removed(present[at + i]);
    }
    extent.used += part;
    extent.tombstones += part;
    extent.last_tombstone = sequence_ + part - 1;
    tombstones_ += part;
    sequence_ += part;
    at += part;
  }
  rows_erased_ += present.size();
  return present.size();
}

// A slot does not count any more. `state_` is held.
void DiskTier::kill(std::uint32_t slot) {
  const std::uint32_t number = extents_->extent_of(slot);
  if (extents_->test(kShadowed, slot)) --shadowed_;
  for (const SlotBit bit : {kLive, kShadowed, kChanged, kInCut}) extents_->clear(bit, slot);
  Extent& extent = (*extents_)[number];
  --extent.live;
  ++extent.dead;
  if (!clean_wanted_ && extent.state == ExtentState::stored && 2 * extent.live < geometry_.slots()) {
    clean_wanted_ = true;
    changed_.notify_all();
  }
  retire_if_empty(number);
}

void DiskTier::retire_if_empty(std::uint32_t number) {
  Extent& extent = (*extents_)[number];
  if (extent.state != ExtentState::stored || extent.live + extent.tombstones > 0) return;
  extent.state = ExtentState::retired;
  ++cleaned_;
  extent.retired_at = sequence_ + 1;  // behind everything that supersedes its rows, the slot in hand included
  if (extent.memory != nullptr) {
    std::erase(buffered_, number);
    free_buffers_.push_back(std::exchange(extent.memory, nullptr));
  }
  retired_.push_back(number);
  clean_wanted_ = true;
  changed_.notify_all();
}

void DiskTier::check_capacity(std::span<const Key> keys) {
  std::size_t rows = 0;
  const auto fits = [&] {
    const auto within = [&] {
      const std::shared_lock state(state_);
      return rows + tombstones_ <= capacity_rows_;
    };
    rows = size() + keys.size();
    if (within()) return true;
    in_parts(keys, [&](std::size_t, std::span<const Key> part) {
      const auto state = locked<std::shared_lock<std::shared_mutex>>(part, IndexUse::find);
      for (std::size_t i = 0; i < part.size(); ++i) {
        if (i + 8 < part.size()) index_.prefetch(part[i + 8]);
        rows -= index_.find(part[i]) != kNoSlot;
      }
    });
    return within();
  };
  if (fits()) return;
  const Stopwatch stalled(write_stall_ns_);
  for (bool more = true; more;) {
    const std::uint64_t before = cleaned_;
    if (fits()) return;
    more = rows <= capacity_rows_ && (clean_step(Urgency::tombstones) || cleaned_ != before);
  }
  throw DiskFullError("disk file " + file_->path() + ": " + std::to_string(rows) + " rows of " +
                      std::to_string(geometry_.slot_bytes) +
                      " bytes do not fit, capacity_bytes=" + std::to_string(spec_.capacity_bytes) + " has room for " +
                      std::to_string(capacity_rows_) + ": raise capacity_bytes, or erase rows");
}

// So many slots can be appended without waiting for anything but the disk; DiskFullError: nothing has changed.
void DiskTier::make_room(std::size_t slots) {
  std::size_t left = 0, free = 0;
  const auto needed = [&] {
    const std::shared_lock state(state_);
    left = open_ ? geometry_.slots() - (*extents_)[*open_].used : 0;
    free = extents_->free();
    const std::size_t more = slots > left ? (slots - left + geometry_.slots() - 1) / geometry_.slots() : 0;
    return more == 0 ? 0 : more + kExtentsForCompaction;
  };
  const std::size_t first = needed();
  if (first <= free) return;
  const Stopwatch stalled(write_stall_ns_);
  for (;;) {
    const std::uint64_t before = cleaned_;
    const std::size_t extents = needed();
    if (extents <= free) return;
    if (reclaim(false) > 0) continue;
    if (!may_grow(slots) && clean_step(Urgency::forced)) continue;
    try {
      if (grow_file(static_cast<std::uint32_t>(extents - free))) continue;
    } catch (const DiskFullError&) {  // of the file system: space of superseded rows may do
      if (clean_step(Urgency::forced) || cleaned_ != before) continue;
      throw;
    }
    if (clean_step(Urgency::forced) || cleaned_ != before) continue;
    const bool held = snapshots_held();
    throw DiskFullError("disk file " + file_->path() + ": " + std::to_string(slots) + " more rows of " +
                        std::to_string(geometry_.slot_bytes) +
                        " bytes find no room in capacity_bytes=" + std::to_string(spec_.capacity_bytes) + ": " +
                        (held ? "end the cut or export that is under way, or raise it" : "raise it"));
  }
}

// Room for all slots of a call; false: rows have to be superseded by the same call to make it. Nothing holds extents
// then, and nothing can before the call ends, so each part finds room: rows and tombstones together do not grow.
bool DiskTier::make_room_or_parts(std::size_t slots) {
  try {
    make_room(slots);
    return true;
  } catch (const DiskFullError&) {
    if (snapshots_held() || slots <= geometry_.slots()) throw;
    make_room(geometry_.slots());
    return false;
  }
}

bool DiskTier::snapshots_held() const {
  const std::shared_lock state(state_);
  bool held = false;
  for (std::uint32_t number = 0; number < extents_->size(); ++number) held |= (*extents_)[number].holds > 0;
  return held;
}

// Whether the file grows before it is compacted: while it is smaller than three times the rows that count.
bool DiskTier::may_grow(std::size_t slots) const {
  const std::shared_lock state(state_);
  const std::size_t counted = (index_.size() + tombstones_ + slots) / geometry_.slots();
  return extents_->size() < kFileFactor * counted + kExtentsAlways;
}

// False: the file is as large as it may be, or its file system is full and something else may help.
bool DiskTier::grow_file(std::uint32_t extents) {
  const std::uint32_t now = extents_->size();
  if (now >= extents_max_) return false;
  const std::uint32_t step = std::max(extents, std::min<std::uint32_t>(16, now / 8 + 1));
  const std::uint32_t more = std::min(step, extents_max_ - now);
  file_->grow(geometry_.extent_at(now + more));
  const std::unique_lock state(state_);
  extents_->add(more);
  return true;
}

std::uint32_t DiskTier::room() {
  if (open_ && (*extents_)[*open_].used == geometry_.slots()) seal_extent();
  if (!open_) open_extent();
  return geometry_.slots() - (*extents_)[*open_].used;
}

void DiskTier::seal_extent() {
  Extent& extent = (*extents_)[*open_];
  const std::unique_lock state(state_);
  write_extent_header(extent.memory, geometry_.extent_bytes, extent.generation, extent.opened_at, *open_, extent.used);
  extent.state = ExtentState::sealed;
  sealed_.push_back(*open_);
  open_.reset();
  changed_.notify_all();
}

void DiskTier::wipe_unused() {
  const Extent& extent = (*extents_)[*open_];
  std::memset(slot_memory(extent, extent.used), 0, (geometry_.slots() - extent.used) * geometry_.slot_bytes);
}

// A buffer that no extent uses, or that of the extent which was stored first; null: all wait to be written. `state_` is
// held.
std::byte* DiskTier::take_buffer() {
  if (!free_buffers_.empty()) {
    std::byte* memory = free_buffers_.back();
    free_buffers_.pop_back();
    return memory;
  }
  if (buffered_.empty()) return nullptr;
  Extent& oldest = (*extents_)[buffered_.front()];
  buffered_.pop_front();
  return std::exchange(oldest.memory, nullptr);
}

void DiskTier::open_extent() {
  bool none;
  {
    const std::shared_lock state(state_);
    none = extents_->free() == 0;
  }
  if (none && !grow_file(1)) throw DiskFullError("disk file " + file_->path() + ": no extent is free");
  std::byte* memory = nullptr;
  {
    std::unique_lock state(state_);
    if (memory = take_buffer(); memory == nullptr) {
      const Stopwatch stalled(write_stall_ns_);
      retry_ = true;
      changed_.notify_all();
      changed_.wait(state, [&] { return (memory = take_buffer()) != nullptr || (!fault_.empty() && !retry_); });
    }
  }
  if (memory == nullptr) raise_fault();
  std::memset(memory, 0, geometry_.extent_bytes);
  const std::unique_lock state(state_);
  try {
    open_ = extents_->open(generation_, sequence_, memory);
  } catch (...) {  // no memory
    free_buffers_.push_back(memory);
    throw;
  }
  write_extent_header(memory, geometry_.extent_bytes, generation_, sequence_, *open_, 0);
  ++generation_;
  ++sequence_;  // extents are replayed in the order of their openings: no two have the same
}

void DiskTier::raise_fault() const {
  const std::shared_lock state(state_);
  if (fault_.empty() || retry_) return;
  if (fault_full_) throw DiskFullError(fault_);
  throw DiskError(fault_);
}

// Where the last write to disk failed: once more, because there may be room now.
void DiskTier::retry_fault() {
  file_->check_flushed();
  {
    std::unique_lock state(state_);
    if (fault_.empty()) return;
    retry_ = true;
    changed_.notify_all();
    changed_.wait(state, [&] { return !retry_; });
  }
  raise_fault();
}

// Everything that was appended is in the file, though perhaps not on the disk yet. `append_` is held.
void DiskTier::write_staged() {
  {
    std::unique_lock state(state_);
    retry_ = true;
    changed_.notify_all();
    changed_.wait(state, [&] { return sealed_.empty() || (!fault_.empty() && !retry_); });
    if (sealed_.empty()) retry_ = false;
  }
  raise_fault();
  if (!open_) return;
  Extent& extent = (*extents_)[*open_];
  if (extent.written == extent.used) return;
  write_extent_header(extent.memory, geometry_.extent_bytes, extent.generation, extent.opened_at, *open_, extent.used);
  // The whole extent, so that nothing of its earlier use is left behind the last slot. Slots that were written before
  // are written again as they are: whichever of their sectors arrive, they stay whole.
  IoRequest request{geometry_.extent_at(*open_), extent.memory, geometry_.extent_bytes};
  file_->write({&request, 1});
  const std::unique_lock state(state_);
  extent.written = extent.used;
}

void DiskTier::flush() {
  const std::lock_guard append(append_);
  write_staged();
  file_->sync();
}

// The thread that writes sealed extents.
void DiskTier::write_loop() {
  std::unique_lock state(state_);
  for (;;) {
    changed_.wait(state, [&] { return ends_ || (!sealed_.empty() && (fault_.empty() || retry_)); });
    if (ends_) return;
    std::vector<IoRequest> requests;
    const std::size_t count = std::min(sealed_.size(), kWrittenAtOnce);
    for (std::size_t i = 0; i < count; ++i)
      requests.push_back({geometry_.extent_at(sealed_[i]), (*extents_)[sealed_[i]].memory, geometry_.extent_bytes});
    state.unlock();
    std::string fault;
    bool full = false;
    try {
      file_->write(requests);
    } catch (const DiskFullError& error) {
      fault = error.what();
      full = true;
    } catch (const DiskError& error) {
      fault = error.what();
    } catch (const std::bad_alloc&) {
      fault = "disk file " + file_->path() + ": no memory is left to write it";
    }
    state.lock();
    fault_ = fault;
    fault_full_ = full;
    retry_ = false;
    for (std::size_t i = 0; fault.empty() && i < count; ++i) {
      const std::uint32_t number = sealed_.front();
      sealed_.pop_front();
      Extent& extent = (*extents_)[number];
      extent.state = ExtentState::stored;
      ++cleaned_;
      extent.written = extent.used;
      // The file has it: the next process must not take it for one that was not written.
      std::memset(extent.memory, 0, kExtentHeader);
      std::memset(extent.memory + geometry_.extent_bytes - kExtentHeader, 0, kExtentHeader);
      buffered_.push_back(number);  // rows that memory had no room for are those most likely wanted again
      retire_if_empty(number);
      if (2 * extent.live < geometry_.slots()) clean_wanted_ = true;
    }
    changed_.notify_all();
  }
}

}  // namespace hotrow::store
