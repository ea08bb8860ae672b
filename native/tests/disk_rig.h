// A disk tier for tests: rows whose numbers follow from key and stamp, in a folder of its own, and disks that fail.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "store/disk_tier.h"

namespace hotrow::tests {

using namespace hotrow::store;

constexpr std::size_t kRigDim = 8;  // slots of 56 bytes, 1,168 in an extent of 64 KiB

// What a disk does wrong. Set by one thread, read by those that do I/O.
struct DiskFaults {
  enum Kind { none, read, write, short_write, lost_write, sync, grow, no_memory };

  std::atomic<int> kind{none}, error{5}, left{0}, skip{0};  // `left` operations of that kind fail after `skip` of them
  std::atomic<int> made{0};
  std::atomic<std::uint64_t> only_at{kAnywhere};  // operations that begin at this byte of the file

  static constexpr std::uint64_t kAnywhere = ~std::uint64_t{0};

  void start(Kind which, int number, int after = 0, int times = 1 << 30) {
    kind = none;
    error = number;
    skip = after;
    left = times;
    made = 0;
    kind = which;
  }
  void end() {
    kind = none;
    only_at = kAnywhere;
  }
  bool strikes(std::initializer_list<Kind> those, std::uint64_t at = kAnywhere) {
    const auto now = static_cast<Kind>(kind.load());
    if (std::ranges::find(those, now) == those.end() || (only_at != kAnywhere && only_at != at) ||
        skip.fetch_sub(1) > 0 || left.fetch_sub(1) <= 0)
      return false;
    ++made;
    return true;
  }
};

// Stands between a file and its engine.
class FaultyEngine final : public IoEngine {
 public:
  FaultyEngine(std::unique_ptr<IoEngine> inner, DiskFaults& faults) : inner_(std::move(inner)), faults_(faults) {}

  const char* name() const override { return inner_->name(); }
  void run(IoKind kind, std::span<IoRequest> requests, const std::function<void(IoRequest&)>& finished) override {
    for (IoRequest& request : requests) {
      if (faults_.strikes({DiskFaults::no_memory})) throw std::bad_alloc();
      const bool strikes =
          kind == IoKind::read
              ? faults_.strikes({DiskFaults::read}, request.offset)
              : faults_.strikes({DiskFaults::write, DiskFaults::short_write, DiskFaults::lost_write}, request.offset);
      if (strikes)
        fail(kind, request, static_cast<DiskFaults::Kind>(faults_.kind.load()));
      else
        inner_->run(kind, {&request, 1}, [](IoRequest&) {});
      finished(request);
    }
  }
  int sync(int descriptor) override {
    return faults_.strikes({DiskFaults::sync}) ? faults_.error.load() : inner_->sync(descriptor);
  }
  int grow(int descriptor, std::uint64_t from, std::uint64_t to) override {
    return faults_.strikes({DiskFaults::grow}) ? faults_.error.load() : inner_->grow(descriptor, from, to);
  }

 private:
  void fail(IoKind kind, IoRequest& request, DiskFaults::Kind how) {
    if (how == DiskFaults::lost_write) {  // the disk says that it wrote
      request.done = request.bytes;
      return;
    }
    if (how == DiskFaults::short_write) {
      IoRequest half{request.offset, request.memory, request.bytes / 2 / kPage * kPage};
      if (half.bytes > 0) inner_->run(kind, {&half, 1}, [](IoRequest&) {});
      request.done = half.bytes;
    }
    request.error = faults_.error;
  }

  std::unique_ptr<IoEngine> inner_;
  DiskFaults& faults_;
};

class DiskRig {
 public:
  explicit DiskRig(std::optional<std::size_t> index_cache, std::uint64_t capacity = 4 << 20)
      : DiskRig(index_cache, capacity, false, fresh_folder()) {}
  // In a folder that another process may have left; it is removed at the end.
  DiskRig(std::optional<std::size_t> index_cache, std::uint64_t capacity, bool staged, std::filesystem::path folder)
      : cache_(index_cache), capacity_(capacity), staged_(staged), folder_(std::move(folder)) {
    open();
  }
  ~DiskRig() {
    rows_faults.end();
    index_faults.end();
    tier.reset();
    std::filesystem::remove_all(folder_);
  }
  static std::filesystem::path fresh_folder() {
    std::string name = std::filesystem::temp_directory_path() / "disk-rig-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for the test");
    return name;
  }
  DiskRig(const DiskRig&) = delete;
  DiskRig& operator=(const DiskRig&) = delete;

