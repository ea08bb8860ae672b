// What one row is made of, in bytes:
//
//   key u64 | version u32 | last_update u32 | [other fields u32 each] | value | state | [base]
//
// The base is value and state of a cached row as it was before its first change.
//
// Fields that the table's features do not use take no space. `version` is 0 in a free row, 1 in a fresh one and moves
// by one with every change; it is written last when a row is made and first when one is freed, so that memory which
// outlives its process shows only whole rows.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "store/atomic_ref.h"
#include "store/hash.h"
#include "store/narrow.h"

namespace hotrow::store {

enum Field : int {
  kVersion,
  kLastUpdate,
  kClock,
  kLastSeen,
  kPeriod,
  kUpdates,
  kFrequency,
  kOlder,  // the links of the eviction order are no one else's business: they are never exported
  kNewer,
  kNextUse,     // number of the announced batch that uses the row next; 0: none is known
  kBasePeriod,  // SWAP period of the base
  kFields,
  kExportedFields = kOlder,
};

constexpr const char* kFieldNames[kExportedFields] = {"version", "last_update", "clock",    "last_seen",
                                                      "period",  "updates",     "frequency"};

using FieldSet = std::array<bool, kFields>;

class Layout {
 public:
  Layout(std::size_t dim, RowType type, std::size_t state_dim, FieldSet used, bool keeps_base = false)
      : dim_(dim), state_dim_(state_dim), type_(type), keeps_base_(keeps_base) {
    used[kVersion] = used[kLastUpdate] = true;
    std::size_t offset = sizeof(Key);
    for (int field = 0; field < kFields; ++field) {
      offsets_[field] = used[field] ? static_cast<std::uint32_t>(offset) : 0;
      if (used[field]) offset += sizeof(std::uint32_t);
    }
    value_offset_ = offset;
    state_offset_ = offset + value_bytes(type, dim);
    base_offset_ = state_offset_ + state_dim * sizeof(float);
    const std::size_t end = base_offset_ + (keeps_base ? (dim + state_dim) * sizeof(float) : 0);
    row_bytes_ = (end + sizeof(Key) - 1) / sizeof(Key) * sizeof(Key);
  }

  std::size_t dim() const { return dim_; }
  RowType type() const { return type_; }
  bool narrow() const { return type_ != RowType::float32; }
  std::size_t state_dim() const { return state_dim_; }
  std::size_t row_bytes() const { return row_bytes_; }
  std::size_t header_bytes() const { return value_offset_; }  // key and fields
  std::size_t value_end() const { return state_offset_; }
  std::size_t state_end() const { return keeps_base_ ? base_offset_ : row_bytes_; }  // all but the base
  bool has(Field field) const { return offsets_[field] != 0; }
  bool keeps_base() const { return keeps_base_; }

  static Key& key(std::byte* row) { return *reinterpret_cast<Key*>(row); }
  static Key key(const std::byte* row) { return *reinterpret_cast<const Key*>(row); }
  static std::uint32_t& version(std::byte* row) { return *reinterpret_cast<std::uint32_t*>(row + sizeof(Key)); }
  static std::uint32_t version(const std::byte* row) { return version(const_cast<std::byte*>(row)); }
  static bool live(const std::byte* row) { return version(row) != 0; }
  // Sets the version after everything stored before, and before everything stored after.
  static void mark(std::byte* row, std::uint32_t version_now) {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    atomic_ref(version(row)).store(version_now, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }

  // Only for fields the table has.
  std::uint32_t& field(std::byte* row, Field which) const {
    return *reinterpret_cast<std::uint32_t*>(row + offsets_[which]);
  }
  std::uint32_t field(const std::byte* row, Field which) const { return field(const_cast<std::byte*>(row), which); }

  // The value of a float32 row, in place.
  float* value(std::byte* row) const { return reinterpret_cast<float*>(row + value_offset_); }
  const float* value(const std::byte* row) const { return reinterpret_cast<const float*>(row + value_offset_); }
  // The value of a 16-bit row.
  std::uint16_t* narrow_value(std::byte* row) const { return reinterpret_cast<std::uint16_t*>(row + value_offset_); }
  const std::uint16_t* narrow_value(const std::byte* row) const {
    return reinterpret_cast<const std::uint16_t*>(row + value_offset_);
  }
  float* state(std::byte* row) const { return reinterpret_cast<float*>(row + state_offset_); }
  const float* state(const std::byte* row) const { return reinterpret_cast<const float*>(row + state_offset_); }
  // Value, then state.
  float* base(std::byte* row) const { return reinterpret_cast<float*>(row + base_offset_); }
  const float* base(const std::byte* row) const { return reinterpret_cast<const float*>(row + base_offset_); }

 private:
  std::size_t dim_, state_dim_;
  RowType type_;
  bool keeps_base_;
  std::uint32_t offsets_[kFields];  // 0: the table does without this field
  std::size_t value_offset_, state_offset_, base_offset_, row_bytes_;
};

}  // namespace hotrow::store
