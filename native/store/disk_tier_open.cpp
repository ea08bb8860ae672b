// A file that is there: every slot is read once, in the order in which extents were opened, and of each key the last
// whole copy counts.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>

#include "store/disk_tier.h"
#include "store/parallel.h"

namespace hotrow::store {
namespace {

constexpr std::size_t kHeadersAtOnce = 1024;
constexpr std::size_t kScanWindow = 16 << 20;
constexpr std::size_t kIndexBytes = 24;  // of a file for each row, about
constexpr int kLevelBitsLeast = 4;
constexpr std::size_t kReplayedAtOnce = 4096;  // slots; their pages are in memory
// A header that is lost had a generation that is not known: the next ones start far above it.
constexpr std::uint64_t kGenerationsApart = std::uint64_t{1} << 32;

}  // namespace

void DiskTier::open_file() {
  const std::uint64_t size = file_->bytes();
  AlignedBuffer buffer(2 * kPage);
  IoRequest request{0, buffer.data(), 2 * kPage};
  file_->read({&request, 1});
  const std::vector<std::byte> pages(buffer.data(), buffer.data() + 2 * kPage);
  if (read_file_header(spec_.path, pages, size, spec_.identity, spec_.layout.bytes(), geometry_) ==
      FoundHeader::whole) {
    extents_ = std::make_unique<Extents>(geometry_);
    scan(take_over_staged());
    return;
  }
  geometry_ = choose_geometry(spec_.layout, spec_.capacity_bytes);
  extents_ = std::make_unique<Extents>(geometry_);
  check_bounds();
  const std::vector<std::byte> header = file_header(spec_.path, geometry_, spec_.identity);
  std::memcpy(buffer.data(), header.data(), header.size());
  request = {0, buffer.data(), 2 * kPage};
  file_->write({&request, 1});
  file_->sync();
}

// Extents that a killed process had not written yet. One that the file has as it was then, or has used again since, is
// left: its generation tells. Returns how many slots are damaged.
std::size_t DiskTier::take_over_staged() {
  const Staging found = Staging::found(spec_.staging);
  if (found.data() == nullptr) return 0;
  std::size_t damaged = 0;
  const AlignedBuffer pages(2 * kPage), whole(geometry_.extent_bytes);
  for (std::size_t at = 0; at + geometry_.extent_bytes <= found.bytes(); at += geometry_.extent_bytes) {
    const std::byte* staged = found.data() + at;
    ExtentHeader header, stored{};
    if (!read_extent_header(staged, staged + geometry_.extent_bytes - kExtentHeader, header)) continue;
    const std::uint64_t place = geometry_.extent_at(header.extent);
    if (place + geometry_.extent_bytes <= file_->bytes()) {
      IoRequest both[] = {{place, pages.data(), kPage},
                          {place + geometry_.extent_bytes - kPage, pages.data() + kPage, kPage}};
      file_->read(both);
      if (!read_extent_header(pages.data(), pages.data() + 2 * kPage - kExtentHeader, stored)) stored = {};
    }
    if (stored.generation > header.generation) continue;
    std::memcpy(whole.data(), staged, geometry_.extent_bytes);
    const std::uint32_t used = keep_whole_slots(whole.data() + kExtentHeader, header, damaged);
    if (used == 0) continue;
    write_extent_header(whole.data(), geometry_.extent_bytes, header.generation, header.opened_at, header.extent, used);
    file_->grow(place + geometry_.extent_bytes);
    IoRequest request{place, whole.data(), geometry_.extent_bytes};
    file_->write({&request, 1});
  }
  file_->sync();
  return damaged;
}

// Of an extent in memory; returns how many there are. One that its header does not count was being written when its
// process died, and is no damage: its row is still where it was.
std::uint32_t DiskTier::keep_whole_slots(std::byte* slots, const ExtentHeader& header, std::size_t& damaged) const {
  const std::uint64_t first = extents_->first_slot(header.extent);
  const std::size_t bytes = geometry_.slot_bytes;
  std::uint32_t kept = 0;
  for (std::uint32_t index = 0; index < geometry_.slots(); ++index) {
    std::byte* slot = slots + std::size_t{index} * bytes;
    if (!spec_.layout.whole(slot, header.generation, first + index)) {
      damaged += index < header.used;
      continue;
    }
    if (kept != index) {
      std::memcpy(slots + std::size_t{kept} * bytes, slot, bytes);
      spec_.layout.seal(slots + std::size_t{kept} * bytes, header.generation, first + kept);
    }
    ++kept;
  }
  std::fill(slots + std::size_t{kept} * bytes, slots + std::size_t{geometry_.slots()} * bytes, std::byte{});
  return kept;
}

void DiskTier::scan(std::size_t damaged) {
  const auto start = std::chrono::steady_clock::now();
  opened_.emplace();
  opened_->torn = damaged;
  const std::uint64_t size = file_->bytes();
  const std::uint64_t data = size > geometry_.extent_bytes ? size - geometry_.extent_bytes : 0;
  const std::uint64_t count = (data + geometry_.extent_bytes - 1) / geometry_.extent_bytes;
  if (count * geometry_.slots() >= kNoSlot)
    throw DiskError("disk file " + spec_.path + ": has " + std::to_string(size) + " bytes, more than 2^32 rows");
  extents_->add(static_cast<std::uint32_t>(count));
  if (count > 0) file_->grow(geometry_.extent_at(static_cast<std::uint32_t>(count)));
  const std::vector<FoundExtent> found = find_extents();
  const std::size_t window = std::max<std::size_t>(1, kScanWindow / geometry_.extent_bytes);
  const AlignedBuffer bytes(std::min(window, found.size()) * geometry_.extent_bytes);
  Replay into;
  const int bits = part_bits(found.size() * geometry_.slots());
  std::optional<ScratchBlocks> scratch;
  if (bits > 0) {
    index_.paged()->divide(bits);
    scratch.emplace(spec_.path + ".scan", spec_.direct, spec_.io, spec_.depth, spec_.index_io);
    into.parts.emplace(*scratch, 0, level_bits(bits));
  }
  for (std::size_t at = 0; at < found.size(); at += window)
    replay(std::span(found).subspan(at, std::min(window, found.size() - at)), bytes, into);
  if (into.parts) replay_parts(*scratch, *into.parts, level_bits(bits), bits);
  for (std::uint32_t number = 0; number < extents_->size(); ++number) {
    Extent& extent = (*extents_)[number];
    if (extent.state != ExtentState::sealed) continue;
    extent.state = ExtentState::stored;
    retire_if_empty(number);
  }
  generation_ += kGenerationsApart;
  ++sequence_;
  clean_wanted_ = true;
  file_->sync();  // what was read may be in the memory of the system only
  opened_->rows = index_.size();
  opened_->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// All extents that may hold rows, in the order of their openings; those without a whole header come first.
std::vector<DiskTier::FoundExtent> DiskTier::find_extents() {
  std::vector<FoundExtent> found;
  for (std::uint32_t first = 0; first < extents_->size(); first += kHeadersAtOnce) {
    const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(kHeadersAtOnce, extents_->size() - first));
    const AlignedBuffer pages(count * 2 * kPage);
    std::vector<IoRequest> requests;
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint64_t at = geometry_.extent_at(first + i);
      requests.push_back({at, pages.data() + i * 2 * kPage, kPage});
      requests.push_back({at + geometry_.extent_bytes - kPage, pages.data() + (i * 2 + 1) * kPage, kPage});
    }
    file_->read(requests);
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::byte* both = pages.data() + i * 2 * kPage;
      ExtentHeader header;
      if (!read_extent_header(both, both + 2 * kPage - kExtentHeader, header) || header.extent != first + i)
        header = {};
      generation_ = std::max(generation_, header.generation + 1);
      sequence_ = std::max(sequence_, header.opened_at + 1);
      const bool free = header.generation != 0 && header.used == 0;
      if (!free) found.emplace_back(first + i, header);
    }
  }
  std::ranges::sort(found, {}, [](const FoundExtent& each) { return each.second.opened_at; });
  return found;
}

