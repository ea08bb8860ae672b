#include "store/disk_index.h"

#include <algorithm>
#include <utility>

namespace hotrow::store {
namespace {

// Fractions of 20: a page that is copied gets a load of 17/20, between the two bounds.
constexpr std::size_t kLoadMost = 18, kLoadCopied = 17, kLoadLeast = 16, kLoadUnit = 20;

}  // namespace

std::size_t DiskIndex::bytes() const {
  std::size_t sum = pages_.capacity() * sizeof(Page);
  for (const Page& page : pages_) sum += page.places.capacity() * sizeof(Entry);
  return sum;
}

void DiskIndex::prefetch(Key key) const {
  const std::uint64_t hash = secret_hash(key).bits;
  const Page& page = pages_[page_of(hash)];
  if (!page.places.empty()) __builtin_prefetch(page.places.data() + home_place(hash, page.places.size()));
}

// Copies the page into as many places as so many entries are to have.
void DiskIndex::resize(Page& page, std::size_t entries) {
  Page copy;
  copy.places.assign(std::max(kPlacesLeast, entries * kLoadUnit / kLoadCopied + 1), Entry{0, kNoSlot});
  copy.entries = page.entries;
  for (const Entry& entry : page.places)
    if (entry.slot != kNoSlot) insert_entry(copy.places, entry);
  page = std::move(copy);
}

void DiskIndex::split_page() {
  pages_.emplace_back();
  Page old = std::move(pages_[split_]);
  Page& low = pages_[split_] = Page{};
  Page& high = pages_.back();
  const std::uint64_t bit = std::uint64_t{1} << level_;
  if (++split_ == bit) {
    split_ = 0;
    ++level_;
  }
  const auto goes_high = [&](const Entry& entry) { return (secret_hash(entry.key).bits & bit) != 0; };
  for (const Entry& entry : old.places)
    if (entry.slot != kNoSlot) ++(goes_high(entry) ? high : low).entries;
  resize(low, low.entries);
  resize(high, high.entries);
  for (const Entry& entry : old.places)
    if (entry.slot != kNoSlot) insert_entry((goes_high(entry) ? high : low).places, entry);
}

// Undoes the last split.
void DiskIndex::merge_page() {
  if (split_ == 0) split_ = std::size_t{1} << --level_;
  --split_;
  const Page high = std::move(pages_.back());
  pages_.pop_back();
  Page& low = pages_[split_];
  resize(low, low.entries + high.entries);
  for (const Entry& entry : high.places)
    if (entry.slot != kNoSlot) insert_entry(low.places, entry);
  low.entries += high.entries;
  if (pages_.capacity() > 2 * pages_.size()) pages_.shrink_to_fit();
}

std::uint32_t DiskIndex::find(Key key) const {
  const std::uint64_t hash = secret_hash(key).bits;
  const Page& page = pages_[page_of(hash)];
  return page.places.empty() ? kNoSlot : page.places[place_of(page.places, hash, key)].slot;
}

std::uint32_t DiskIndex::put(Key key, std::uint32_t slot) {
  const std::uint64_t hash = secret_hash(key).bits;
  Page* page = &pages_[page_of(hash)];
  if (page->places.empty()) resize(*page, 0);
  Entry& found = page->places[place_of(page->places, hash, key)];
  if (found.slot != kNoSlot) return std::exchange(found.slot, slot);
  if ((page->entries + 1) * kLoadUnit > page->places.size() * kLoadMost) {
    if (entries_ >= pages_.size() * kEntriesPerPage) {
      split_page();
      page = &pages_[page_of(hash)];
    }
    if ((page->entries + 1) * kLoadUnit > page->places.size() * kLoadMost) resize(*page, page->entries + 1);
  }
  insert_entry(page->places, {key, slot});
  ++page->entries;
  ++entries_;
  return kNoSlot;
}

std::uint32_t DiskIndex::erase(Key key) {
  const std::uint64_t hash = secret_hash(key).bits;
  Page& page = pages_[page_of(hash)];
  if (page.places.empty()) return kNoSlot;
  const std::size_t hole = place_of(page.places, hash, key);
  const std::uint32_t slot = page.places[hole].slot;
  if (slot == kNoSlot) return kNoSlot;
  erase_place(page.places, hole);
  --page.entries;
  --entries_;
  if (page.places.size() > kPlacesLeast && page.entries * kLoadUnit < page.places.size() * kLoadLeast)
    resize(page, page.entries);
  if (pages_.size() > 1 && 2 * entries_ < pages_.size() * kEntriesPerPage) merge_page();
  return slot;
}

void DiskIndex::verify(std::vector<std::string>& faults) const {
  std::size_t counted = 0;
  for (std::size_t number = 0; number < pages_.size(); ++number) {
    const Page& page = pages_[number];
    std::size_t inside = 0;
    for (const Entry& entry : page.places) {
      if (entry.slot == kNoSlot) continue;
      ++inside;
      const std::uint64_t hash = secret_hash(entry.key).bits;
      if (page_of(hash) != number || find(entry.key) != entry.slot) faults.emplace_back("disk index: a key is lost");
    }
    if (inside != page.entries) faults.emplace_back("disk index: a page counts wrong");
    counted += inside;
  }
  if (counted != entries_) faults.emplace_back("disk index: counts wrong");
}

}  // namespace hotrow::store
