#include "store/push_log.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>

#include "store/atomic_ref.h"

namespace hotrow::store {
namespace {

enum Mark : std::uint64_t { kDiscarded, kIntent, kDone, kCut };  // an entry without a grant has no mark

constexpr std::uint64_t grant_of(std::uint64_t entry) { return entry >> 2; }
constexpr Mark mark_of(std::uint64_t entry) { return static_cast<Mark>(entry & 3); }
constexpr std::uint64_t entry_of(std::uint64_t grant, Mark mark) { return grant << 2 | mark; }

// Rows written before a mark are in memory before the mark is: a killed process leaves its stores in the order in which
// the compiler placed them, and release keeps the compiler to the order written here.
void mark(std::uint64_t& entry, std::uint64_t value) {
  atomic_ref(entry).store(value, std::memory_order_release);
  std::atomic_signal_fence(std::memory_order_seq_cst);  // nor may what follows come before it
}

PushSeen seen_as(std::uint64_t found, std::uint64_t grant) {
  if (grant_of(found) > grant) return PushSeen::forgotten;
  if (grant_of(found) < grant) return PushSeen::fresh;
  if (mark_of(found) == kDiscarded) return PushSeen::discarded;
  return mark_of(found) == kDone ? PushSeen::done : PushSeen::partly;
}

}  // namespace

PushLog::PushLog(std::span<std::uint64_t> entries) : entries_(entries) {
  if (entries.size() != kEntries) throw std::invalid_argument("a push log has 65536 entries");
  for (std::uint64_t& found : entries_)
    if (mark_of(found) == kIntent) mark(found, entry_of(grant_of(found), kCut));
}

std::size_t PushLog::first_damaged(std::span<const std::uint64_t> entries) {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::uint64_t found = entries[i];
    if (found == 0) continue;
    if (grant_of(found) == 0 || grant_of(found) % kEntries != i) return i;
  }
  return kEntries;
}

std::uint64_t& PushLog::entry(std::uint64_t grant) const {
  if (grant == 0 || grant > kGrantMax)
    throw std::invalid_argument("grant=" + std::to_string(grant) + ": grants are numbers from 1 to 2**62 - 1");
  return entries_[grant % kEntries];
}

PushSeen PushLog::begin(std::uint64_t grant) {
  std::uint64_t& found = entry(grant);
  const std::lock_guard held(mutex_);
  const PushSeen seen = seen_as(found, grant);
  if (seen == PushSeen::fresh) mark(found, entry_of(grant, kIntent));
  return seen;
}

PushSeen PushLog::find(std::uint64_t grant) const {
  const std::uint64_t& found = entry(grant);
  const std::lock_guard held(mutex_);
  return seen_as(found, grant);
}

PushSeen PushLog::discard(std::uint64_t grant) {
  std::uint64_t& found = entry(grant);
  const std::lock_guard held(mutex_);
  const PushSeen seen = seen_as(found, grant);
  if (seen == PushSeen::fresh) mark(found, entry_of(grant, kDiscarded));
  return seen;
}

void PushLog::finish(std::uint64_t grant) {
  std::uint64_t& found = entry(grant);
  const std::lock_guard held(mutex_);
  if (grant_of(found) > grant) return;
  if (found != entry_of(grant, kIntent))
    throw std::invalid_argument("grant=" + std::to_string(grant) + ": was not begun here, or is finished already");
  mark(found, entry_of(grant, kDone));
}

std::vector<std::uint64_t> PushLog::partly() const {
  const std::lock_guard held(mutex_);
  std::vector<std::uint64_t> grants;
  for (const std::uint64_t found : entries_)
    if (mark_of(found) == kIntent || mark_of(found) == kCut) grants.push_back(grant_of(found));
  std::ranges::sort(grants);
  return grants;
}

std::uint64_t PushLog::newest() const {
  const std::lock_guard held(mutex_);
  return grant_of(*std::ranges::max_element(entries_));  // the grant stands in the upper bits
}

}  // namespace hotrow::store