void DiskTier::replay(std::span<const FoundExtent> part, const AlignedBuffer& bytes, Replay& into) {
  std::vector<IoRequest> requests;
  for (std::size_t i = 0; i < part.size(); ++i)
    requests.push_back(
        {geometry_.extent_at(part[i].first), bytes.data() + i * geometry_.extent_bytes, geometry_.extent_bytes});
  file_->read(requests);
  std::vector<std::vector<ScannedSlot>> whole(part.size());
  std::vector<std::size_t> torn(part.size());
  parallel_for(spec_.threads, part.size(), [&](std::size_t i) {
    const auto& [number, header] = part[i];
    for (std::uint32_t index = 0; index < geometry_.slots(); ++index) {
      const std::byte* slot = requests[i].memory + kExtentHeader + std::size_t{index} * geometry_.slot_bytes;
      const std::uint32_t place = extents_->first_slot(number) + index;
      if (header.generation != 0 && spec_.layout.whole(slot, header.generation, place))
        whole[i].push_back({SlotLayout::key(slot), SlotLayout::sequence(slot), place});
      else
        torn[i] += index < header.used || !SlotLayout::empty(slot);
    }
  });
  for (std::size_t i = 0; i < part.size(); ++i) {
    opened_->torn += torn[i];
    if (part[i].second.generation == 0) continue;
    extents_->found(part[i].first, part[i].second);
    if (into.parts)
      for (const ScannedSlot& slot : whole[i]) into.parts->add(slot);
    else
      replay_slots(whole[i], into.counts_in);
  }
}

