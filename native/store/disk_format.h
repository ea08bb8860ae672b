// What the bytes of a table's disk file mean. docs/disk.md draws the same table.
//
//   file header | its copy | zeros | extent | extent | ...
//
//   extent: header (64 bytes) | slot | slot | ... | copy of the header (the last 64 bytes)
//   slot:   key u64 | sequence u64 | checksum u32 | fields u32 each | value | state
//
// Extents are filled from slot 0 on and are never changed in place. The checksum of a slot covers all its bytes, its
// place in the file and the generation of its extent, so what is left of an earlier use of the extent never counts. A
// slot whose sequence has kErased set says that the key has no row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "store/hash.h"
#include "store/narrow.h"
#include "store/segment_format.h"

namespace hotrow::store {

// Trouble with a disk file, told in one sentence.
class DiskError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};
class DiskFullError : public DiskError {
  using DiskError::DiskError;
};
class DiskLockedError : public DiskError {
  using DiskError::DiskError;
};

constexpr std::uint32_t kDiskVersion = 1;
constexpr std::size_t kPage = 4096;  // direct I/O starts and ends at multiples of it
constexpr std::size_t kExtentHeader = 64;
constexpr std::uint64_t kErased = std::uint64_t{1} << 63;

// Whole rows as columns. `fields` are in the order of the file's field names.
struct DiskColumns {
  Key* keys = nullptr;
  float* values = nullptr;
  float* state = nullptr;
  std::vector<std::uint32_t*> fields;
};

class SlotLayout {
 public:
  SlotLayout(std::size_t dim, RowType type, std::size_t state_dim, std::size_t fields)
      : dim_(dim), state_dim_(state_dim), fields_(fields), type_(type) {
    value_at_ = kFieldsAt + fields * sizeof(std::uint32_t);
    state_at_ = value_at_ + value_bytes(type, dim);
    bytes_ = (state_at_ + state_dim * sizeof(float) + 7) / 8 * 8;
  }

  std::size_t dim() const { return dim_; }
  std::size_t state_dim() const { return state_dim_; }
  std::size_t fields() const { return fields_; }
  std::size_t bytes() const { return bytes_; }

  // Row `at` of the columns, without its checksum.
  void encode(std::byte* slot, const DiskColumns& rows, std::size_t at, std::uint64_t sequence) const;
  void encode_erased(std::byte* slot, Key key, std::uint64_t sequence) const;
  void decode(const std::byte* slot, const DiskColumns& rows, std::size_t at) const;

  static Key key(const std::byte* slot) { return *reinterpret_cast<const Key*>(slot); }
  static std::uint64_t sequence(const std::byte* slot) { return reinterpret_cast<const std::uint64_t*>(slot)[1]; }
  static bool erased(const std::byte* slot) { return (sequence(slot) & kErased) != 0; }
  static bool empty(const std::byte* slot) { return sequence(slot) == 0 && stored_checksum(slot) == 0; }
  // `place` is the number of the slot in the file.
  void seal(std::byte* slot, std::uint64_t generation, std::uint64_t place) const;
  bool whole(const std::byte* slot, std::uint64_t generation, std::uint64_t place) const {
    return !empty(slot) && stored_checksum(slot) == checksum(slot, generation, place);
  }

 private:
  static constexpr std::size_t kChecksumAt = 16, kFieldsAt = 20;
  static std::uint32_t stored_checksum(const std::byte* slot) {
    return *reinterpret_cast<const std::uint32_t*>(slot + kChecksumAt);
  }
  std::uint32_t checksum(const std::byte* slot, std::uint64_t generation, std::uint64_t place) const;

  std::size_t dim_, state_dim_, fields_, value_at_, state_at_, bytes_;
  RowType type_;
};

struct ExtentHeader {
  std::uint64_t magic;
  std::uint64_t generation;  // no two uses of extents of a file have the same one
  std::uint64_t opened_at;   // the next sequence when it was opened: extents are replayed in this order
  std::uint32_t extent;      // its number: the copy in a staging file has no place that tells
  std::uint32_t used;        // slots, when the header was written
  std::uint64_t unused[3];
  std::uint64_t checksum;
};
static_assert(sizeof(ExtentHeader) == kExtentHeader);

// Both headers of an extent in memory.
void write_extent_header(std::byte* extent, std::size_t extent_bytes, std::uint64_t generation, std::uint64_t opened_at,
                         std::uint32_t number, std::uint32_t used);
// The header at the front, or where it is damaged its copy at the end; false: neither is whole.
bool read_extent_header(const std::byte* front, const std::byte* back, ExtentHeader& found);

struct DiskGeometry {
  std::size_t extent_bytes = 0;
  std::size_t slot_bytes = 0;

  std::uint32_t slots() const { return static_cast<std::uint32_t>((extent_bytes - 2 * kExtentHeader) / slot_bytes); }
  std::uint64_t extent_at(std::uint32_t extent) const { return extent_bytes * (std::uint64_t{extent} + 1); }
  std::uint64_t slot_at(std::uint32_t extent, std::uint32_t slot) const {
    return extent_at(extent) + kExtentHeader + std::uint64_t{slot} * slot_bytes;
  }
};

// For a new file: extents of 1 MiB, smaller ones in a small file, larger ones for large rows.
DiskGeometry choose_geometry(const SlotLayout& layout, std::uint64_t capacity_bytes);

// The first two pages of a file.
std::vector<std::byte> file_header(const std::string& path, const DiskGeometry& geometry, const Identity& identity);
enum class FoundHeader { whole, never_used };
// From the first two pages (missing bytes are zeros) of a file of `size` bytes. DiskError where it is no file of rows,
// is of another version or layout, or has no whole header and may hold rows.
FoundHeader read_file_header(const std::string& path, const std::vector<std::byte>& pages, std::uint64_t size,
                             const Identity& expected, std::size_t slot_bytes, DiskGeometry& found);

}  // namespace hotrow::store
