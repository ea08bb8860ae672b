#include "store/limits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>

#include "store/parallel.h"

namespace hotrow::store {
namespace {

constexpr std::size_t kAhead = 24;  // rows asked for before they are read; 12 to 48 measure the same
constexpr std::size_t kLanes = 16;  // words added side by side, one cache line

std::atomic<std::uint32_t> sink{0};  // where sums end, so that no compiler drops the reads

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// body(first, last) on every thread with its part of [0, count).
template <typename Body>
void split(std::size_t count, int threads, Body&& body) {
  const auto parts = static_cast<std::size_t>(std::max(threads, 1));
  parallel_for(threads, parts, [&](std::size_t part) { body(count * part / parts, count * (part + 1) / parts); });
}

void touch(std::byte* bytes, std::size_t count, int threads) {
  split(count, threads, [&](std::size_t first, std::size_t last) { std::memset(bytes + first, 1, last - first); });
}

// Sum of the rows `numbers[first..last)`. A row size known at compile time keeps the sums in registers; 0 means any.
template <std::size_t FixedWords>
std::uint32_t sum_rows(const std::uint32_t* field, std::size_t row_words, const std::int64_t* numbers,
                       std::size_t first, std::size_t last) {
  const std::size_t words = FixedWords != 0 ? FixedWords : row_words;
  std::uint32_t sums[kLanes] = {};
  for (std::size_t at = first; at < last; ++at) {
    const std::uint32_t* ahead = field + numbers[std::min(at + kAhead, last - 1)] * words;
    for (std::size_t word = 0; word < words; word += kLanes) __builtin_prefetch(ahead + word);
    const std::uint32_t* row = field + numbers[at] * words;
    std::size_t word = 0;
    for (; word + kLanes <= words; word += kLanes)
      for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += row[word + lane];
    for (; word < words; ++word) sums[0] += row[word];
  }
  return std::accumulate(sums, sums + kLanes, std::uint32_t{0});
}

using SumRows = decltype(&sum_rows<0>);

SumRows sum_rows_of(std::size_t words) {
  switch (words) {
    case 16:
      return &sum_rows<16>;
    case 64:
      return &sum_rows<64>;
    default:
      return &sum_rows<0>;
  }
}

}  // namespace

RowField::RowField(std::size_t rows, std::size_t row_bytes, int threads)
    : rows_(rows), row_bytes_(row_bytes), words_(reinterpret_cast<std::uint32_t*>(arena_.allocate(rows * row_bytes))) {
  touch(reinterpret_cast<std::byte*>(words_), rows * row_bytes, threads);
}

double RowField::read_seconds(std::span<const std::int64_t> rows, int threads) const {
  const std::size_t words = row_bytes_ / sizeof(std::uint32_t);
  const SumRows sum = sum_rows_of(words);
  const auto start = std::chrono::steady_clock::now();
  split(rows.size(), threads, [&](std::size_t first, std::size_t last) {
    sink.fetch_add(sum(words_, words, rows.data(), first, last), std::memory_order_relaxed);
  });
  return seconds_since(start);
}

CopyField::CopyField(std::size_t bytes, int threads)
    : bytes_(bytes), from_(arena_.allocate(bytes)), to_(arena_.allocate(bytes)) {
  touch(from_, bytes, threads);
  touch(to_, bytes, threads);
}

double CopyField::copy_seconds(int threads) {
  const auto start = std::chrono::steady_clock::now();
  split(bytes_, threads,
        [&](std::size_t first, std::size_t last) { std::memcpy(to_ + first, from_ + first, last - first); });
  return seconds_since(start);
}

}  // namespace hotrow::store
