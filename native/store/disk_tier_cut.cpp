#include <bit>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "store/disk_tier.h"

namespace hotrow::store {

constexpr std::size_t kRemovedMost = std::size_t{16} << 20;  // keys; more: the next cut has to be of all rows

std::unique_ptr<DiskTier::Snapshot> DiskTier::snapshot() {
  const std::lock_guard append(append_);  // a write is in it whole or not at all
  const std::unique_lock state(state_);
  return hold(kLive);
}

// `state_` is held.
std::unique_ptr<DiskTier::Snapshot> DiskTier::hold(SlotBit among) {
  auto made = std::make_unique<Snapshot>(*this);
  for (std::uint32_t number = 0; number < extents_->size(); ++number) {
    Extent& extent = (*extents_)[number];
    if (extent.live == 0) continue;
    Snapshot::Held held{number, std::vector<std::uint64_t>(extents_->words())};
    std::size_t rows = 0;
    for (std::uint32_t word = 0; word < extents_->words(); ++word) {
      held.slots[word] = extents_->bits(kLive, number)[word] & extents_->bits(among, number)[word] &
                         ~extents_->bits(kShadowed, number)[word];
      rows += static_cast<std::size_t>(std::popcount(held.slots[word]));
    }
    if (rows == 0) continue;
    made->held_.push_back(std::move(held));
    made->rows_ += rows;
    ++extent.holds;
  }
  return made;
}

void DiskTier::release(Snapshot& snapshot) {
  const std::unique_lock state(state_);
  for (; snapshot.at_ < snapshot.held_.size(); ++snapshot.at_) --(*extents_)[snapshot.held_[snapshot.at_].extent].holds;
  snapshot.held_.clear();
  clean_wanted_ = true;
  changed_.notify_all();
}

std::size_t DiskTier::next_rows(Snapshot& snapshot, std::size_t most, const DiskColumns& out) {
  std::vector<SlotRead> wanted;
  std::vector<std::uint32_t> finished;
  std::size_t rows = 0;
  const auto before = std::pair(snapshot.at_, snapshot.slot_);
  {
    const std::shared_lock state(state_);
    while (rows < most && snapshot.at_ < snapshot.held_.size()) {
      const auto& held = snapshot.held_[snapshot.at_];
      const Extent& extent = (*extents_)[held.extent];
      for (; rows < most && snapshot.slot_ < geometry_.slots(); ++snapshot.slot_) {
        if ((held.slots[snapshot.slot_ / 64] >> (snapshot.slot_ % 64) & 1) == 0) continue;
        const std::uint32_t slot = extents_->first_slot(held.extent) + snapshot.slot_;
        const auto row = static_cast<std::uint32_t>(rows++);
        if (const std::byte* memory = extents_->in_memory(slot); memory != nullptr)
          spec_.layout.decode(memory, out, row);
        else
          wanted.push_back({extents_->slot_at(slot), slot, row, extent.generation, {}});
      }
      if (snapshot.slot_ < geometry_.slots()) break;
      finished.push_back(held.extent);
      ++snapshot.at_;
      snapshot.slot_ = 0;
    }
  }
  try {
    if (!wanted.empty()) read_slots(wanted, out);
  } catch (...) {
    std::tie(snapshot.at_, snapshot.slot_) = before;  // the next call reads the same rows: none is left out
    throw;
  }
  if (!finished.empty()) {
    const std::unique_lock state(state_);
    for (const std::uint32_t number : finished) --(*extents_)[number].holds;
    clean_wanted_ = true;
    changed_.notify_all();
  }
  return rows;
}

DiskTier::Cut DiskTier::begin_cut(std::optional<std::uint64_t> since) {
  const std::lock_guard append(append_);
  const std::unique_lock state(state_);
  if (cut_open_) throw std::invalid_argument("a cut is under way: end it first");
  if (since && saved_cut_ != since)
    throw std::invalid_argument("since=" + std::to_string(*since) + ": changes are known since " +
                                (saved_cut_ ? "cut " + std::to_string(*saved_cut_) : "no cut") +
                                " only: begin a cut of all rows");
  if (since && !removed_whole_)
    throw std::invalid_argument("since=" + std::to_string(*since) + ": more than " + std::to_string(kRemovedMost) +
                                " rows were erased since then: begin a cut of all rows");
  Cut cut{++cuts_, hold(since ? kChanged : kLive), {}};
  if (since) cut.removed = removed_;
  // What changes from now on belongs to the next cut; what changed before does too where this one is not saved.
  for (std::uint32_t number = 0; number < extents_->size(); ++number) {
    if (!(*extents_)[number].bits) continue;
    for (std::uint32_t word = 0; word < extents_->words(); ++word)
      extents_->bits(kInCut, number)[word] = std::exchange(extents_->bits(kChanged, number)[word], 0);
  }
  removed_before_ = std::exchange(removed_, {});
  removed_before_whole_ = std::exchange(removed_whole_, true);
  cut_open_ = true;
  return cut;
}

void DiskTier::end_cut(Cut& cut, bool saved) {
  cut.rows.reset();
  const std::unique_lock state(state_);
  for (std::uint32_t number = 0; number < extents_->size(); ++number) {
    if (!(*extents_)[number].bits) continue;
    for (std::uint32_t word = 0; word < extents_->words(); ++word) {
      const std::uint64_t before = std::exchange(extents_->bits(kInCut, number)[word], 0);
      if (!saved) extents_->bits(kChanged, number)[word] |= before;
    }
  }
  if (saved) {
    saved_cut_ = cut.number;
  } else {
    removed_.insert(removed_.begin(), removed_before_.begin(), removed_before_.end());
    removed_whole_ = removed_whole_ && removed_before_whole_;
  }
  removed_before_.clear();
  cut_open_ = false;
}

// `state_` is held.
void DiskTier::note_removed(Key key) {
  if (!saved_cut_ && !cut_open_) return;  // the next cut is of all rows
  if (removed_.size() + removed_before_.size() < kRemovedMost)
    removed_.push_back(key);
  else
    removed_whole_ = false;
}

}  // namespace hotrow::store
