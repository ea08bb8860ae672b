// Facts of the slots of one partition: a set of slots, and a number for each slot.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

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
    slots_ += (words_[word] >> slot % 64 & 1) == 0;
    words_[word] |= std::uint64_t{1} << slot % 64;
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

// A number for each slot below an end, 0 until it is set. Its pages are taken from the system as they are written.
class SlotNumbers {
 public:
  std::uint32_t get(std::uint32_t slot) const { return numbers_ == nullptr ? 0 : numbers_.get()[slot]; }

  void set(std::uint32_t slot, std::uint32_t number, std::uint32_t end) {
    if (numbers_ == nullptr) {
      numbers_.reset(static_cast<std::uint32_t*>(std::calloc(end, sizeof(std::uint32_t))));
      if (numbers_ == nullptr) throw std::bad_alloc();
    }
    numbers_.get()[slot] = number;
  }

 private:
  struct Free {
    void operator()(std::uint32_t* numbers) const { std::free(numbers); }
  };
  std::unique_ptr<std::uint32_t, Free> numbers_;
};

}  // namespace hotrow::store
