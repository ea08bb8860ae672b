// Pages of the index come into memory and leave it.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "store/atomic_ref.h"
#include "store/page_sum.h"
#include "store/paged_index.h"

namespace hotrow::store {
namespace {

constexpr std::size_t kAtOnce = 256;  // pages that are written or read by one batch of requests
constexpr std::uint64_t kGrowth = 1 << 20;

}  // namespace

PagedIndex::PagedIndex(const std::string& path, bool direct, IoChoice io, int depth, std::size_t cache_bytes,
                       const WrapEngine& wrap)
    : file_(std::make_unique<DiskFile>(path, direct, io, depth, wrap)),
      frames_most_(std::max<std::size_t>(1, cache_bytes / kPage)),
      pool_(frames_most_ * kPage),
      leaving_(kAtOnce * kPage),
      pages_(1) {
  file_->remove();
  at_depth_[0] = 1;
}

PagedIndex::~PagedIndex() {
  for (std::size_t i = frames_most_; i < frames_.size(); ++i) std::free(frames_[i].memory);
}

void PagedIndex::divide(int depth) {
  if (entries_ > 0 || pages_.size() > 1) throw std::logic_error("disk index: pages are divided that have entries");
  const std::size_t pages = std::size_t{1} << depth;
  directory_.resize(pages);
  pages_.resize(pages);
  for (std::size_t i = 0; i < pages; ++i) {
    directory_[i] = static_cast<std::uint32_t>(i);
    pages_[i].depth = static_cast<std::uint8_t>(depth);
  }
  at_depth_[0] = 0;
  at_depth_[depth] = pages;
  depth_ = depth;
}

void PagedIndex::reserve(std::shared_mutex& state, std::size_t keys) {
  std::uint64_t pages;
  {
    const std::shared_lock held(state);
    pages = pages_.size() + std::min(keys, pages_.size()) + 1;  // each key may divide a page that is full
  }
  file_->grow((pages * kPage + kGrowth - 1) / kGrowth * kGrowth);
}

std::uint32_t PagedIndex::take_frame(std::uint32_t page) {
  auto frame = static_cast<std::uint32_t>(frames_.size());
  if (!free_frames_.empty()) {
    frame = free_frames_.back();
    free_frames_.pop_back();
  } else if (frames_.size() < frames_most_) {
    frames_.push_back({pool_.data() + frames_.size() * kPage});
  } else {
    void* memory = std::aligned_alloc(kPage, kPage);
    if (memory == nullptr) throw std::bad_alloc();
    if (free_extra_.empty()) {
      frames_.push_back({});
    } else {
      frame = free_extra_.back();
      free_extra_.pop_back();
    }
    frames_[frame].memory = static_cast<std::byte*>(memory);
  }
  frames_[frame].page = page;
  frames_[frame].dirty = false;
  frames_[frame].used = 1;
  ++resident_;
  return frame;
}

void PagedIndex::free_frame(std::uint32_t frame) {
  frames_[frame].page = kNone;
  --resident_;
  if (frame < frames_most_) {
    free_frames_.push_back(frame);
  } else {
    std::free(std::exchange(frames_[frame].memory, nullptr));
    free_extra_.push_back(frame);
  }
}

// One page leaves memory, that which the hand finds first unused since it passed; false: all of them are needed. A page
// that changed is copied for `write_pages`.
bool PagedIndex::evict(std::vector<std::uint32_t>& leaving) {
  for (std::size_t step = 0; step < 2 * frames_.size(); ++step) {
    hand_ = (hand_ + 1) % frames_.size();
    Frame& frame = frames_[hand_];
    if (frame.page == kNone || pages_[frame.page].frame != hand_ || pages_[frame.page].pins > 0) continue;
    if (std::exchange(frame.used, 0) != 0) continue;
    Page& page = pages_[frame.page];
    if (frame.dirty && page.entries > 0) {
      std::memcpy(leaving_.data() + leaving.size() * kPage, frame.memory, kPage);
      leaving.push_back(frame.page);
    }
    page.frame = kNone;
    free_frame(static_cast<std::uint32_t>(hand_));
    return true;
  }
  return false;
}

// Pages that could not be written stay in memory.
void PagedIndex::take_back(const std::vector<std::uint32_t>& leaving) {
  for (std::size_t i = 0; i < leaving.size(); ++i) {
    Page& page = pages_[leaving[i]];
    page.frame = take_frame(leaving[i]);
    frames_[page.frame].dirty = true;
    std::memcpy(frames_[page.frame].memory, leaving_.data() + i * kPage, kPage);
  }
}

// Returns their checksums.
std::vector<std::uint32_t> PagedIndex::write_pages(std::span<const std::uint32_t> leaving) {
  std::vector<std::uint32_t> sums;
  std::vector<IoRequest> requests;
  for (std::size_t i = 0; i < leaving.size(); ++i) {
    std::byte* const page = leaving_.data() + i * kPage;
    sums.push_back(page_sum(leaving[i], page));
    requests.push_back({std::uint64_t{leaving[i]} * kPage, page, kPage});
  }
  std::ranges::sort(requests, {}, &IoRequest::offset);
  file_->write(requests);
  return sums;
}

void PagedIndex::read_pages(std::span<IoRequest> requests, std::span<const std::uint32_t> sums) {
  file_->read(requests);
  for (std::size_t i = 0; i < requests.size(); ++i)
    if (const std::uint64_t page = requests[i].offset / kPage; page_sum(page, requests[i].memory) != sums[i])
      throw DiskError("disk file " + file_->path() + ": page " + std::to_string(page) +
                      " is not what was written: look at the disk, and open the rows again, which makes a new index");
}

// A page that is not in memory does not change, so what was read is what it is. A page that left is not read before it
// is written: both are done by the call that holds `bringing_`.
void PagedIndex::bring(std::shared_mutex& state, const std::vector<std::uint32_t>& pages) {
  const std::lock_guard alone(bringing_);
  for (std::size_t at = 0, end; at == 0 || at < pages.size(); at = end) {
    end = std::min(pages.size(), at + kAtOnce);
    bring_part(state, std::span(pages).subspan(at, end - at));
    if (pages.empty()) return;
  }
}

void PagedIndex::bring_part(std::shared_mutex& state, std::span<const std::uint32_t> wanted) {
  std::vector<std::uint32_t> leaving, frames, sums;
  std::vector<IoRequest> requests;
  {
    const std::unique_lock held(state);
    const auto missing = static_cast<std::size_t>(
        std::ranges::count_if(wanted, [&](std::uint32_t page) { return absent(pages_[page]); }));
    while (resident_ + missing > frames_filled() && leaving.size() < kAtOnce && evict(leaving)) continue;
    for (const std::uint32_t page : wanted) {
      if (!absent(pages_[page])) continue;
      frames.push_back(take_frame(page));
      requests.push_back({std::uint64_t{page} * kPage, frames_[frames.back()].memory, kPage});
    }
  }
  bool written = false;
  try {
    const std::vector<std::uint32_t> written_sums = write_pages(leaving);
    written = true;
    {
      const std::unique_lock held(state);
      for (std::size_t i = 0; i < leaving.size(); ++i) pages_[leaving[i]].sum = written_sums[i];
      for (const std::uint32_t frame : frames) sums.push_back(pages_[frames_[frame].page].sum);
    }
    read_pages(requests, sums);
  } catch (...) {  // of the disk, or no memory
    const std::unique_lock held(state);
    for (const std::uint32_t frame : frames) free_frame(frame);
    if (!written) take_back(leaving);
    throw;
  }
  const std::unique_lock held(state);
  for (const std::uint32_t frame : frames) pages_[frames_[frame].page].frame = frame;
}

bool IndexPins::take(std::span<const Key> keys, IndexUse use) {
  std::vector<std::uint32_t> pages;
  for (const Key key : keys) {
    const std::uint64_t hash = secret_hash(key).bits;
    const std::uint32_t number = index_.number_of(hash);
    const PagedIndex::Page& page = index_.pages_[number];
    if (page.frame == PagedIndex::kNone && use != IndexUse::put && !page.filter.may_have(hash)) continue;
    pages.push_back(number);
    if (use != IndexUse::erase) continue;
    const std::uint32_t buddy = index_.buddy_of(number, hash);
    if (buddy == PagedIndex::kNone) continue;
    if (page.entries + index_.pages_[buddy].entries <= PagedIndex::kEntriesMerged + 1) pages.push_back(buddy);
  }
  std::ranges::sort(pages);
  pages.erase(std::ranges::unique(pages).begin(), pages.end());
  // Divisions have put pages into memory: make room for the next ones.
  const bool trim = use != IndexUse::find && index_.crowded() && !std::exchange(trimmed_, true);
  return take_pages(std::move(pages)) && !trim;
}

bool IndexPins::take_pages(std::vector<std::uint32_t> pages) {
  bool all = true;
  for (const std::uint32_t number : pages) {
    PagedIndex::Page& page = index_.pages_[number];
    atomic_ref(page.pins).fetch_add(1, std::memory_order_relaxed);
    all &= !index_.absent(page);
    if (page.frame != PagedIndex::kNone)
      atomic_ref(index_.frames_[page.frame].used).store(1, std::memory_order_relaxed);
  }
  release(std::exchange(pages_, std::move(pages)));
  return all;
}

void IndexPins::release(const std::vector<std::uint32_t>& pages) {
  for (const std::uint32_t number : pages)
    atomic_ref(index_.pages_[number].pins).fetch_add(~std::uint32_t{0}, std::memory_order_relaxed);
}

}  // namespace hotrow::store
