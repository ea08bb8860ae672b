// A small open-addressed table of entries key -> slot: linear probing, no tombstones. Both indexes of a disk file are
// made of such tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "store/hash.h"

namespace hotrow::store {

constexpr std::uint32_t kNoSlot = ~std::uint32_t{0};

#pragma pack(push, 4)
struct IndexEntry {
  Key key;
  std::uint32_t slot;  // kNoSlot: the place is empty
};
#pragma pack(pop)
static_assert(sizeof(IndexEntry) == 12);

inline std::size_t home_place(std::uint64_t hash, std::size_t places) { return ((hash >> 32) * places) >> 32; }

// Where the key is, or the empty place at which its probing ends. There is an empty place.
inline std::size_t place_of(std::span<const IndexEntry> places, std::uint64_t hash, Key key) {
  std::size_t place = home_place(hash, places.size());
  while (places[place].slot != kNoSlot && places[place].key != key) place = place + 1 == places.size() ? 0 : place + 1;
  return place;
}

inline void insert_entry(std::span<IndexEntry> places, const IndexEntry& entry) {
  places[place_of(places, secret_hash(entry.key).bits, entry.key)] = entry;
}

// Entries behind the hole move up, unless that would put them before their homes.
inline void erase_place(std::span<IndexEntry> places, std::size_t hole) {
  const std::size_t count = places.size();
  const auto next = [&](std::size_t place) { return place + 1 == count ? 0 : place + 1; };
  for (std::size_t place = next(hole); places[place].slot != kNoSlot; place = next(place)) {
    const std::size_t from = home_place(secret_hash(places[place].key).bits, count);
    if ((place + count - from) % count < (place + count - hole) % count) continue;
    places[hole] = places[place];
    hole = place;
  }
  places[hole].slot = kNoSlot;
}

}  // namespace hotrow::store
