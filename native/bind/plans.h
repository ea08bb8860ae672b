// Plans of a table that a caller passes in a list.
#pragma once

#include <string>
#include <vector>

#include "bind/arrays.h"
#include "store/batch.h"

namespace hotrow::bind {

inline void check_plans(const std::string& who, const std::vector<const store::Batch*>& plans) {
  for (const store::Batch* plan : plans) demand(plan != nullptr, who + " holds None: give plans of this table");
}

}  // namespace hotrow::bind
