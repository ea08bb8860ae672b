// Which pushes were applied: a ring over grant numbers that outlives the process, so that a push sent again after a
// crash is neither applied twice nor taken for applied when it was cut in the middle.
//
// An entry is one word, the grant and its mark together, so one store changes both and no kill can come between.
// An entry is only ever taken over by a larger grant: a smaller one there means that this grant was never begun.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

namespace hotrow::store {

enum class PushSeen {
  fresh,      // the intent is marked now: apply it, then finish
  done,       // was applied: do not apply it again
  partly,     // was begun and not finished, by an earlier process or by a caller that is still at it
  forgotten,  // a grant so much newer came that nothing is known of this one any more
  discarded,  // must not be applied, and was not
};

class PushLog {
 public:
  static constexpr std::size_t kEntries = 65'536;
  static constexpr std::size_t kBytes = kEntries * sizeof(std::uint64_t);
  static constexpr std::uint64_t kGrantMax = (std::uint64_t{1} << 62) - 1;

  // `entries` are kEntries words that outlive the log. Intents found there were cut: nobody finishes them any more.
  explicit PushLog(std::span<std::uint64_t> entries);

  // The number of the first entry that no log can have written, kEntries where all are sound.
  static std::size_t first_damaged(std::span<const std::uint64_t> entries);

  PushSeen begin(std::uint64_t grant);
  PushSeen find(std::uint64_t grant) const;  // as `begin` would say, without a mark
  // Intent to done. Where a newer grant took the entry meanwhile nothing is left to mark; a grant that was not begun by
  // this process is a std::invalid_argument.
  void finish(std::uint64_t grant);
  // As `find`; a fresh one is marked: it must not be applied any more, by no later process either.
  PushSeen discard(std::uint64_t grant);
  std::vector<std::uint64_t> partly() const;  // begun and not finished, smallest first
  std::uint64_t newest() const;               // the largest grant that was begun, 0 where none was

 private:
  std::uint64_t& entry(std::uint64_t grant) const;

  mutable std::mutex mutex_;
  std::span<std::uint64_t> entries_;
};

}  // namespace hotrow::store
