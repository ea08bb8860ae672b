#include "store/paged_index.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace hotrow::store {
namespace {

constexpr int kDepthMost = 31;
constexpr std::size_t kDirectoryFactor = 16;  // places of the directory for each page: hashes need two to four

}  // namespace

std::size_t PagedIndex::bytes() const {
  std::size_t sum = pages_.size() * sizeof(Page) + directory_.capacity() * sizeof(std::uint32_t) +
                    free_pages_.capacity() * sizeof(std::uint32_t) + frames_.capacity() * sizeof(Frame) +
                    overflow_.size() * 48;
  for (const Page& page : pages_) sum += page.filter.bytes();
  return sum;
}

PagedIndexStats PagedIndex::stats() const {
  PagedIndexStats found;
  for (const Page& page : pages_) found.filter_bytes += page.filter.bytes();
  const std::size_t pooled = std::min(frames_.size(), frames_most_);
  found.cache_bytes = (pooled + frames_.size() - pooled - free_extra_.size()) * kPage;
  found.file_bytes = file_->bytes();
  found.reads = file_->reads();
  found.writes = file_->writes();
  return found;
}

std::uint32_t PagedIndex::find(Key key) const {
  const std::uint64_t hash = secret_hash(key).bits;
  if (!overflow_.empty())
    if (const auto found = overflow_.find(key); found != overflow_.end()) return found->second;
  const Page& page = pages_[number_of(hash)];
  if (page.frame != kNone) return places(page)[place_of(places(page), hash, key)].slot;
  if (page.filter.may_have(hash)) throw std::logic_error("disk index: a page is used that was not brought");
  return kNoSlot;
}

// The places of a page that is about to change. One without entries need not be read.
std::span<IndexEntry> PagedIndex::changed_places(std::uint32_t number) {
  Page& page = pages_[number];
  if (page.frame == kNone) {
    if (page.entries > 0) throw std::logic_error("disk index: a page is changed that was not brought");
    page.frame = take_frame(number);
    std::memset(frames_[page.frame].memory, 0xff, kPage);
  }
  frames_[page.frame].dirty = true;
  return places(page);
}

void PagedIndex::rebuild_filter(Page& page) {
  page.filter.reset(page.entries);
  if (page.entries == 0) return;
  for (const IndexEntry& entry : places(page))
    if (entry.slot != kNoSlot) page.filter.add(secret_hash(entry.key).bits);
}

std::uint32_t PagedIndex::put(Key key, std::uint32_t slot) {
  const std::uint64_t hash = secret_hash(key).bits;
  if (!overflow_.empty())
    if (const auto found = overflow_.find(key); found != overflow_.end()) return std::exchange(found->second, slot);
  for (;;) {
    const std::uint32_t number = number_of(hash);
    const std::span<IndexEntry> all = changed_places(number);
    Page& page = pages_[number];
    IndexEntry& found = all[place_of(all, hash, key)];
    if (found.slot != kNoSlot) return std::exchange(found.slot, slot);
    if (page.entries < kEntriesMost) {
      found = {key, slot};
      ++page.entries;
      ++entries_;
      if (page.filter.room(page.entries))
        page.filter.add(hash);
      else
        rebuild_filter(page);
      return kNoSlot;
    }
    if (split(number, hash)) continue;
    overflow_.emplace(key, slot);
    ++entries_;
    return kNoSlot;
  }
}

std::uint32_t PagedIndex::erase(Key key) {
  const std::uint64_t hash = secret_hash(key).bits;
  if (const auto found = overflow_.find(key); found != overflow_.end()) {
    const std::uint32_t slot = found->second;
    overflow_.erase(found);
    --entries_;
    return slot;
  }
  const std::uint32_t number = number_of(hash);
  Page& page = pages_[number];
  if (page.frame == kNone && !page.filter.may_have(hash)) return kNoSlot;
  const std::span<IndexEntry> all = changed_places(number);
  const std::size_t place = place_of(all, hash, key);
  const std::uint32_t slot = all[place].slot;
  if (slot == kNoSlot) return kNoSlot;
  erase_place(all, place);
  --page.entries;
  --entries_;
  rebuild_filter(page);
  merge(number, hash);
  return slot;
}

