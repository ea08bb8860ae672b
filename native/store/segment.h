// Row memory that outlives its process: a file in shared memory (or anywhere), mapped in blocks that never move. Pieces
// are cut from it one after the other as from an Arena, each behind a header with its tag, so that a process that
// attaches later finds them again. A killed process leaves what it stored, in the order in which it stored it; the mark
// that makes a piece known is written after the rest of its header, so an attach sees whole pieces only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "store/push_log.h"
#include "store/segment_format.h"
#include "store/segment_owner.h"

namespace hotrow::store {

struct Piece {
  PieceTag tag;
  std::byte* memory;
  std::size_t bytes;
};

struct SegmentSpec {
  std::string path;
  Identity identity;
  bool huge = false;  // the path must lie on hugetlbfs
  bool keep = false;  // the file stays when the segment is closed
};

class Segment {
 public:
  // Creates the file, or attaches to the one that is there. SegmentError says in a sentence what stands in the way.
  explicit Segment(const SegmentSpec& spec);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  bool attached() const { return attached_; }               // the file was there
  std::span<const Piece> pieces() const { return found_; }  // those found on attach, in the order they were allocated
  // Zeroed memory, aligned to 64 bytes, that a later attach finds again under this tag. Thread-safe. The file has its
  // room before the memory is given out, so no later touch can fail; SegmentError where there is none, and nothing has
  // changed.
  std::byte* allocate(const PieceTag& tag, std::size_t bytes);
  std::size_t bytes() const;              // of the file
  PushLog& pushes() { return *pushes_; }  // NOLINT(bugprone-unchecked-optional-access): every constructor makes it
  // Gives the file up: removes it unless it is to be kept, and unlocks it. Memory and push log stay mapped until the
  // segment is destroyed, but nothing new is given out. In a forked child the file is left as it is.
  void close() noexcept;
  // Gives the file up and leaves it as it is, whatever was asked.
  void leave() noexcept;
  // The rows of an earlier process are in use now. Until then a segment that is destroyed leaves them: whatever went
  // wrong on the way, nobody loses rows by it.
  void take_over() { taken_over_ = true; }

 private:
  struct Mapping {
    Mapping(void* start, std::size_t size) : address(start), bytes(size) {}
    Mapping(Mapping&& other) noexcept : address(other.address), bytes(other.bytes) { other.address = nullptr; }
    ~Mapping();
    void* address;
    std::size_t bytes;
  };

  void give_up(bool remove) noexcept;
  void create();
  void attach();
  void add_block(std::size_t room);
  std::byte* map(std::uint64_t offset, std::size_t bytes);
  void reserve(std::uint64_t offset, std::uint64_t bytes);
  int try_reserve(std::uint64_t offset, std::uint64_t bytes);  // 0, or why not
  void shrink(std::uint64_t bytes);
  void open_pushes();

  SegmentSpec spec_;
  SegmentOwner file_;
  mutable std::mutex mutex_;
  std::vector<Mapping> mappings_;
  std::size_t page_ = 0;          // blocks and their places are multiples of it
  std::uint64_t file_bytes_ = 0;  // all of it reserved and mapped
  SegmentHeader* header_ = nullptr;
  std::byte* free_ = nullptr;  // where the next piece header goes, file offset and room behind it
  std::uint64_t free_offset_ = 0;
  std::size_t free_bytes_ = 0;
  std::vector<Piece> found_;
  std::optional<PushLog> pushes_;
  bool attached_ = false, taken_over_ = false;
  bool closed_ = false;
};

}  // namespace hotrow::store
