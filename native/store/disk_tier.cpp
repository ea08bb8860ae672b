#include "store/disk_tier.h"

#include <unistd.h>

#include <algorithm>
#include <numeric>

namespace hotrow::store {
namespace {

constexpr std::uint32_t kExtentsLeast = 8;
constexpr std::uint32_t kExtentsSpare = 3;  // for compaction, beside the one that is open
// The rest of the slots is for copies that were superseded: without them every write would have to compact.
constexpr std::size_t kRowsOf = 9, kSlotsOf = 10;

}  // namespace

DiskTier::DiskTier(DiskSpec spec)
    : spec_(std::move(spec)),
      process_(getpid()),
      file_(std::make_unique<DiskFile>(spec_.path, spec_.direct, spec_.io, spec_.depth, spec_.rows_io)) {
  const bool made = file_->bytes() == 0;
  try {
    if (spec_.index_cache)
      index_.use_file(std::make_unique<PagedIndex>(spec_.path + ".index", spec_.direct, spec_.io, spec_.depth,
                                                   *spec_.index_cache, spec_.index_io));
    open_file();
    check_bounds();
  } catch (...) {
    if (made) file_->remove();  // a tier that is refused leaves no file
    throw;
  }
  extents_max_ = static_cast<std::uint32_t>(spec_.capacity_bytes / geometry_.extent_bytes) - 1;
  capacity_rows_ = std::size_t{extents_max_ - kExtentsSpare} * geometry_.slots() * kRowsOf / kSlotsOf;
  buffers_ = std::max<std::size_t>(2, spec_.write_behind / geometry_.extent_bytes);
  staging_ = Staging(spec_.staging, buffers_ * geometry_.extent_bytes);
  for (std::size_t i = 0; i < buffers_; ++i) free_buffers_.push_back(staging_.data() + i * geometry_.extent_bytes);
  writer_ = std::thread([this] { write_loop(); });
  cleaner_ = std::thread([this] { clean_loop(); });
}

void DiskTier::check_bounds() const {
  const std::uint64_t extents = spec_.capacity_bytes / geometry_.extent_bytes;  // the first is the file's header
  if (extents < kExtentsLeast + 1)
    throw DiskError("capacity_bytes=" + std::to_string(spec_.capacity_bytes) + ": must be at least " +
                    std::to_string((kExtentsLeast + 1) * geometry_.extent_bytes) + " for rows of " +
                    std::to_string(geometry_.slot_bytes) + " bytes");
  if (extents * geometry_.slots() >= kNoSlot)
    throw DiskError("capacity_bytes=" + std::to_string(spec_.capacity_bytes) + ": must be at most " +
                    std::to_string(kNoSlot / geometry_.slots() * geometry_.extent_bytes) +
                    " (2^32 rows in a file): divide the table into more shards");
}

DiskTier::~DiskTier() {
  try {
    close(false);
  } catch (const DiskError&) {  // NOLINT(bugprone-empty-catch): rows that could not be written are lost with the tier
  }
}

void DiskTier::close(bool remove) {
  {
    const std::shared_lock state(state_);
    if (closed_) return;
  }
  std::string fault;
  try {
    if (!remove) flush();
  } catch (const DiskError& error) {
    fault = error.what();
  }
  stop_threads();
  if (remove) file_->remove();
  if (remove || fault.empty()) staging_.remove();  // all of it is in the file, or not wanted
  file_.reset();
  index_.use_file(nullptr);
  if (!fault.empty()) throw DiskError(fault);
}

void DiskTier::stop_threads() {
  {
    const std::lock_guard append(append_);
    const std::unique_lock state(state_);
    ends_ = closed_ = true;
  }
  changed_.notify_all();
  writer_.join();
  cleaner_.join();
}

std::size_t DiskTier::size() const {
  const std::shared_lock state(state_);
  return index_.size();
}

std::size_t DiskTier::unshadowed() const {
  const std::shared_lock state(state_);
  return index_.size() - shadowed_;
}

// By rows and by slots: space that has to be compacted first is not counted.
std::size_t DiskTier::room_rows() const {
  const std::shared_lock state(state_);
  const std::size_t taken = index_.size() + tombstones_;
  const std::size_t extents = extents_->free() + (extents_max_ - std::min(extents_max_, extents_->size()));
  const std::size_t left = open_ ? geometry_.slots() - (*extents_)[*open_].used : 0;
  const std::size_t slots =
      left + (extents > kExtentsForCompaction ? extents - kExtentsForCompaction : 0) * geometry_.slots();
  return taken < capacity_rows_ ? std::min(capacity_rows_ - taken, slots) : 0;
}

void DiskTier::contains(std::span<const Key> keys, bool shadowed, bool* out) {
  in_parts(keys, [&](std::size_t at, std::span<const Key> part) {
    const auto state = locked<std::shared_lock<std::shared_mutex>>(part, IndexUse::find);
    for (std::size_t i = 0; i < part.size(); ++i) {
      if (i + 8 < part.size()) index_.prefetch(part[i + 8]);
      out[at + i] = find(part[i], shadowed) != kNoSlot;
    }
  });
}

void DiskTier::shadow(std::span<const Key> keys) {
  in_parts(keys, [&](std::size_t, std::span<const Key> part) {
    const auto state = locked<std::unique_lock<std::shared_mutex>>(part, IndexUse::find);
    for (std::size_t i = 0; i < part.size(); ++i) {
      if (i + 8 < part.size()) index_.prefetch(part[i + 8]);
      const std::uint32_t slot = index_.find(part[i]);
      if (slot == kNoSlot || extents_->test(kShadowed, slot)) continue;
      extents_->set(kShadowed, slot);
      ++shadowed_;
    }
  });
}

DiskStats DiskTier::stats() const {
  const std::shared_lock state(state_);
  DiskStats found;
  found.rows = index_.size();
  found.shadowed = shadowed_;
  found.tombstones = tombstones_;
  found.capacity_rows = capacity_rows_;
  for (std::uint32_t number = 0; number < extents_->size(); ++number) {
    const Extent& extent = (*extents_)[number];
    if (extent.memory != nullptr) found.staged_rows += extent.used - extent.written;
  }
  found.extents = extents_->size();
  found.free_extents = extents_->free();
  found.slots_per_extent = geometry_.slots();
  found.slot_bytes = geometry_.slot_bytes;
  found.extent_bytes = geometry_.extent_bytes;
  found.index_bytes = index_.bytes();
  if (const PagedIndex* paged = index_.paged(); paged != nullptr) {
    const PagedIndexStats index = paged->stats();
    found.index_filter_bytes = index.filter_bytes;
    found.index_cache_bytes = index.cache_bytes;
    found.index_file_bytes = index.file_bytes;
    found.index_reads = index.reads;
    found.index_writes = index.writes;
  }
  found.bitmap_bytes = extents_->bytes();
  found.staging_bytes = buffers_ * geometry_.extent_bytes;
  found.file_bytes = file_->bytes();
  found.reads = file_->reads();
  found.read_bytes = file_->read_bytes();
  found.writes = file_->writes();
  found.write_bytes = file_->write_bytes();
  found.syncs = file_->syncs();
  found.rows_read = rows_read_;
  found.rows_read_buffered = rows_read_buffered_;
  found.rows_written = rows_written_;
  found.rows_erased = rows_erased_;
  found.compacted_extents = compacted_extents_;
  found.compacted_rows = compacted_rows_;
  found.reused_extents = reused_extents_;
  found.damaged = damaged_;
  found.direct = file_->direct();
  found.io = file_->io_name();
  found.read_wait_s = static_cast<double>(read_wait_ns_) * 1e-9;
  found.write_stall_s = static_cast<double>(write_stall_ns_) * 1e-9;
  return found;
}

// Of an index in a file; `append_` is held, so it does not change.
void DiskTier::verify_pages(std::vector<std::string>& faults) {
  PagedIndex& index = *index_.paged();
  std::size_t counted = index.overflow();
  const auto most = static_cast<std::uint32_t>(std::min<std::size_t>(index.keys_at_once(), 4096));
  for (std::uint32_t first = 0; first < index.page_count(); first += most) {
    std::vector<std::uint32_t> pages(std::min(most, index.page_count() - first));
    std::iota(pages.begin(), pages.end(), first);
    std::shared_lock state(state_);
    IndexPins pins(index);
    while (!pins.take_pages(pages)) bring_pages(state, pins);
    for (const std::uint32_t page : pages) counted += index.verify_page(page, faults);
  }
  if (counted != index.size()) faults.emplace_back("disk index: counts wrong");
}

std::vector<std::string> DiskTier::verify() {
  const std::lock_guard append(append_);
  std::vector<std::string> faults;
  if (index_.paged() != nullptr) verify_pages(faults);
  const std::shared_lock state(state_);
  index_.verify(faults);
  std::size_t live = 0, shadowed = 0, tombstones = 0;
  for (std::uint32_t number = 0; number < extents_->size(); ++number) {
    const Extent& extent = (*extents_)[number];
    tombstones += extent.tombstones;
    if (!extent.bits) continue;
    std::size_t inside = 0;
    for (std::uint32_t slot = extents_->first_slot(number); slot < extents_->first_slot(number + 1); ++slot) {
      inside += extents_->test(kLive, slot);
      shadowed += extents_->test(kShadowed, slot);
      if (extents_->test(kShadowed, slot) && !extents_->test(kLive, slot))
        faults.emplace_back("disk: a slot is shadowed and does not count");
    }
    if (inside != extent.live) faults.emplace_back("disk: an extent counts its rows wrong");
    live += inside;
  }
  if (live != index_.size()) faults.emplace_back("disk: index and extents have different rows");
  if (shadowed != shadowed_) faults.emplace_back("disk: shadowed rows are counted wrong");
  if (tombstones != tombstones_) faults.emplace_back("disk: tombstones are counted wrong");
  return faults;
}

}  // namespace hotrow::store
