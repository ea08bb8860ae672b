#include "store/slot_partitions.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "store/page_sum.h"

namespace hotrow::store {

ScratchBlocks::ScratchBlocks(const std::string& path, bool direct, IoChoice io, int depth, const WrapEngine& wrap)
    : file_(path, direct, io, depth, wrap), pending_(kAtOnce * kPage), found_(kAtOnce * kPage) {
  file_.remove();
}

std::uint32_t ScratchBlocks::append(const std::byte* block) {
  if (waiting_ == kAtOnce) write_pending();
  sums_.push_back(page_sum(written_ + waiting_, block));
  std::memcpy(pending_.data() + std::size_t{waiting_} * kPage, block, kPage);
  return written_ + waiting_++;
}

void ScratchBlocks::write_pending() {
  if (waiting_ == 0) return;
  IoRequest request{std::uint64_t{written_} * kPage, pending_.data(), std::size_t{waiting_} * kPage};
  file_.write({&request, 1});
  written_ += std::exchange(waiting_, 0);
}

std::span<const std::byte> ScratchBlocks::read(std::span<const std::uint32_t> blocks) {
  write_pending();
  std::vector<IoRequest> requests;
  for (std::size_t i = 0; i < blocks.size(); ++i)
    requests.push_back({std::uint64_t{blocks[i]} * kPage, found_.data() + i * kPage, kPage});
  file_.read(requests);
  for (std::size_t i = 0; i < blocks.size(); ++i)
    if (page_sum(blocks[i], requests[i].memory) != sums_[blocks[i]])
      throw DiskError("disk file " + file_.path() + ": block " + std::to_string(blocks[i]) +
                      " is not what was written: look at the disk, and open the rows again");
  return {found_.data(), blocks.size() * kPage};
}

SlotPartitions::SlotPartitions(ScratchBlocks& scratch, int shift, int bits)
    : scratch_(scratch), shift_(shift), parts_(std::size_t{1} << bits), memory_(parts_.size() * kPage) {}

void SlotPartitions::add(const ScannedSlot& slot) {
  const std::size_t number = secret_hash(slot.key).bits >> shift_ & (parts_.size() - 1);
  Part& part = parts_[number];
  block(number)[part.filled++] = slot;
  if (part.filled < kSlotsOfBlock) return;
  part.blocks.push_back(scratch_.append(memory_.data() + number * kPage));
  part.filled = 0;
}

void SlotPartitions::each(std::size_t part, const std::function<void(std::span<const ScannedSlot>)>& visit) {
  const std::vector<std::uint32_t> blocks = std::exchange(parts_[part].blocks, {});
  std::vector<ScannedSlot> slots;
  for (std::size_t at = 0; at < blocks.size(); at += ScratchBlocks::kAtOnce) {
    const auto some = std::span(blocks).subspan(at, std::min(ScratchBlocks::kAtOnce, blocks.size() - at));
    const std::span<const std::byte> found = scratch_.read(some);
    slots.clear();
    for (std::size_t i = 0; i < some.size(); ++i) {
      const auto* first = reinterpret_cast<const ScannedSlot*>(found.data() + i * kPage);
      slots.insert(slots.end(), first, first + kSlotsOfBlock);
    }
    visit(slots);
  }
  visit({block(part), parts_[part].filled});
}

}  // namespace hotrow::store
