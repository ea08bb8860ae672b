// Who goes first when a partition is full. Rows are linked by their indexes, in fields of their own, so the order needs
// no memory beside the rows and can be made again from what they say: when they were last seen, and how often. Where
// rows have no such fields the links are in an array: a lookup moves its rows, and the neighbours of each in the order
// lie anywhere. The links of a cache fit into the processor's caches, its rows do not.
//
// LRU is one list from oldest to newest. LFU is one such list per frequency; rows seen kFrequencies times or more share
// the last. In light LFU rows seen `hot` times share the last, and neither move nor count from then on: they go when no
// other row can, the one that came there first. Then `hot` doubles, because it tells no rows apart any more.
//
// Ahead is LFU for rows whose next use is not known. Behind them are the rows of announced batches, one list for the
// next use of each, the furthest first. Numbers of batches share kWindow lists in turn.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "store/flags.h"
#include "store/kept_links.h"
#include "store/life.h"
#include "store/slab.h"

namespace hotrow::store {

class Order {
 public:
  static constexpr std::uint32_t kFrequencies = 4095;
  static constexpr std::uint32_t kWindow = 64;
  static constexpr std::size_t kLinkBytes = 8;  // of a row whose links are in the array

  // `rows`: about so many.
  Order(const LifeSpec& life, const Layout& layout, const Slab& slab, std::uint32_t rows)
      : layout_(layout),
        slab_(slab),
        by_frequency_(life.by_frequency()),
        light_(life.eviction == Eviction::light_lfu),
        ahead_(life.eviction == Eviction::ahead),
        most_(light_ ? std::min(life.hot, kFrequencies) : kFrequencies),
        beside_(!layout.has(kOlder)),
        lists_(ahead_ ? kFrequencies + 1 + kWindow : 1) {
    if (beside_ && life.ordered()) links_.reserve(rows);  // touched as rows come
  }

  // As the newest, of its frequency.
  void add(std::uint32_t index) {
    std::byte* row = slab_.row(index);
    List& list = list_of(row);
    if (passing_) done_.clear(number_of(list));  // it may go, and all rows before it stay
    if (kept_ != nullptr) [[unlikely]]
      keep_link(list.newest);
    if (beside_ && index >= links_.size()) links_.resize(index + 1);
    older(index) = list.newest;
    newer(index) = kNoRow;
    (list.newest == kNoRow ? list.oldest : newer(list.newest)) = index;
    list.newest = index;
    ++rows_;
  }

  void remove(std::uint32_t index) {
    const std::uint32_t before = older(index), after = newer(index);
    if (kept_ != nullptr) [[unlikely]] {
      keep_link(index);
      keep_link(before);
    }
    (before == kNoRow ? list_of(slab_.row(index)).oldest : newer(before)) = after;
    (after == kNoRow ? list_of(slab_.row(index)).newest : older(after)) = before;
    if (passing_) leave_passed(index, before);
    --rows_;
  }

  // Moves a row to the newest end of its new place; a row of light LFU that is hot stays where it is.
  // `next_use`: of a row of `ahead`, 0: none is known.
  void see(std::uint32_t index, std::uint32_t occurrences, std::uint32_t next_use = 0) {
    if (settled(slab_.row(index))) return;
    remove(index);
    if (ahead_) layout_.field(slab_.row(index), kNextUse) = next_use;
    if (by_frequency_) {
      std::uint32_t& frequency = layout_.field(slab_.row(index), kFrequency);
      frequency = counted(frequency + std::min(occurrences, ~frequency));  // sticks at the largest number
    }
    add(index);
  }

  // The next use of a row of `ahead` has changed: it becomes the newest of its place.
  void use_next(std::uint32_t index, std::uint32_t batch) { see(index, 0, batch); }

  // A batch was announced, later than all before.
  void announce(std::uint32_t batch) { newest_batch_ = batch; }

  // Of light LFU: the count of a row ends where it becomes hot.
  std::uint32_t counted(std::uint32_t frequency) const { return light_ ? std::min(frequency, most_) : frequency; }
  // A row is about to be evicted. Hot rows have counted to `hot` and no further, so they are where their counts say
  // also after it has doubled.
  void before_evict(std::uint32_t index) {
    if (settled(slab_.row(index))) most_ = std::min(2 * most_, kFrequencies);
  }

  // Asks for the memory that `see` will touch.
  void prefetch_neighbours(std::uint32_t index) const {
    const std::byte* row = slab_.row(index);
    if (settled(row)) return;
    for (const std::uint32_t neighbour : {older(index), newer(index)})
      if (neighbour != kNoRow) __builtin_prefetch(&older(neighbour), 1);
  }

  // The row to go first; kNoRow: there is none. Rows that `stays` holds are passed over, and remembered as passed until
  // the next `restart`: a call that evicts many rows walks over those that stay once, wherever new rows are added.
  template <typename Stays>
  std::uint32_t first(Stays&& stays) {
    while (lowest_ + 1 < frequency_lists() && lists_[lowest_].oldest == kNoRow) ++lowest_;
    if (!passing_) begin_passing();
    for (std::uint32_t place = next_place(lowest_); place < lists_.size(); place = next_place(place + 1)) {
      const std::uint32_t number = rank(place);
      if (const std::uint32_t found = first_of(number, stays); found != kNoRow) return found;
      done_.set(number);
    }
    return kNoRow;
  }

  // Before the first `first` of a call: other rows stay now.
  void restart() { passing_ = false; }

