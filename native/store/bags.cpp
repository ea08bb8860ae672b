#include "store/bags.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace hotrow::store {

void check_offsets(const char* who, std::span<const std::int64_t> offsets, std::size_t positions) {
  const std::string begin = std::string(who) + ": offsets";
  if (offsets.empty()) throw std::invalid_argument(begin + " is empty, expected one more than there are bags");
  if (offsets.front() != 0)
    throw std::invalid_argument(begin + "[0] is " + std::to_string(offsets.front()) + ": must be 0");
  bool falls = false;
  for (std::size_t i = 1; i < offsets.size(); ++i) falls |= offsets[i] < offsets[i - 1];
  if (falls) {
    const auto at = std::ranges::adjacent_find(offsets, std::ranges::greater()) - offsets.begin();
    throw std::invalid_argument(begin + "[" + std::to_string(at + 1) + "] is " + std::to_string(offsets[at + 1]) +
                                " after " + std::to_string(offsets[at]) + ": must never fall");
  }
  if (std::cmp_not_equal(offsets.back(), positions))
    throw std::invalid_argument(begin + " end at " + std::to_string(offsets.back()) +
                                ": must end at the number of ids, " + std::to_string(positions));
}

void check_below(const char* who, const char* name, std::span<const std::uint32_t> values, std::size_t end) {
  std::uint32_t largest = 0;
  for (const std::uint32_t value : values) largest = std::max(largest, value);
  if (values.empty() || largest < end) return;
  const auto at = std::ranges::find(values, largest) - values.begin();
  throw std::invalid_argument(std::string(who) + ": " + name + "[" + std::to_string(at) + "] is " +
                              std::to_string(largest) + ": must be below " + std::to_string(end));
}

}  // namespace hotrow::store
