// The smallest test harness that serves: a test is a function that registers itself, a failed check throws with file,
// line and both values, and units.cpp runs the tests by name.
#pragma once

#include <concepts>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace hotrow::tests {

struct Test {
  const char* name;
  void (*run)();
};

inline std::vector<Test>& registered() {
  static std::vector<Test> tests;
  return tests;
}

struct Register {
  Register(const char* name, void (*run)()) { registered().push_back({name, run}); }
};

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <typename T>
std::string shown(const T& value) {
  std::ostringstream text;
  if constexpr (std::same_as<T, bool>)
    text << (value ? "true" : "false");
  else if constexpr (std::is_enum_v<T>)
    text << static_cast<long long>(value);
  else if constexpr (std::is_pointer_v<T>)
    text << static_cast<const void*>(value);
  else
    text << value;
  return text.str();
}

[[noreturn]] inline void fail(const char* file, int line, const std::string& what) {
  throw Failure(std::string(file) + ":" + std::to_string(line) + ": " + what);
}

template <typename T>
constexpr bool kNumber = std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char>;

// Integers of different types are compared by value: -1 is not equal to 4294967295.
template <typename Found, typename Wanted>
bool equal(const Found& found, const Wanted& wanted) {
  if constexpr (kNumber<Found> && kNumber<Wanted>)
    return std::cmp_equal(found, wanted);
  else
    return found == wanted;
}

template <typename Found, typename Wanted>
void check_equal(const char* file, int line, const char* text, const Found& found, const Wanted& wanted) {
  if (!equal(found, wanted)) fail(file, line, std::string(text) + ": " + shown(found) + " is not " + shown(wanted));
}

template <typename Error, typename Call>
void check_throws(const char* file, int line, const char* text, std::string_view part, Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    if (std::string_view(error.what()).find(part) == std::string_view::npos)
      fail(file, line, std::string(text) + ": says '" + error.what() + "', not '" + std::string(part) + "'");
    return;
  }
  fail(file, line, std::string(text) + ": throws nothing, expected '" + std::string(part) + "'");
}

}  // namespace hotrow::tests

#define TEST(name)                                                     \
  static void name();                                                  \
  static const ::hotrow::tests::Register register_##name(#name, name); \
  static void name()

#define CHECK(condition) ((condition) ? void() : ::hotrow::tests::fail(__FILE__, __LINE__, "not true: " #condition))
// CHECK_EQ(found, wanted)
#define CHECK_EQ(found, wanted) ::hotrow::tests::check_equal(__FILE__, __LINE__, #found " == " #wanted, found, wanted)
// The expression throws an Error whose sentence contains `part`.
#define CHECK_THROWS(Error, part, ...) \
  ::hotrow::tests::check_throws<Error>(__FILE__, __LINE__, #__VA_ARGS__, part, [&] { __VA_ARGS__; })
