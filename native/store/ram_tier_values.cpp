// Values of rows whatever their type: read as floats, rounded when they are stored.
#include <cstring>

#include "store/ram_tier_visit.h"

namespace hotrow::store {

void RamTier::widen_into(const std::byte* row, float* to) const {
  if (layout_.narrow())
    narrow_kernels().widen[static_cast<int>(layout_.type())](layout_.narrow_value(row), to, layout_.dim());
  else
    std::memcpy(to, layout_.value(row), layout_.dim() * sizeof(float));
}

// The value as floats to be changed: the row's own memory, or a copy of this thread's that store_value puts back.
float* RamTier::open_value(std::byte* row) const {
  if (!layout_.narrow()) return layout_.value(row);
  static thread_local Scratch<float> room;
  float* const value = room.take(layout_.dim());
  widen_into(row, value);
  return value;
}

// `version` is the row's after this write: with the key it decides how elements are rounded, so the same history gives
// the same bits. Returns how many elements were too large for the type.
std::size_t RamTier::store_value(std::byte* row, const float* value, std::uint32_t version) const {
  if (!layout_.narrow()) {
    if (value != layout_.value(row)) std::memcpy(layout_.value(row), value, layout_.dim() * sizeof(float));
    return 0;
  }
  const std::uint64_t stream = hash_key(hash_key(Layout::key(row) ^ spec_.first_values.stream) + version * kGolden);
  return narrow_kernels().narrow[static_cast<int>(layout_.type())](value, layout_.narrow_value(row), layout_.dim(),
                                                                   stream);
}

void RamTier::copy_columns(const std::byte* row, const Columns& out, std::size_t at) const {
  out.keys[at] = Layout::key(row);
  widen_into(row, out.values + at * layout_.dim());
  std::copy_n(layout_.state(row), layout_.state_dim(), out.state + at * layout_.state_dim());  // null where dim is 0
  for (int field = 0; field < kExportedFields; ++field)
    if (layout_.has(Field(field))) out.fields[field][at] = layout_.field(row, Field(field));
}

}  // namespace hotrow::store
