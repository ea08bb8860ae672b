// Space of superseded rows is won back: extents with few rows are emptied, those without rows are used again.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "store/disk_tier.h"

namespace hotrow::store {
namespace {

constexpr std::uint32_t kAllButOne = ~std::uint32_t{0};
constexpr auto kPinnedPause = std::chrono::microseconds(200);
constexpr auto kCleanerPause = std::chrono::milliseconds(50);

}  // namespace

// The extent that is worth emptying most, read into memory.
std::optional<DiskTier::Victim> DiskTier::load_victim(Urgency urgency) {
  Victim victim{kNoSlot, 0, AlignedBuffer(geometry_.extent_bytes)};
  std::uint32_t& chosen = victim.extent;
  {
    const std::shared_lock state(state_);
    const std::uint32_t slots = geometry_.slots();
    const std::uint32_t most = urgency == Urgency::background ? slots / 2 : slots - std::max(1U, slots / 64);
    for (std::uint32_t number = 0; number < extents_->size(); ++number) {
      const Extent& extent = (*extents_)[number];
      if (extent.state != ExtentState::stored || extent.damaged || extent.holds > 0) continue;
      const std::uint32_t kept = extent.live + extent.tombstones;
      if (urgency == Urgency::tombstones ? extent.dead == 0 : kept >= most) continue;
      const auto worse = [&](const Extent& other) {
        return urgency == Urgency::tombstones ? extent.opened_at < other.opened_at
                                              : kept < other.live + other.tombstones;
      };
      if (chosen == kNoSlot || worse((*extents_)[chosen])) chosen = number;
    }
    if (chosen == kNoSlot) return std::nullopt;
    victim.generation = (*extents_)[chosen].generation;
    if (const std::byte* memory = (*extents_)[chosen].memory; memory != nullptr) {
      std::memcpy(victim.bytes.data(), memory, geometry_.extent_bytes);
      return victim;
    }
    ++(*extents_)[chosen].pins;
  }
  IoRequest request{geometry_.extent_at(chosen), victim.bytes.data(), geometry_.extent_bytes};
  // Pinned for the read alone: a write that waits for pins holds the lock that moving the rows needs.
  const auto unpin = [&] {
    const std::shared_lock state(state_);
    --(*extents_)[chosen].pins;
  };
  try {
    file_->read({&request, 1});
  } catch (...) {
    unpin();
    throw;
  }
  unpin();
  return victim;
}

// The keys of its erasures that have no row now, in order.
std::vector<Key> DiskTier::erased_for_good(const Victim& victim) {
  std::vector<Key> keys, absent;
  for (std::uint32_t index = 0; index < geometry_.slots(); ++index) {
    const std::byte* slot = victim.bytes.data() + kExtentHeader + std::size_t{index} * geometry_.slot_bytes;
    if (!SlotLayout::empty(slot) && SlotLayout::erased(slot)) keys.push_back(SlotLayout::key(slot));
  }
  in_parts(keys, [&](std::size_t, std::span<const Key> part) {
    const auto state = locked<std::shared_lock<std::shared_mutex>>(part, IndexUse::find);
    for (const Key key : part)
      if (index_.find(key) == kNoSlot) absent.push_back(key);
  });
  std::ranges::sort(absent);
  return absent;
}

// Copies the rows that count, and erasures that are still needed, to the end of the log. `append_` is held, so nothing
// else changes what counts.
bool DiskTier::move_victim(const Victim& victim) {
  Extent& from = (*extents_)[victim.extent];
  const std::uint32_t first_slot = extents_->first_slot(victim.extent);
  const auto slot_of = [&](std::uint32_t index) {
    return victim.bytes.data() + kExtentHeader + std::size_t{index} * geometry_.slot_bytes;
  };
  const std::vector<Key> erased = erased_for_good(victim);
  std::vector<std::uint32_t> moved;
  {
    const std::unique_lock state(state_);
    if (from.state != ExtentState::stored || from.generation != victim.generation) return false;
    const std::uint64_t oldest_dirty = extents_->oldest_dirty(victim.extent);
    for (std::uint32_t index = 0; index < from.used; ++index) {
      const std::byte* slot = slot_of(index);
      const bool live = extents_->test(kLive, first_slot + index);
      const bool whole = spec_.layout.whole(slot, from.generation, first_slot + index);
      if (live && !whole) {
        from.damaged = true;
        ++damaged_;
        return false;
      }
      const bool erasure = !live && whole && SlotLayout::erased(slot) && from.tombstones > 0 &&
                           (SlotLayout::sequence(slot) & ~kErased) > oldest_dirty &&
                           std::ranges::binary_search(erased, SlotLayout::key(slot));
      if (live || erasure) moved.push_back(index);
    }
    const std::size_t room =
        (open_ ? geometry_.slots() - (*extents_)[*open_].used : 0) +
        (extents_->free() + extents_max_ - std::min(extents_max_, extents_->size())) * std::size_t{geometry_.slots()};
    if (room < moved.size()) return false;
  }
  for (std::size_t at = 0; at < moved.size();) {
    const auto part = static_cast<std::uint32_t>(slots_at_once(std::min<std::size_t>(room(), moved.size() - at)));
    Extent& to = (*extents_)[*open_];
    const std::uint32_t first = extents_->first_slot(*open_) + to.used;
    for (std::uint32_t i = 0; i < part; ++i) {
      std::byte* slot = slot_memory(to, to.used + i);
      std::memcpy(slot, slot_of(moved[at + i]), geometry_.slot_bytes);
      spec_.layout.seal(slot, to.generation, first + i);
    }
    std::vector<Key> keys;
    for (std::uint32_t i = 0; i < part; ++i)
      if (const std::byte* slot = slot_of(moved[at + i]); !SlotLayout::erased(slot))
        keys.push_back(SlotLayout::key(slot));
    const auto state = locked_to_append(keys, IndexUse::put);
    for (std::uint32_t i = 0; i < part; ++i) {
      const std::uint32_t old_slot = first_slot + moved[at + i], new_slot = first + i;
      const std::byte* slot = slot_of(moved[at + i]);
      if (SlotLayout::erased(slot)) {
        ++to.tombstones;
        ++tombstones_;
        to.last_tombstone = std::max(to.last_tombstone, SlotLayout::sequence(slot) & ~kErased);
        continue;
      }
      index_.put(SlotLayout::key(slot), new_slot);
      for (const SlotBit bit : {kLive, kShadowed, kChanged, kInCut}) {
        if (!extents_->test(bit, old_slot)) continue;
        extents_->set(bit, new_slot);
        extents_->clear(bit, old_slot);
      }
      ++to.live;
      --from.live;
      ++from.dead;
    }
    to.used += part;
    at += part;
  }
  const std::unique_lock state(state_);
  tombstones_ -= std::exchange(from.tombstones, 0);
  ++compacted_extents_;
  compacted_rows_ += moved.size();
  retire_if_empty(victim.extent);
  return true;
}

// Erasures whose older copies are all gone from the disk need not be there either.
bool DiskTier::drop_tombstones() {
  const std::unique_lock state(state_);
  if (tombstones_ == 0) return false;
  const std::uint64_t oldest_dirty = extents_->oldest_dirty(kAllButOne);
  bool dropped = false;
  for (std::uint32_t number = 0; number < extents_->size(); ++number) {
    Extent& extent = (*extents_)[number];
    if (extent.tombstones == 0 || extent.state != ExtentState::stored || extent.last_tombstone >= oldest_dirty)
      continue;
    tombstones_ -= std::exchange(extent.tombstones, 0);
    ++cleaned_;
    dropped = true;
    retire_if_empty(number);
  }
  return dropped;
}

// Retired extents become free: once what superseded their rows is on disk for sure, their headers there are replaced by
// those of empty extents. Forced (`append_` is held): also where the open extent has to be written for it.
std::size_t DiskTier::reclaim(bool forced) {
  const std::lock_guard alone(reclaim_);
  std::vector<std::uint32_t> ready;
  const auto look = [&] {
    const std::shared_lock state(state_);
    std::uint64_t unwritten = ~std::uint64_t{0};
    for (std::uint32_t number = 0; number < extents_->size(); ++number) {
      const Extent& extent = (*extents_)[number];
      if (extent.memory != nullptr && extent.written < extent.used) unwritten = std::min(unwritten, extent.opened_at);
    }
    bool blocked = false;
    for (const std::uint32_t number : retired_) {
      const Extent& extent = (*extents_)[number];
      if (extent.pins > 0 || extent.holds > 0) continue;
      if (extent.retired_at <= unwritten)
        ready.push_back(number);
      else
        blocked = true;
    }
    return blocked;
  };
  if (look() && ready.empty() && forced) {
    write_staged();
    look();
  }
  if (ready.empty()) return 0;
  file_->sync();
  AlignedBuffer pages(ready.size() * 2 * kPage);
  std::vector<IoRequest> reads;
  for (std::size_t i = 0; i < ready.size(); ++i) {
    const std::uint64_t at = geometry_.extent_at(ready[i]);
    reads.push_back({at, pages.data() + i * 2 * kPage, kPage});
    reads.push_back({at + geometry_.extent_bytes - kPage, pages.data() + (i * 2 + 1) * kPage, kPage});
  }
  std::vector<IoRequest> writes = reads;
  // The slots beside the headers stay: where only some of these pages arrive, an extent is empty or as it was. Without
  // an erasure that was in one of them, the copy that it erases, in another page, would count again.
  file_->read(reads);
  {
    const std::unique_lock state(state_);
    for (std::size_t i = 0; i < ready.size(); ++i)
      write_extent_header(pages.data() + i * 2 * kPage, 2 * kPage, generation_++, 0, ready[i], 0);
  }
  file_->write(writes);
  file_->sync();
  const std::unique_lock state(state_);
  for (const std::uint32_t number : ready) extents_->release(number);
  std::erase_if(retired_, [&](std::uint32_t number) { return (*extents_)[number].state == ExtentState::free; });
  reused_extents_ += ready.size();
  ++cleaned_;
  changed_.notify_all();
  return ready.size();
}

// The open extent alone has tombstones, for copies in it: once it is stored, it can be emptied of both.
bool DiskTier::seal_last_tombstones() {
  {
    const std::shared_lock state(state_);
    if (!open_ || (*extents_)[*open_].tombstones == 0) return false;
    if (extents_->oldest_dirty(*open_) <= (*extents_)[*open_].last_tombstone) return false;
  }
  seal_extent();
  write_staged();
  return true;
}

bool DiskTier::tombstones_press() const {
  const std::shared_lock state(state_);
  return tombstones_ > std::max<std::size_t>(2 * std::size_t{geometry_.slots()}, index_.size() / 4);
}

// One step towards more free space; false: this thread found none. The writing and the cleaning thread make steps of
// their own meanwhile: there is no more space to be had only where `cleaned_` stands still, too. `append_` is held.
bool DiskTier::clean_step(Urgency urgency) {
  if (drop_tombstones() || reclaim(true) > 0) return true;
  {
    std::unique_lock state(state_);
    const auto free_soon = [&](std::uint32_t number) { return (*extents_)[number].holds == 0; };
    if (std::ranges::any_of(retired_, free_soon)) {  // a read that ends soon needs it, or has just ended
      changed_.wait_for(state, kPinnedPause);
      return true;
    }
  }
  std::optional<Victim> victim = load_victim(urgency);
  // Full extents with a single superseded copy keep tombstones from being dropped, and the other way round.
  if (!victim) victim = load_victim(urgency == Urgency::tombstones ? Urgency::forced : Urgency::tombstones);
  if (!victim) {  // extents that are about to be written can be emptied once they are
    bool sealed;
    {
      const std::shared_lock state(state_);
      sealed = !sealed_.empty();
    }
    if (sealed) write_staged();
    return sealed || (urgency == Urgency::tombstones && seal_last_tombstones());
  }
  if (move_victim(*victim)) return true;
  const std::shared_lock state(state_);  // the cleaning thread may have retired it meanwhile, which is a step too
  const Extent& extent = (*extents_)[victim->extent];
  return extent.state != ExtentState::stored || extent.generation != victim->generation;
}

void DiskTier::compact() {
  for (;;) {
    const std::lock_guard append(append_);
    retry_fault();
    const bool freed = drop_tombstones() || reclaim(true) > 0;
    std::optional<Victim> victim = load_victim(Urgency::background);
    if (!victim && tombstones_press()) victim = load_victim(Urgency::tombstones);
    if (!(victim && move_victim(*victim)) && !freed) return;
  }
}

// The thread that compacts in the background, one extent at a time.
void DiskTier::clean_loop() {
  std::unique_lock state(state_);
  for (;;) {
    changed_.wait(state, [&] { return ends_ || clean_wanted_; });
    if (ends_) return;
    clean_wanted_ = false;
    state.unlock();
    bool more = false;
    try {
      more = drop_tombstones();
      more |= reclaim(false) > 0;
      std::optional<Victim> victim = load_victim(Urgency::background);
      if (!victim && tombstones_press()) victim = load_victim(Urgency::tombstones);
      if (victim) {
        const std::lock_guard append(append_);
        more |= move_victim(*victim);
      }
    } catch (const DiskError&) {       // NOLINT(bugprone-empty-catch): the next write or flush says it
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): once more after the pause
    }
    state.lock();
    clean_wanted_ |= more;
    if (!more) changed_.wait_for(state, kCleanerPause, [&] { return ends_; });
  }
}

}  // namespace hotrow::store
