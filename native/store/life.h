// How long a row may stay, as plain data: capacity and what happens at it, expiry, and who is let in.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hotrow::store {

// light_lfu and ahead are those of caches.
enum class Eviction : int { none, lru, lfu, refuse, light_lfu, ahead };

enum class AdmissionKind : int { everyone, at_least, chance };

struct AdmissionSpec {
  AdmissionKind kind = AdmissionKind::everyone;
  std::uint32_t count = 0;         // at_least: occurrences
  std::uint64_t filter_bytes = 0;  // at_least: of the counting Bloom filter; 0: exact counts
  double probability = 1;          // chance
};

struct LifeSpec {
  std::uint64_t capacity_rows = 0;  // 0: no limit
  Eviction eviction = Eviction::none;
  std::uint32_t hot = 10;    // light_lfu: rows seen so often are counted no more
  std::uint64_t expiry = 0;  // samples unseen; 0: never
  AdmissionSpec admission;
  float default_value = 0;                               // every element of what a key that was turned away gives
  bool keep_evicted = false;                             // batches carry the rows that fell out for them
  bool evicted_stay = false;                             // in another tier: an evicted row is not a removed one
  std::uint64_t gone_keys_max = std::uint64_t{1} << 22;  // evicted or expired keys that wait for someone to ask

  bool ordered() const { return eviction == Eviction::lru || by_frequency(); }
  bool by_frequency() const {
    return eviction == Eviction::lfu || eviction == Eviction::light_lfu || eviction == Eviction::ahead;
  }
};

// Time as rows know it: 32 bits that count samples in units coarse enough to last.
class Ticks {
 public:
  explicit Ticks(const LifeSpec& life)
      : expiry_(life.expiry), unit_(life.expiry == 0 ? kUnit : (life.expiry + kPerExpiry - 1) / kPerExpiry) {}

  std::uint64_t of(std::uint64_t samples) const { return samples / unit_; }
  std::uint64_t samples(std::uint32_t ticks) const { return ticks * unit_; }
  bool expired(std::uint32_t last_seen, std::uint32_t now) const {
    return expiry_ != 0 && now > last_seen && std::uint64_t{now - last_seen} * unit_ > expiry_;
  }

 private:
  static constexpr std::uint64_t kUnit = 1024;
  static constexpr std::uint64_t kPerExpiry = 65536;
  std::uint64_t expiry_, unit_;
};

}  // namespace hotrow::store