// False: hashes do not tell the keys of the page apart.
bool PagedIndex::split(std::uint32_t number, std::uint64_t hash) {
  if (pages_[number].depth == depth_) {
    const std::size_t used = pages_.size() - free_pages_.size();
    if (depth_ == kDepthMost || directory_.size() > kDirectoryFactor * used) return false;
    const std::size_t half = directory_.size();
    directory_.reserve(2 * half);
    for (std::size_t i = 0; i < half; ++i) directory_.push_back(directory_[i]);
    ++depth_;
  }
  std::uint32_t fresh = page_count();
  if (free_pages_.empty()) {
    pages_.emplace_back();
  } else {
    fresh = free_pages_.back();
    free_pages_.pop_back();
  }
  Page &low = pages_[number], &high = pages_[fresh];
  const std::uint64_t bit = std::uint64_t{1} << low.depth;
  --at_depth_[low.depth];
  high.depth = ++low.depth;
  at_depth_[low.depth] += 2;
  for (std::size_t i = (hash & (bit - 1)) | bit; i < directory_.size(); i += 2 * bit) directory_[i] = fresh;
  std::array<IndexEntry, kPlaces> old;
  std::ranges::copy(places(low), old.begin());
  std::memset(frames_[low.frame].memory, 0xff, kPage);
  low.entries = high.entries = 0;
  for (const IndexEntry& entry : old) {
    if (entry.slot == kNoSlot) continue;
    const bool goes_high = (secret_hash(entry.key).bits & bit) != 0;
    insert_entry(changed_places(goes_high ? fresh : number), entry);
    ++(goes_high ? high : low).entries;
  }
  rebuild_filter(low);
  rebuild_filter(high);
  return true;
}

// The page that was made by the same division; kNone: it has been divided again, or there is none.
std::uint32_t PagedIndex::buddy_of(std::uint32_t number, std::uint64_t hash) const {
  const int depth = pages_[number].depth;
  if (depth == 0) return kNone;
  const std::uint64_t low = hash & ((std::uint64_t{1} << depth) - 1);
  const std::uint32_t buddy = directory_[low ^ (std::uint64_t{1} << (depth - 1))];
  return pages_[buddy].depth == depth ? buddy : kNone;
}

// Two pages with few entries become one. A page that is not in memory stays as it is, also beside one without entries:
// the next keys of the same call are found in pages that are.
void PagedIndex::merge(std::uint32_t number, std::uint64_t hash) {
  for (;;) {
    const std::uint32_t buddy = buddy_of(number, hash);
    if (buddy == kNone || pages_[number].entries + pages_[buddy].entries > kEntriesMerged) break;
    if (absent(pages_[buddy])) break;
    const bool stays = pages_[number].entries > 0;
    const std::uint32_t kept = stays ? number : buddy, gone = stays ? buddy : number;
    const int depth = pages_[gone].depth;
    if (pages_[gone].entries > 0) {
      const std::span<IndexEntry> to = changed_places(kept);
      for (const IndexEntry& entry : places(pages_[gone]))
        if (entry.slot != kNoSlot) insert_entry(to, entry);
      pages_[kept].entries = static_cast<std::uint16_t>(pages_[kept].entries + pages_[gone].entries);
      rebuild_filter(pages_[kept]);
    }
    const std::uint64_t bit = std::uint64_t{1} << (depth - 1);
    const std::size_t of_gone = (hash & (2 * bit - 1)) ^ (stays ? bit : 0);
    for (std::size_t i = of_gone; i < directory_.size(); i += 2 * bit) directory_[i] = kept;
    --pages_[kept].depth;
    at_depth_[depth] -= 2;
    ++at_depth_[depth - 1];
    drop(gone);
    halve_directory();
    number = kept;
  }
}

void PagedIndex::drop(std::uint32_t number) {
  Page& page = pages_[number];
  if (page.frame != kNone) free_frame(std::exchange(page.frame, kNone));
  page.entries = 0;
  page.filter.reset(0);
  free_pages_.push_back(number);
}

void PagedIndex::halve_directory() {
  const int before = depth_;
  while (depth_ > 0 && at_depth_[depth_] == 0) --depth_;
  if (depth_ == before) return;
  directory_.resize(std::size_t{1} << depth_);
  directory_.shrink_to_fit();
}

std::size_t PagedIndex::verify_page(std::uint32_t number, std::vector<std::string>& faults) const {
  const Page& page = pages_[number];
  if (page.entries == 0) return 0;
  if (page.frame == kNone) {
    faults.emplace_back("disk index: a page is not in memory");
    return page.entries;
  }
  std::vector<std::uint64_t> hashes;
  for (const IndexEntry& entry : places(page)) {
    if (entry.slot == kNoSlot) continue;
    hashes.push_back(secret_hash(entry.key).bits);
    if (number_of(hashes.back()) != number || find(entry.key) != entry.slot)
      faults.emplace_back("disk index: a key is lost");
    if (!page.filter.may_have(hashes.back())) faults.emplace_back("disk index: a filter lacks a key");
  }
  if (!page.filter.room(hashes.size()) || !page.filter.same_as(hashes))
    faults.emplace_back("disk index: a filter is not that of its page");
  if (hashes.size() != page.entries) faults.emplace_back("disk index: a page counts wrong");
  return hashes.size();
}

}  // namespace hotrow::store
