#pragma once

#include <cstddef>
#include <optional>

namespace hotrow::tests {

// Prints one line; false: a row was lost, went back or was mixed. `index_cache`: none has the index in memory.
bool disk_tier_stays_sound(std::optional<std::size_t> index_cache);

}  // namespace hotrow::tests
