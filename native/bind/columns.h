// Whole rows at the border: columns of a caller, by the names of the table's fields.
#pragma once

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <vector>

#include "bind/arrays.h"
#include "store/ram_tier.h"

namespace hotrow::bind {

using Fields = nb::typed<nb::dict, std::string, HostArray<const std::uint32_t, 1>>;  // name of a field to its column

inline int field_number(const store::RamTier& tier, const std::string& name) {
  for (int field = 0; field < store::kExportedFields; ++field)
    if (name == store::kFieldNames[field] && tier.layout().has(store::Field(field))) return field;
  throw nb::value_error(("this table's rows have no field '" + name + "'").c_str());
}

// A column of a dict: `who` begins the sentence that refuses it.
template <typename Column>
Column field_column(const std::string& who, nb::handle name, nb::handle column, std::size_t rows) {
  const std::string field = nb::str(name).c_str();
  Column found;
  demand(nb::try_cast(column, found),
         who + ": field " + field + " must be a contiguous array of uint32 in one dimension");
  check_shape(who + ": field " + field, found, {rows});
  return found;
}

// The caller's columns for whole rows, checked for room.
class OutColumns {
 public:
  OutColumns(const store::RamTier& tier, const HostArray<std::uint64_t, 1>& keys, const HostArray<float, 2>& values,
             const HostArray<float, 2>& state, const Fields& fields) {
    rows_ = keys.shape(0);
    check_shape("rows: values", values, {rows_, tier.layout().dim()});
    check_shape("rows: state", state, {rows_, tier.layout().state_dim()});
    columns_.keys = keys.data();
    columns_.values = values.data();
    columns_.state = state.data();
    for (const auto& [name, column] : fields) {
      kept_.push_back(field_column<HostArray<std::uint32_t, 1>>("rows", name, column, rows_));
      columns_.fields[field_number(tier, nb::str(name).c_str())] = kept_.back().data();
    }
    for (int field = 0; field < store::kExportedFields; ++field)
      demand(!tier.layout().has(store::Field(field)) || columns_.fields[field] != nullptr,
             "rows: a field has no column");
  }

  std::size_t rows() const { return rows_; }
  const store::Columns& columns() const { return columns_; }

 private:
  std::size_t rows_;
  store::Columns columns_;
  std::vector<HostArray<std::uint32_t, 1>> kept_;
};

// The caller's columns of whole rows that are put, beside their keys; `who` begins a refusal.
class InColumns {
 public:
  InColumns(const std::string& who, const store::RamTier& tier, std::size_t rows,
            const HostArray<const float, 2>& values, const std::optional<HostArray<const float, 2>>& state,
            const Fields& fields) {
    check_shape(who + ": values", values, {rows, tier.layout().dim()});
    if (state) check_shape(who + ": state", *state, {rows, tier.layout().state_dim()});
    columns_.values = const_cast<float*>(values.data());  // put only reads its columns
    if (state) columns_.state = const_cast<float*>(state->data());
    for (const auto& [name, column] : fields) {
      kept_.push_back(field_column<HostArray<const std::uint32_t, 1>>(who, name, column, rows));
      const int field = field_number(tier, nb::str(name).c_str());
      columns_.fields[field] = const_cast<std::uint32_t*>(kept_.back().data());
    }
  }

  const store::Columns& columns() const { return columns_; }

 private:
  store::Columns columns_;
  std::vector<HostArray<const std::uint32_t, 1>> kept_;
};

}  // namespace hotrow::bind