// How many low bits of the hash divide so many slots into parts whose pages take half of the index's cache.
int DiskTier::part_bits(std::size_t slots) const {
  if (index_.paged() == nullptr) return 0;
  const std::size_t pages = slots * kIndexBytes, room = std::max(index_.paged()->cache_bytes() / 2, 16 * kPage);
  return static_cast<int>(std::bit_width(pages / room));
}

// Those of one level: a block of memory for each part, in a quarter of the cache.
int DiskTier::level_bits(int bits) const {
  const std::size_t blocks = index_.paged()->cache_bytes() / 4 / kPage;
  return std::min(bits, std::max(kLevelBitsLeast, static_cast<int>(std::bit_width(blocks)) - 1));
}

// Slots of one part after the other; a part that is still too large is divided again.
void DiskTier::replay_parts(ScratchBlocks& scratch, SlotPartitions& parts, int done, int bits) {
  for (std::size_t part = 0; part < parts.size(); ++part) {
    if (done == bits) {
      FoundTombstones counts_in;
      parts.each(part, [&](std::span<const ScannedSlot> slots) { replay_slots(slots, counts_in); });
      continue;
    }
    const int more = level_bits(bits - done);
    SlotPartitions smaller(scratch, done, more);
    parts.each(part, [&](std::span<const ScannedSlot> slots) {
      for (const ScannedSlot& slot : slots) smaller.add(slot);
    });
    replay_parts(scratch, smaller, done + more, bits);
  }
}

void DiskTier::replay_slots(std::span<const ScannedSlot> slots, FoundTombstones& counts_in) {
  std::vector<Key> keys;
  for (std::size_t at = 0; at < slots.size(); at += kReplayedAtOnce) {
    const auto part = slots.subspan(at, std::min(kReplayedAtOnce, slots.size() - at));
    keys.clear();
    for (const ScannedSlot& slot : part) keys.push_back(Key{slot.key});  // a packed field has no reference
    const auto state = locked<std::unique_lock<std::shared_mutex>>(keys, IndexUse::put);
    for (const ScannedSlot& slot : part) replay_slot(slot, counts_in);
  }
}

void DiskTier::replay_slot(const ScannedSlot& slot, FoundTombstones& counts_in) {
  const Key key = slot.key;  // a packed field has no reference
  const std::uint32_t number = extents_->extent_of(slot.slot);
  Extent& extent = (*extents_)[number];
  const std::uint64_t sequence = slot.sequence & ~kErased;
  sequence_ = std::max(sequence_, sequence + 1);
  const bool erased = (slot.sequence & kErased) != 0;
  const std::uint32_t before = erased ? index_.erase(key) : index_.put(key, slot.slot);
  if (before != kNoSlot) {
    kill(before);
    ++opened_->superseded;
  }
  // The newest slot of a key protects from all its copies, and of two copies of a tombstone the last one counts: an
  // older one would keep an extent in use that was emptied before a kill, and every kill would leave one free extent
  // less. A tombstone that was moved may follow a newer one.
  const auto counted = counts_in.find(key);
  const bool known = counted != counts_in.end();
  if (known && erased && sequence < counted->second.sequence) return;
  if (known) {
    --(*extents_)[counted->second.extent].tombstones;
    --tombstones_;
    counts_in.erase(counted);
  }
  if (!erased) {
    extents_->set(kLive, slot.slot);
    ++extent.live;
    return;
  }
  if (before == kNoSlot && !known) return;  // there is no copy that it protects from
  counts_in.emplace(key, FoundTombstone{number, sequence});
  ++extent.tombstones;
  ++tombstones_;
  extent.last_tombstone = std::max(extent.last_tombstone, sequence);
}

}  // namespace hotrow::store
