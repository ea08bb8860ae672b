#include "store/admission.h"

#include <algorithm>
#include <cmath>

namespace hotrow::store {
namespace {

constexpr std::size_t kBlock = 64;  // counters of a filter block: one cache line
constexpr std::size_t kWaitingLeast = 64;

}  // namespace

Admission::Admission(const AdmissionSpec& spec, std::uint64_t stream, std::size_t partitions, double share)
    : spec_(spec), stream_(stream) {
  if (spec.kind != AdmissionKind::at_least) return;
  if (spec.filter_bytes != 0)
    filter_.resize(std::max<std::size_t>(spec.filter_bytes / partitions / kBlock, 1) * kBlock);
  else
    waiting_.resize(static_cast<std::size_t>(kWaitingLeast * std::exp2(share)));
}

bool Admission::admit(Key key, std::uint32_t occurrences, std::uint64_t call) {
  switch (spec_.kind) {
    case AdmissionKind::at_least:
      return filter_.empty() ? admit_exactly(key, occurrences) : admit_by_filter(key, occurrences);
    case AdmissionKind::chance:
      return by_chance(key, call);
    default:
      return true;
  }
}

bool Admission::by_chance(Key key, std::uint64_t call) const {
  const std::uint64_t bits = hash_key(hash_key(key ^ stream_) + call * kGolden);
  return static_cast<double>(bits >> 11) * 0x1p-53 < spec_.probability;
}

std::array<const std::uint8_t*, Admission::kCounters> Admission::counters_of(Key key) const {
  const std::uint64_t hash = hash_key(key ^ kGolden);  // not the partition's: it holds only part of those
  const std::uint8_t* block = &filter_[(hash >> 32) * (filter_.size() / kBlock) >> 32 << 6];
  std::array<const std::uint8_t*, kCounters> counters;
  for (int n = 0; n < kCounters; ++n) counters[n] = block + (hash >> (6 * n)) % kBlock;
  return counters;
}

bool Admission::admit_by_filter(Key key, std::uint32_t occurrences) {
  const auto counters = counters_of(key);
  std::uint32_t least = 255;
  for (const std::uint8_t* counter : counters) least = std::min<std::uint32_t>(least, *counter);
  const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(std::uint64_t{least} + occurrences, 255));
  for (const std::uint8_t* counter : counters) {
    std::uint8_t& mine = filter_[static_cast<std::size_t>(counter - filter_.data())];
    mine = std::max(mine, static_cast<std::uint8_t>(count));
  }
  return count >= spec_.count;
}

bool Admission::Preview::admits(Key key, std::uint32_t occurrences, std::uint64_t call) {
  const Admission& all = admission_;
  if (all.spec_.kind == AdmissionKind::chance) return all.by_chance(key, call);
  if (all.spec_.kind != AdmissionKind::at_least) return true;
  if (all.filter_.empty()) {
    const Waiting& found = all.waiting_[all.place_of(key)];
    return std::uint64_t{found.count} + occurrences >= all.spec_.count;
  }
  const auto counters = all.counters_of(key);
  const auto now = [&](const std::uint8_t* counter) {
    const auto raised = raised_.find(counter);
    return raised == raised_.end() ? *counter : raised->second;
  };
  std::uint32_t least = 255;
  for (const std::uint8_t* counter : counters) least = std::min<std::uint32_t>(least, now(counter));
  const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(std::uint64_t{least} + occurrences, 255));
  for (const std::uint8_t* counter : counters)
    if (now(counter) < count) raised_[counter] = static_cast<std::uint8_t>(count);
  return count >= all.spec_.count;
}

std::size_t Admission::place_of(Key key) const {
  std::size_t place = home(key);
  while (waiting_[place].count != 0 && waiting_[place].key != key) place = next(place);
  return place;
}

// Open addressing; a key that is let in is taken out again, and those behind it move up.
bool Admission::admit_exactly(Key key, std::uint32_t occurrences) {
  const std::size_t place = place_of(key);
  Waiting& found = waiting_[place];
  const bool fresh = found.count == 0;
  const std::uint64_t count = std::uint64_t{found.count} + occurrences;
  if (count >= spec_.count) {
    if (!fresh) forget(place);
    return true;
  }
  found = {key, static_cast<std::uint32_t>(count)};
  waiting_keys_ += fresh;
  if (waiting_keys_ * 4 > waiting_.size() * 3) grow();
  return false;
}

std::vector<std::pair<Key, std::uint32_t>> Admission::waiting() const {
  std::vector<std::pair<Key, std::uint32_t>> counts;
  counts.reserve(waiting_keys_);
  for (const Waiting& each : waiting_)
    if (each.count != 0) counts.emplace_back(each.key, each.count);
  std::sort(counts.begin(), counts.end());  // their places depend on a secret of the process
  return counts;
}

void Admission::forget() {
  std::fill(filter_.begin(), filter_.end(), std::uint8_t{0});
  std::fill(waiting_.begin(), waiting_.end(), Waiting{});
  waiting_keys_ = 0;
}

void Admission::restore(Key key, std::uint32_t count) {
  const std::size_t place = place_of(key);
  waiting_keys_ += waiting_[place].count == 0;
  waiting_[place] = {key, count};
  if (waiting_keys_ * 4 > waiting_.size() * 3) grow();
}

void Admission::restore(std::span<const std::uint8_t> filter) {
  std::copy(filter.begin(), filter.end(), filter_.begin());
}

std::size_t Admission::home(Key key) const {
  return static_cast<std::size_t>((secret_hash(key).bits >> 32) * waiting_.size() >> 32);
}

void Admission::forget(std::size_t place) {
  --waiting_keys_;
  for (std::size_t behind = next(place); waiting_[behind].count != 0; behind = next(behind)) {
    // Whoever could not have stood at `place` stays: its home lies behind it.
    const std::size_t from_home = (behind + waiting_.size() - home(waiting_[behind].key)) % waiting_.size();
    const std::size_t from_place = (behind + waiting_.size() - place) % waiting_.size();
    if (from_home < from_place) continue;
    waiting_[place] = waiting_[behind];
    place = behind;
  }
  waiting_[place].count = 0;
}

void Admission::grow() {
  std::vector<Waiting> old(waiting_.size() * 2);
  old.swap(waiting_);
  for (const Waiting& each : old) {
    if (each.count == 0) continue;
    std::size_t place = home(each.key);
    while (waiting_[place].count != 0) place = next(place);
    waiting_[place] = each;
  }
}

}  // namespace hotrow::store
