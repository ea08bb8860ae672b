// Tests of single structures of native/store: cmake -DHOTROW_MODULE=OFF -DHOTROW_TESTS=ON, target `units`.
//
//   units              runs all tests
//   units --list       their names
//   units PART...      those whose names contain one of the parts
#include <algorithm>
#include <cstdio>
#include <exception>
#include <span>
#include <string_view>

#include "store/hash.h"
#include "tests/check.h"

// In place of store/hash.cpp, which draws a secret: with this one secret_hash(key) is the key itself, so a test chooses
// the directory, the bucket and the tag of a key by its bits.
namespace hotrow::store {
const HashSecret process_secret = {0, 1, 0, 1};
}  // namespace hotrow::store

namespace {

bool chosen(const hotrow::tests::Test& test, std::span<const char* const> parts) {
  const std::string_view name = test.name;
  return parts.empty() ||
         std::ranges::any_of(parts, [&](const char* part) { return name.find(part) != std::string_view::npos; });
}

bool passes(const hotrow::tests::Test& test) {
  try {
    test.run();
    return true;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "FAILED %s\n  %s\n", test.name, error.what());
    return false;
  }
}

}  // namespace

int main(int count, char** arguments) {
  const std::span<const char* const> parts(arguments + 1, static_cast<std::size_t>(count - 1));
  const bool list = !parts.empty() && std::string_view(parts[0]) == "--list";
  int run = 0, failed = 0;
  for (const auto& test : hotrow::tests::registered()) {
    if (list) {
      std::printf("%s\n", test.name);
    } else if (chosen(test, parts)) {
      ++run;
      failed += !passes(test);
    }
  }
  if (list) return 0;
  std::printf("%d tests, %d failed\n", run, failed);
  return run == 0 || failed > 0 ? 1 : 0;
}
