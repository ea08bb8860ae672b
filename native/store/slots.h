// Facts of the slots of one partition: a set of slots, and numbers of some.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "store/hash.h"

namespace hotrow::store {

// One bit for each slot.
class SlotSet {
 public:
  bool has(std::uint32_t slot) const {
    const std::size_t word = slot / 64;
    return word < words_.size() && (words_[word] >> slot % 64 & 1) != 0;
  }

  void insert(std::uint32_t slot) {
    const std::size_t word = slot / 64;
    if (word >= words_.size()) words_.resize(word + 1);
    const std::uint64_t bit = std::uint64_t{1} << slot % 64;
    if ((words_[word] & bit) != 0) return;
    words_[word] |= bit;
    ++slots_;
  }

  void erase(std::uint32_t slot) {
    if (!has(slot)) return;
    words_[slot / 64] &= ~(std::uint64_t{1} << slot % 64);
    --slots_;
  }

  // The first slot of the set from `slot` on; `end` where there is none before it.
  std::uint32_t next(std::uint32_t slot, std::uint32_t end) const {
    for (std::size_t word = slot / 64; word < words_.size() && slot < end;
         slot = static_cast<std::uint32_t>(++word * 64))
      if (const std::uint64_t rest = words_[word] >> slot % 64; rest != 0)
        return slot + static_cast<std::uint32_t>(std::countr_zero(rest)) < end
                   ? slot + static_cast<std::uint32_t>(std::countr_zero(rest))
                   : end;
    return end;
  }

  std::size_t slots() const { return slots_; }
  std::uint32_t end() const { return static_cast<std::uint32_t>(words_.size() * 64); }
  std::size_t bytes() const { return words_.capacity() * sizeof(std::uint64_t); }

 private:
  std::vector<std::uint64_t> words_;
  std::size_t slots_ = 0;
};

// A number for some slots. Open addressing: one for every slot would have its pages taken from the system while calls
// wait, 10 million slots 10,000 of them.
class SlotNumbers {
 public:
  static constexpr std::uint32_t kNone = 0xffffffffu;

  // kNone: it has none.
  std::uint32_t get(std::uint32_t slot) const {
    if (entries_.empty()) return kNone;
    std::size_t place = home(slot);
    while (entries_[place].slot != slot && entries_[place].slot != kNone) place = (place + 1) & (entries_.size() - 1);
    return entries_[place].slot == slot ? entries_[place].number : kNone;
  }

  // Of a slot that has none yet.
  void add(std::uint32_t slot, std::uint32_t number) {
    if (2 * (slots_ + 1) > entries_.size()) grow();
    insert({slot, number});
    ++slots_;
  }

 private:
  struct Entry {
    std::uint32_t slot = kNone, number = 0;
  };

  std::size_t home(std::uint32_t slot) const { return (slot * kGolden >> 32) & (entries_.size() - 1); }

  void insert(Entry entry) {
    std::size_t place = home(entry.slot);
    while (entries_[place].slot != kNone) place = (place + 1) & (entries_.size() - 1);
    entries_[place] = entry;
  }

  void grow() {
    std::vector<Entry> old(std::max<std::size_t>(64, entries_.size() * 2));
    old.swap(entries_);
    for (const Entry& entry : old)
      if (entry.slot != kNone) insert(entry);
  }

  std::vector<Entry> entries_;
  std::size_t slots_ = 0;
};

}  // namespace hotrow::store
