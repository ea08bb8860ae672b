// Slots that a scan has found, divided by the low bits of the hashes of their keys, in the order in which they came. An
// index in a file is made from one part after the other: the pages of a part fit into memory, so each is written once.
//
// Full blocks go to a scratch file, so memory has one block for each part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "store/disk_file.h"
#include "store/hash.h"

namespace hotrow::store {

#pragma pack(push, 4)
struct ScannedSlot {
  Key key;
  std::uint64_t sequence;  // with kErased
  std::uint32_t slot;
};
#pragma pack(pop)
static_assert(sizeof(ScannedSlot) == 20);

// Blocks of 4 KiB, appended. Unlinked as soon as it is open.
class ScratchBlocks {
 public:
  ScratchBlocks(const std::string& path, bool direct, IoChoice io, int depth, const WrapEngine& wrap);

  std::uint32_t append(const std::byte* block);  // returns its number
  // The blocks one after the other, until the next call. DiskError where one is not what was written.
  std::span<const std::byte> read(std::span<const std::uint32_t> blocks);
  static constexpr std::size_t kAtOnce = 64;  // blocks of one read

 private:
  void write_pending();

  DiskFile file_;
  AlignedBuffer pending_, found_;
  std::vector<std::uint32_t> sums_;          // of all blocks
  std::uint32_t written_ = 0, waiting_ = 0;  // blocks in the file, and behind them in `pending_`
};

class SlotPartitions {
 public:
  // By `bits` bits of the hash from bit `shift` on.
  SlotPartitions(ScratchBlocks& scratch, int shift, int bits);

  std::size_t size() const { return parts_.size(); }
  void add(const ScannedSlot& slot);
  // The slots of a part, some at a time.
  void each(std::size_t part, const std::function<void(std::span<const ScannedSlot>)>& visit);

 private:
  static constexpr std::size_t kSlotsOfBlock = kPage / sizeof(ScannedSlot);
  struct Part {
    std::vector<std::uint32_t> blocks;
    std::uint32_t filled = 0;  // of the block in memory
  };
  ScannedSlot* block(std::size_t part) { return reinterpret_cast<ScannedSlot*>(memory_.data() + part * kPage); }

  ScratchBlocks& scratch_;
  int shift_;
  std::vector<Part> parts_;
  AlignedBuffer memory_;
};

}  // namespace hotrow::store
