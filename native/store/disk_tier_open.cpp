// A file that is there: every slot is read once, in the order in which extents were opened, and of each key the last
// whole copy counts.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "store/disk_tier.h"
#include "store/parallel.h"

namespace hotrow::store {
namespace {

constexpr std::size_t kHeadersAtOnce = 1024;
constexpr std::size_t kScanWindow = 16 << 20;
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
    take_over_staged();
    scan();
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
// left: its generation tells.
void DiskTier::take_over_staged() {
  const Staging found = Staging::found(spec_.staging);
  if (found.data() == nullptr) return;
  const AlignedBuffer pages(2 * kPage), whole(geometry_.extent_bytes);
  for (std::size_t at = 0; at + geometry_.extent_bytes <= found.bytes(); at += geometry_.extent_bytes) {
    const std::byte* staged = found.data() + at;
    ExtentHeader header, stored{};
    if (!read_extent_header(staged, staged + geometry_.extent_bytes - kExtentHeader, header)) continue;
    std::uint32_t used = 0;
    for (std::uint32_t index = 0; index < geometry_.slots(); ++index)
      if (!SlotLayout::empty(staged + kExtentHeader + std::size_t{index} * geometry_.slot_bytes)) used = index + 1;
    const std::uint64_t place = geometry_.extent_at(header.extent);
    if (place + geometry_.extent_bytes <= file_->bytes()) {
      IoRequest both[] = {{place, pages.data(), kPage},
                          {place + geometry_.extent_bytes - kPage, pages.data() + kPage, kPage}};
      file_->read(both);
      if (!read_extent_header(pages.data(), pages.data() + 2 * kPage - kExtentHeader, stored)) stored = {};
    }
    if (used == 0 || stored.generation > header.generation) continue;
    std::memcpy(whole.data(), staged, geometry_.extent_bytes);
    write_extent_header(whole.data(), geometry_.extent_bytes, header.generation, header.opened_at, header.extent, used);
    file_->grow(place + geometry_.extent_bytes);
    IoRequest request{place, whole.data(), geometry_.extent_bytes};
    file_->write({&request, 1});
  }
  file_->sync();
}

void DiskTier::scan() {
  const auto start = std::chrono::steady_clock::now();
  opened_.emplace();
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
  FoundTombstones counts_in;
  for (std::size_t at = 0; at < found.size(); at += window)
    replay(std::span(found).subspan(at, std::min(window, found.size() - at)), bytes, counts_in);
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

void DiskTier::replay(std::span<const FoundExtent> part, const AlignedBuffer& bytes, FoundTombstones& counts_in) {
  std::vector<IoRequest> requests;
  for (std::size_t i = 0; i < part.size(); ++i)
    requests.push_back(
        {geometry_.extent_at(part[i].first), bytes.data() + i * geometry_.extent_bytes, geometry_.extent_bytes});
  file_->read(requests);
  std::vector<std::vector<bool>> whole(part.size(), std::vector<bool>(geometry_.slots()));
  std::vector<std::size_t> torn(part.size());
  parallel_for(spec_.threads, part.size(), [&](std::size_t i) {
    const auto& [number, header] = part[i];
    for (std::uint32_t index = 0; index < geometry_.slots(); ++index) {
      const std::byte* slot = requests[i].memory + kExtentHeader + std::size_t{index} * geometry_.slot_bytes;
      whole[i][index] =
          header.generation != 0 && spec_.layout.whole(slot, header.generation, extents_->first_slot(number) + index);
      torn[i] += !whole[i][index] && (index < header.used || !SlotLayout::empty(slot));
    }
  });
  for (std::size_t i = 0; i < part.size(); ++i) {
    opened_->torn += torn[i];
    if (part[i].second.generation == 0) continue;
    extents_->found(part[i].first, part[i].second);
    replay_extent(part[i].first, requests[i].memory, whole[i], counts_in);
  }
}

void DiskTier::replay_extent(std::uint32_t number, const std::byte* bytes, const std::vector<bool>& whole,
                             FoundTombstones& counts_in) {
  Extent& extent = (*extents_)[number];
  const auto slot_of = [&](std::uint32_t index) {
    return bytes + kExtentHeader + std::size_t{index} * geometry_.slot_bytes;
  };
  std::unique_lock<std::shared_mutex> state;
  for (std::uint32_t index = 0, brought = 0; index < geometry_.slots(); ++index) {
    if (index == brought) {  // the pages of the keys in the next slots
      if (state) state.unlock();
      std::vector<Key> keys;
      for (; brought < geometry_.slots() && keys.size() < slots_at_once(geometry_.slots()); ++brought)
        if (whole[brought]) keys.push_back(SlotLayout::key(slot_of(brought)));
      state = locked<std::unique_lock<std::shared_mutex>>(keys, IndexUse::put);
    }
    if (!whole[index]) continue;
    const std::byte* slot = slot_of(index);
    const std::uint64_t sequence = SlotLayout::sequence(slot) & ~kErased;
    sequence_ = std::max(sequence_, sequence + 1);
    const bool erased = SlotLayout::erased(slot);
    const std::uint32_t place = extents_->first_slot(number) + index;
    const std::uint32_t before =
        erased ? index_.erase(SlotLayout::key(slot)) : index_.put(SlotLayout::key(slot), place);
    if (before != kNoSlot) {
      kill(before);
      ++opened_->superseded;
    }
    // The newest slot of a key protects from all its copies, and of two copies of a tombstone the last one counts: an
    // older one would keep an extent in use that was emptied before a kill, and every kill would leave one free extent
    // less. A tombstone that was moved may follow a newer one.
    const auto counted = counts_in.find(SlotLayout::key(slot));
    const bool known = counted != counts_in.end();
    if (known && erased && sequence < counted->second.sequence) continue;
    if (known) {
      --(*extents_)[counted->second.extent].tombstones;
      --tombstones_;
      counts_in.erase(counted);
    }
    if (!erased) {
      extents_->set(kLive, place);
      ++extent.live;
      continue;
    }
    if (before == kNoSlot && !known) continue;  // there is no copy that it protects from
    counts_in.emplace(SlotLayout::key(slot), FoundTombstone{number, sequence});
    ++extent.tombstones;
    ++tombstones_;
    extent.last_tombstone = std::max(extent.last_tombstone, sequence);
  }
}

}  // namespace hotrow::store
