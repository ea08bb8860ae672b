#include <algorithm>
#include <bit>

#include "store/disk_tier.h"
#include "store/stopwatch.h"

namespace hotrow::store {
namespace {

constexpr std::size_t kSpanMost = 256 << 10;  // of one request
constexpr std::size_t kGapMost = kPage;  // bytes read in vain where that saves a request: disks take as long for either
constexpr std::size_t kWindowMost = 16 << 20;  // of buffers at a time

// Neighbouring slots that are read by one request: wanted[first, end).
struct ReadSpan {
  std::size_t first, end;
  std::uint64_t offset;
  std::size_t bytes;
};

std::uint64_t page_down(std::uint64_t at) { return at / kPage * kPage; }
std::uint64_t page_up(std::uint64_t at) { return (at + kPage - 1) / kPage * kPage; }

}  // namespace

std::size_t DiskTier::read(std::span<const Key> keys, bool shadowed, bool* found, const DiskColumns& out) {
  std::vector<SlotRead> wanted;
  std::size_t rows = 0, buffered = 0;
  const auto find_part = [&](std::size_t at, std::span<const Key> part) {
    const auto state = locked<std::shared_lock<std::shared_mutex>>(part, IndexUse::find);
    for (std::size_t i = at; i < at + part.size(); ++i) {
      if (i + 8 < keys.size()) index_.prefetch(keys[i + 8]);
      const std::uint32_t slot = find(keys[i], shadowed);
      found[i] = slot != kNoSlot;
      if (!found[i]) continue;
      const auto row = static_cast<std::uint32_t>(rows++);
      if (const std::byte* memory = extents_->in_memory(slot); memory != nullptr) {
        spec_.layout.decode(memory, out, row);
        ++buffered;
        continue;
      }
      Extent& extent = (*extents_)[extents_->extent_of(slot)];
      wanted.push_back({extents_->slot_at(slot), slot, row, extent.generation, keys[i]});
      ++extent.pins;
    }
  };
  const auto unpin = [&] {
    const std::shared_lock state(state_);
    for (const SlotRead& each : wanted) --(*extents_)[extents_->extent_of(each.slot)].pins;
  };
  try {
    in_parts(keys, find_part);
    if (!wanted.empty()) read_slots(wanted, out);
  } catch (...) {
    unpin();  // an extent that stays pinned is never used again
    throw;
  }
  if (!wanted.empty()) unpin();
  rows_read_ += rows;
  rows_read_buffered_ += buffered;
  return rows;
}

// Sorted by offset, neighbours in one request. The extents are pinned or held by the caller.
void DiskTier::read_slots(std::vector<SlotRead>& wanted, const DiskColumns& out) {
  const Stopwatch waiting(read_wait_ns_);
  std::ranges::sort(wanted, {}, &SlotRead::offset);
  std::vector<ReadSpan> spans;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const std::uint64_t from = page_down(wanted[i].offset);
    const std::uint64_t to = page_up(wanted[i].offset + geometry_.slot_bytes);
    if (!spans.empty()) {
      ReadSpan& last = spans.back();
      if (from <= last.offset + last.bytes + kGapMost && to - last.offset <= std::max(kSpanMost, 2 * kPage)) {
        last.bytes = std::max<std::size_t>(last.bytes, to - last.offset);
        last.end = i + 1;
        continue;
      }
    }
    spans.push_back({i, i + 1, from, to - from});
  }
  std::atomic<const SlotRead*> damaged{nullptr};
  AlignedBuffer buffer;
  for (std::size_t first = 0, end; first < spans.size(); first = end) {
    std::size_t bytes = 0;
    for (end = first; end < spans.size() && (end == first || bytes + spans[end].bytes <= kWindowMost); ++end)
      bytes += spans[end].bytes;
    if (buffer.size() < bytes) buffer = AlignedBuffer(bytes);
    std::vector<IoRequest> requests;
    bytes = 0;
    for (std::size_t i = first; i < end; bytes += spans[i++].bytes)
      requests.push_back({spans[i].offset, buffer.data() + bytes, spans[i].bytes});
    file_->run(IoKind::read, requests, [&](IoRequest& request) {
      if (request.error != 0) return;
      const ReadSpan& span = spans[first + static_cast<std::size_t>(&request - requests.data())];
      for (std::size_t i = span.first; i < span.end; ++i) {
        const std::byte* slot = request.memory + (wanted[i].offset - span.offset);
        if (spec_.layout.whole(slot, wanted[i].generation, wanted[i].slot) &&
            SlotLayout::key(slot) == wanted[i].key.value_or(SlotLayout::key(slot)))
          spec_.layout.decode(slot, out, wanted[i].row);
        else
          damaged = &wanted[i];
      }
    });
    for (const IoRequest& request : requests)
      if (request.error != 0) file_->fail("cannot be read at byte " + std::to_string(request.offset), request.error);
  }
  if (const SlotRead* slot = damaged; slot != nullptr) {
    ++damaged_;
    throw DiskError("disk file " + file_->path() + ": the row" +
                    (slot->key ? " of key " + std::to_string(*slot->key) : "") + " at byte " +
                    std::to_string(slot->offset) + " is damaged: erase its key, or load the last checkpoint");
  }
}

}  // namespace hotrow::store
