// The uses of keys that are known ahead: which announced batches that have not begun hold a key. The batches of a key
// are a list in the order of their announcement; the keys are in a hash table with linear probing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "store/hash.h"

namespace hotrow::store {

class Window {
 public:
  // Returns the next use of the key: this batch, or an earlier one.
  std::uint32_t announce(Key key, std::uint32_t batch) {
    if ((keys_ + 1) * 2 > entries_.size()) grow();
    const std::uint32_t use = take_use(batch);
    Entry& entry = entries_[place(key)];
    if (entry.first == kNone) {
      entry = {key, use, use};
      ++keys_;
      return batch;
    }
    uses_[entry.last].next = use;
    entry.last = use;
    return uses_[entry.first].batch;
  }

  // The batch has begun, or will not; nothing happens where it was not announced. Returns the next use, 0: none.
  std::uint32_t remove(Key key, std::uint32_t batch) {
    if (keys_ == 0) return 0;
    const std::size_t at = place(key);
    Entry& entry = entries_[at];
    std::uint32_t before = kNone;
    for (std::uint32_t use = entry.first; use != kNone; before = use, use = uses_[use].next) {
      if (uses_[use].batch != batch) continue;
      (before == kNone ? entry.first : uses_[before].next) = uses_[use].next;
      if (entry.last == use) entry.last = before;
      uses_[use].next = free_;
      free_ = use;
      break;
    }
    if (entry.first != kNone) return uses_[entry.first].batch;
    if (entry.used()) erase(at);
    return 0;
  }

  std::uint32_t next_use(Key key) const {
    if (keys_ == 0) return 0;
    const Entry& entry = entries_[place(key)];
    return entry.first == kNone ? 0 : uses_[entry.first].batch;
  }

  std::size_t keys() const { return keys_; }
  std::size_t bytes() const { return entries_.capacity() * sizeof(Entry) + uses_.capacity() * sizeof(Use); }

 private:
  static constexpr std::uint32_t kNone = ~0u, kEmpty = ~0u - 1;

  struct Use {
    std::uint32_t batch, next;
  };
  struct Entry {
    Key key = 0;
    std::uint32_t first = kNone, last = kEmpty;  // uses; an empty place has no first and this last
    bool used() const { return last != kEmpty; }
  };

  std::size_t home(Key key) const { return secret_hash(key).bits & (entries_.size() - 1); }

  // Of the key, or an empty one.
  std::size_t place(Key key) const {
    std::size_t at = home(key);
    while (entries_[at].used() && entries_[at].key != key) at = (at + 1) & (entries_.size() - 1);
    return at;
  }

  std::uint32_t take_use(std::uint32_t batch) {
    if (free_ == kNone) {
      uses_.push_back({batch, kNone});
      return static_cast<std::uint32_t>(uses_.size() - 1);
    }
    const std::uint32_t use = free_;
    free_ = uses_[use].next;
    uses_[use] = {batch, kNone};
    return use;
  }

  // Later entries move up, so that no empty place is between a key and its home.
  void erase(std::size_t at) {
    const std::size_t mask = entries_.size() - 1;
    for (std::size_t next = (at + 1) & mask; entries_[next].used(); next = (next + 1) & mask) {
      if (((next - home(entries_[next].key)) & mask) < ((next - at) & mask)) continue;
      entries_[at] = entries_[next];
      at = next;
    }
    entries_[at] = {};
    --keys_;
  }

  void grow() {
    std::vector<Entry> before(std::max<std::size_t>(16, entries_.size() * 2));
    before.swap(entries_);
    for (const Entry& entry : before)
      if (entry.used()) entries_[place(entry.key)] = entry;
  }

  std::vector<Entry> entries_;
  std::vector<Use> uses_;
  std::size_t keys_ = 0;
  std::uint32_t free_ = kNone;
};

}  // namespace hotrow::store
