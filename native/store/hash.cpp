#include "store/hash.h"

#include <random>

namespace hotrow::store {
namespace {

HashSecret drawn_secret() {
  std::random_device system;  // the system's own generator: nothing about the process or the clock enters
  const auto word = [&] { return std::uint64_t{system()} << 32 | system(); };
  return {word(), word() | 1, word(), word() | 1};
}

}  // namespace

const HashSecret process_secret = drawn_secret();

}  // namespace hotrow::store
