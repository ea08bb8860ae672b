// Who may have a row: keys are counted, exactly or in a counting Bloom filter, or let in by chance. One per partition,
// used under its lock.
//
// The filter is blocked: the four counters of a key lie in one cache line, and only the smallest of them rise
// (conservative update). Counts are never too low, so no key waits longer than with exact counts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "store/hash.h"
#include "store/life.h"

namespace hotrow::store {

class Admission {
 public:
  // `share` in [0, 1) is this partition's place in the cycle of growth: partitions that grew at the same moment would
  // stop everybody.
  Admission(const AdmissionSpec& spec, std::uint64_t stream, std::size_t partitions, double share);

  bool open() const { return spec_.kind == AdmissionKind::everyone; }
  // Counts an absent key that was looked up for `call`; true: it is let in.
  bool admit(Key key, std::uint32_t occurrences, std::uint64_t call);

  // Which keys of one call `admit` would let in, in the order of its calls; nothing is counted.
  class Preview {
   public:
    explicit Preview(const Admission& admission) : admission_(admission) {}
    bool admits(Key key, std::uint32_t occurrences, std::uint64_t call);

   private:
    const Admission& admission_;
    std::unordered_map<const std::uint8_t*, std::uint8_t> raised_;  // counters of the filter, by keys before
  };

  // Keys that wait and how often each has come, by key; none where a filter counts them.
  std::vector<std::pair<Key, std::uint32_t>> waiting() const;
  std::span<const std::uint8_t> filter() const { return filter_; }
  // To put counts back: all are forgotten, then each key gets its own; or the filter as it was, of the same length.
  void forget();
  void restore(Key key, std::uint32_t count);
  void restore(std::span<const std::uint8_t> filter);

  std::size_t bytes() const { return filter_.size() + waiting_.size() * sizeof(Waiting); }

 private:
  struct Waiting {
    Key key;
    std::uint32_t count;  // 0: nobody
  };

  static constexpr int kCounters = 4;  // of a key in the filter
  std::array<const std::uint8_t*, kCounters> counters_of(Key key) const;
  bool by_chance(Key key, std::uint64_t call) const;
  std::size_t place_of(Key key) const;  // in `waiting_`: its own, or the empty one for it
  bool admit_exactly(Key key, std::uint32_t occurrences);
  bool admit_by_filter(Key key, std::uint32_t occurrences);
  std::size_t home(Key key) const;
  std::size_t next(std::size_t place) const { return place + 1 == waiting_.size() ? 0 : place + 1; }
  void forget(std::size_t place);
  void grow();

  AdmissionSpec spec_;
  std::uint64_t stream_;
  std::vector<std::uint8_t> filter_;
  std::vector<Waiting> waiting_;
  std::size_t waiting_keys_ = 0;
};

}  // namespace hotrow::store
