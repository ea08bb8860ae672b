#include "store/extents.h"

#include <algorithm>

namespace hotrow::store {

void Extents::add(std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    extents_.emplace_back();
    free_.insert(free_.end(), size() - 1);
  }
}

std::uint32_t Extents::open(std::uint64_t generation, std::uint64_t opened_at, std::byte* memory) {
  const std::uint32_t number = *free_.begin();
  Extent& extent = extents_[number];
  extent.bits = std::make_unique<std::uint64_t[]>(kSlotBits * words_);
  free_.erase(free_.begin());
  extent.state = ExtentState::open;
  extent.damaged = false;
  extent.used = extent.written = extent.live = extent.dead = extent.tombstones = 0;
  extent.generation = generation;
  extent.opened_at = opened_at;
  extent.last_tombstone = 0;
  extent.memory = memory;
  return number;
}

void Extents::found(std::uint32_t number, const ExtentHeader& header) {
  Extent& extent = extents_[number];
  extent.bits = std::make_unique<std::uint64_t[]>(kSlotBits * words_);
  free_.erase(number);
  extent.state = ExtentState::sealed;
  extent.used = extent.written = geometry_.slots();
  extent.generation = header.generation;
  extent.opened_at = header.opened_at;
}

void Extents::release(std::uint32_t number) {
  Extent& extent = extents_[number];
  extent.state = ExtentState::free;
  extent.used = extent.written = extent.dead = 0;
  extent.bits.reset();
  free_.insert(number);
}

std::size_t Extents::bytes() const {
  const auto used = static_cast<std::size_t>(std::ranges::count_if(extents_, [](const Extent& e) { return !!e.bits; }));
  return extents_.size() * sizeof(Extent) + used * kSlotBits * words_ * sizeof(std::uint64_t) + free_.size() * 40;
}

std::uint64_t Extents::oldest_dirty(std::uint32_t but) const {
  std::uint64_t oldest = ~std::uint64_t{0};
  for (std::uint32_t number = 0; number < size(); ++number)
    if (number != but && extents_[number].dead > 0) oldest = std::min(oldest, extents_[number].opened_at);
  return oldest;
}

}  // namespace hotrow::store