  std::size_t rows() const { return rows_; }
  std::uint32_t most_frequent() const { return most_; }  // rows seen more often count alike
  std::size_t bytes() const { return lists_.capacity() * sizeof(List) + links_.size() * sizeof(Links); }
  // The rows before and after it in its list; kNoRow: there is none.
  std::uint32_t before(std::uint32_t index) const { return older(index); }
  std::uint32_t after(std::uint32_t index) const { return newer(index); }

  // visit(row index, whether its list begins there) from the first to go to the last.
  template <typename Visit>
  void walk(Visit&& visit) const {
    for (std::uint32_t number = 0; number < lists_.size(); ++number) {
      std::size_t steps = 0;
      for (std::uint32_t index = lists_[rank(number)].oldest; index != kNoRow && steps <= rows_; ++steps) {
        visit(index, steps == 0);
        index = newer(index);
      }
    }
  }

  // From now on links are kept there before they change; null: no longer.
  void keep_links(KeptLinks* kept) { kept_ = kept; }
  // The links of the slots from `begin` to `end` as they were when they began to be kept; the oldest of each list,
  // then.
  void copy_links(std::uint32_t begin, std::uint32_t end, std::uint32_t* newer_then) const {
    keep_link(kNoRow);
    for (std::uint32_t index = begin; index < end; ++index)
      newer_then[index] = kept_->changed.has(index) ? kept_->newer.get(index) : newer(index);
  }

 private:
  struct List {
    std::uint32_t oldest = kNoRow, newest = kNoRow;
  };
  struct Links {
    std::uint32_t older = kNoRow, newer = kNoRow;
  };
  static_assert(sizeof(Links) == kLinkBytes);
  std::uint32_t number_of(const List& list) const { return static_cast<std::uint32_t>(&list - lists_.data()); }

  void begin_passing() {
    passing_ = true;
    started_.reset(lists_.size());
    done_.reset(lists_.size());
    passed_.resize(lists_.size());
  }

  // The next place in the order whose list was not passed as a whole.
  std::uint32_t next_place(std::uint32_t place) const {
    if (place <= kFrequencies) place = std::min(done_.next_clear(place), kFrequencies + 1);
    while (place > kFrequencies && place < lists_.size() && done_.has(rank(place))) ++place;
    return place;
  }

  // The first row of a list that does not stay, from where the walk over it has come to.
  template <typename Stays>
  std::uint32_t first_of(std::uint32_t number, Stays&& stays) {
    if (!started_.has(number)) passed_[number] = kNoRow;
    started_.set(number);
    std::uint32_t& passed = passed_[number];
    std::uint32_t next = passed == kNoRow ? lists_[number].oldest : newer(passed);
    for (; next != kNoRow && stays(next); next = newer(next)) passed = next;
    return next;
  }

  void leave_passed(std::uint32_t index, std::uint32_t before) {
    const std::uint32_t number = number_of(list_of(slab_.row(index)));
    if (started_.has(number) && passed_[number] == index) passed_[number] = before;
  }

  std::uint32_t& older(std::uint32_t index) {
    return beside_ ? links_[index].older : layout_.field(slab_.row(index), kOlder);
  }
  std::uint32_t& newer(std::uint32_t index) {
    return beside_ ? links_[index].newer : layout_.field(slab_.row(index), kNewer);
  }
  const std::uint32_t& older(std::uint32_t index) const { return const_cast<Order*>(this)->older(index); }
  std::uint32_t newer(std::uint32_t index) const { return const_cast<Order*>(this)->newer(index); }

  // Before a link changes. Apart from the loops that it would slow down while no links are kept.
  [[gnu::noinline]] void keep_link(std::uint32_t index) const {
    if (kept_->oldest.empty())
      for (const List& list : lists_) kept_->oldest.push_back(list.oldest);
    if (index != kNoRow) kept_->keep(index, newer(index));
  }

  List& list_of(const std::byte* row) {
    if (!by_frequency_) return lists_[0];
    if (ahead_)
      if (const std::uint32_t use = layout_.field(row, kNextUse); use != 0)
        return lists_[kFrequencies + 1 + use % kWindow];
    const std::uint32_t number = std::min(layout_.field(row, kFrequency), most_);
    if (number >= lists_.size()) add_lists(number + 1);
    lowest_ = std::min(lowest_, number);
    return lists_[number];
  }

  void add_lists(std::size_t count) {
    lists_.resize(count);
    if (!passing_) return;
    started_.grow(count);
    done_.grow(count);
    passed_.resize(count);
  }

  bool settled(const std::byte* row) const { return light_ && layout_.field(row, kFrequency) >= most_; }

  std::size_t frequency_lists() const { return ahead_ ? kFrequencies + 1 : lists_.size(); }
  // The place of a list in the order, and the list at a place: it is its own inverse. The lists of next uses come from
  // the batch that was announced last down.
  std::uint32_t rank(std::uint32_t list) const {
    if (list <= kFrequencies) return list;
    return kFrequencies + 1 + (newest_batch_ - (list - kFrequencies - 1)) % kWindow;
  }

  const Layout& layout_;
  const Slab& slab_;
  bool by_frequency_, light_, ahead_;
  std::uint32_t most_;  // the last frequency that has a list of its own
  std::uint32_t newest_batch_ = 0;
  bool beside_;               // links are not in the rows
  std::vector<Links> links_;  // of each slot
  std::vector<List> lists_;
  std::uint32_t lowest_ = 0;  // no list below it holds a row
  // Since `restart`: lists in which rows were passed, up to which one, and lists that were passed as a whole.
  bool passing_ = false;
  Flags started_, done_;
  std::vector<std::uint32_t> passed_;
  std::size_t rows_ = 0;
  KeptLinks* kept_ = nullptr;
};

}  // namespace hotrow::store
