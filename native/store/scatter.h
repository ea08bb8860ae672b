// The keys of a batch brought together by part on many threads, so that each thread can then fold the keys of a part
// without looking at the others. Within a part keys keep their order, and so each chunk of the batch knows where its
// keys of a part lie: a second walk over the chunk meets them one after the other, without an array of positions.
//
// Two walks over a chunk: the first copies its keys (the caller's may change meanwhile: see indices.h) and counts those
// of each part, the second moves them. What a chunk writes to a part is contiguous.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "store/hash.h"
#include "store/indices.h"
#include "store/parallel.h"
#include "store/scratch.h"

namespace hotrow::store {

constexpr std::size_t kScatterPartsMax = 256;  // a part's number is a byte

class ScatteredKeys {
 public:
  struct Buffers {
    Scratch<Key> copy, keys;
    Scratch<std::uint8_t> parts;
  };

  // part_of(key) is below `parts`. The buffers hold the result until they are used again.
  template <typename PartOf>
  ScatteredKeys(std::span<const Key> all, std::size_t parts, int threads, Buffers& buffers, PartOf part_of)
      : keys(buffers.keys.take(all.size())),
        size_(all.size()),
        parts_(parts),
        chunks_(static_cast<std::size_t>(threads)),
        begin_(parts * chunks_ + 1),
        part_(buffers.parts.take(all.size())) {
    Key* const copy = buffers.copy.take(size_);
    parallel_for(threads, chunks_, [&](std::size_t chunk) {
      std::uint32_t count[kScatterPartsMax] = {};
      for (std::size_t i = first(chunk); i < first(chunk + 1); ++i) {
        const Key key = read_once(all[i]);
        const std::size_t part = part_of(key);
        copy[i] = key;
        part_[i] = static_cast<std::uint8_t>(part);
        ++count[part];
      }
      for (std::size_t part = 0; part < parts_; ++part) begin_[part * chunks_ + chunk + 1] = count[part];
    });
    for (std::size_t at = 0; at + 1 < begin_.size(); ++at) begin_[at + 1] += begin_[at];
    parallel_for(threads, chunks_, [&](std::size_t chunk) {
      walk(chunk, [&](std::size_t i, std::size_t, std::uint32_t at) { keys[at] = copy[i]; });
    });
  }

  std::size_t parts() const { return parts_; }
  std::size_t chunks() const { return chunks_; }
  // Part p holds keys[begin(p), begin(p + 1)); those of a chunk in it begin at begin(p, chunk).
  std::uint32_t begin(std::size_t part, std::size_t chunk = 0) const { return begin_[part * chunks_ + chunk]; }
  std::size_t size(std::size_t part) const { return begin(part + 1) - begin(part); }

  // Parts by size, the largest first: on many threads the longest task must not begin last.
  std::vector<std::uint32_t> largest_first() const {
    std::vector<std::uint32_t> order(parts_);
    for (std::size_t part = 0; part < parts_; ++part) order[part] = static_cast<std::uint32_t>(part);
    std::ranges::sort(order, [this](std::uint32_t a, std::uint32_t b) { return size(a) > size(b); });
    return order;
  }

  // visit(i, part, at) for the keys of a chunk in their order: key i of the batch lies at keys[at].
  template <typename Visit>
  void walk(std::size_t chunk, Visit visit) const {
    std::uint32_t next[kScatterPartsMax];
    for (std::size_t part = 0; part < parts_; ++part) next[part] = begin(part, chunk);
    for (std::size_t i = first(chunk); i < first(chunk + 1); ++i) visit(i, part_[i], next[part_[i]]++);
  }

  Key* const keys;  // by part

 private:
  std::size_t first(std::size_t chunk) const { return size_ * chunk / chunks_; }

  std::size_t size_, parts_, chunks_;
  std::vector<std::uint32_t> begin_;
  std::uint8_t* part_;  // of each key of the batch
};

}  // namespace hotrow::store
