// Tests of single structures of native/store: cmake -DHOTROW_MODULE=OFF -DHOTROW_TESTS=ON, target `units`.
//
//   units              runs all tests
//   units --list       their names
//   units PART...      those whose names contain one of the parts
#include <unistd.h>

#include <algorithm>
#include <csignal>
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

constexpr unsigned kLongestS = 120;  // of one test, under sanitizers too
const char* running = "";

// A test that never ends is named.
void end_late(int) {
  for (const std::string_view text :
       {std::string_view("FAILED "), std::string_view(running), std::string_view("\n  did not end\n")})
    static_cast<void>(!write(STDERR_FILENO, text.data(), text.size()));
  _exit(1);
}

bool passes(const hotrow::tests::Test& test) {
  running = test.name;
  alarm(kLongestS);
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
  std::signal(SIGALRM, end_late);
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