  static Key key_of(std::uint64_t number) { return hash_key(number); }
  std::string path() const { return folder_ / "rows"; }
  bool staged() const { return staged_; }

  void open() {
    const auto wrapped = [](DiskFaults& faults) {
      return [&faults](std::unique_ptr<IoEngine> inner) {
        return std::make_unique<FaultyEngine>(std::move(inner), faults);
      };
    };
    DiskSpec spec = plain_spec(path(), cache_);
    spec.rows_io = wrapped(rows_faults);
    spec.index_io = wrapped(index_faults);
    tier = std::make_unique<DiskTier>(spec);
  }
  void reopen() {
    tier->close(false);
    open();
  }

  void write(std::span<const std::uint64_t> numbers, float stamp) {
    std::vector<Key> keys;
    for (const std::uint64_t number : numbers) keys.push_back(key_of(number));
    std::vector<float> values(keys.size() * kRigDim, stamp);
    tier->write({keys.data(), values.data(), nullptr, {}}, keys.size());
  }
  std::size_t erase(std::span<const std::uint64_t> numbers) {
    std::vector<Key> keys;
    for (const std::uint64_t number : numbers) keys.push_back(key_of(number));
    return tier->erase(keys);
  }
  // Number -> stamp of those that are there; a row of two stamps counts as -1.
  static std::map<std::uint64_t, float> read(DiskTier& tier, std::span<const std::uint64_t> numbers) {
    std::vector<Key> keys, out(numbers.size());
    for (const std::uint64_t number : numbers) keys.push_back(key_of(number));
    const auto found = std::make_unique<bool[]>(keys.size());
    std::vector<float> values(keys.size() * kRigDim);
    tier.read(keys, true, found.get(), {out.data(), values.data(), nullptr, {}});
    std::map<std::uint64_t, float> stamps;
    std::size_t row = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (!found[i]) continue;
      const auto value = std::span(values).subspan(row++ * kRigDim, kRigDim);
      const bool whole = std::ranges::all_of(value, [&](float each) { return each == value[0]; });
      stamps[numbers[i]] = whole ? value[0] : -1;
    }
    return stamps;
  }
  std::map<std::uint64_t, float> read(std::span<const std::uint64_t> numbers) { return read(*tier, numbers); }

  // What another process finds after a kill that opens the file as it is now. Nothing may be writing it: a copy is not
  // of one moment.
  std::map<std::uint64_t, float> read_after_kill(std::span<const std::uint64_t> numbers) {
    const std::string copy = folder_ / "copy";
    std::filesystem::copy_file(path(), copy, std::filesystem::copy_options::overwrite_existing);
    DiskTier other(plain_spec(copy, cache_));
    std::map<std::uint64_t, float> found = read(other, numbers);
    other.close(true);
    return found;
  }

  DiskFaults rows_faults, index_faults;
  std::unique_ptr<DiskTier> tier;

 private:
  static std::string staging_of(const std::string& path) { return path + ".staged"; }
  DiskSpec plain_spec(const std::string& path, std::optional<std::size_t> cache) const {
    return {path,
            {{"table", "rig"}},
            SlotLayout(kRigDim, RowType::float32, 0, 0),
            capacity_,
            false,
            IoChoice::threads,
            4,
            256 << 10,
            staged_ ? staging_of(path) : "",
            1,
            cache,
            {},
            {}};
  }

  std::optional<std::size_t> cache_;
  std::uint64_t capacity_;
  bool staged_;
  std::filesystem::path folder_;
};

inline std::vector<std::uint64_t> numbers_from(std::uint64_t first, std::uint64_t end) {
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t number = first; number < end; ++number) numbers.push_back(number);
  return numbers;
}

}  // namespace hotrow::tests
