// A table of rows in memory: partitions by hash, each with its own lock, slab and index. Every call takes a batch and
// runs on as many threads as asked; what it computes does not depend on how many.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "store/arena.h"
#include "store/batch.h"
#include "store/index.h"
#include "store/layout.h"
#include "store/optimizer.h"
#include "store/rows.h"
#include "store/slab.h"

namespace hotrow::store {

struct TableSpec {
  std::size_t dim;
  Optimizer optimizer;
  FirstValues first_values;
  bool clock, last_seen;
  int partitions_log2;
};

// Whose rows of a caller's array: one for every key of the batch, or one for every unique key.
enum class Per { key, unique };

struct When {
  std::uint64_t step;     // dense step being applied, from 0
  std::uint64_t samples;  // up to and including this aggregate
};

// In rows, each counted once however often its key stands in the batch.
struct Applied {
  std::size_t rows = 0;
  std::size_t refused = 0;     // the gradient was not finite
  std::size_t absent = 0;      // no such row
  std::size_t weightless = 0;  // every weight of the key was 0

  Applied& operator+=(const Applied& more) {
    rows += more.rows;
    refused += more.refused;
    absent += more.absent;
    weightless += more.weightless;
    return *this;
  }
};

struct Stats {
  std::size_t rows = 0, slab_bytes = 0, index_bytes = 0, splits = 0;
  std::uint64_t created = 0, erased = 0, refused = 0, absent = 0;
};

// Whole rows laid out as columns, for export and put. A null column is skipped.
struct Columns {
  Key* keys = nullptr;
  float* values = nullptr;
  float* state = nullptr;
  std::array<std::uint32_t*, kFields> fields = {};
};

class RamTier {
 public:
  explicit RamTier(const TableSpec& spec);
  ~RamTier();

  const Layout& layout() const { return layout_; }
  int partitions_log2() const { return spec_.partitions_log2; }
  Batch batch(std::span<const Key> keys, int threads) const { return Batch(keys, spec_.partitions_log2, threads); }

  // Rows into `out` (null: only look); absent ones become NaN. Returns how many unique keys are absent.
  std::size_t find(Batch& batch, float* out, Per per, int threads) const;
  // Absent rows are created with their first values.
  void find_or_init(Batch& batch, float* out, Per per, int threads);

  // Gradients per unique key are summed already: they take neither weights nor rows.
  Applied apply(Batch& batch, const Gradients& gradients, Per per, When when, int threads);
  // Adds changes of value and state (null: none); clocks (null: none) only ever rise.
  Applied add(Batch& batch, const float* values, const float* state, const std::uint32_t* clocks, When when,
              int threads);
  // Whole rows, one per key, inserted or overwritten.
  void put(Batch& batch, const Columns& rows, int threads);

  // `field` of every key of the batch, 0 where absent.
  void read(Batch& batch, Field field, std::uint32_t* out, int threads) const;
  std::size_t touch(Batch& batch, std::uint64_t step, int threads);
  std::size_t erase(Batch& batch, int threads);
  void first_values(std::span<const Key> keys, float* out, int threads) const;

  // Up to `most` rows from `cursor` on, which moves; 0 rows: the end. Concurrent changes are seen or not, row by row.
  std::size_t export_rows(std::uint64_t& cursor, std::size_t most, const Columns& out) const;

  std::size_t size() const;
  Stats stats() const;
  std::vector<std::string> verify() const;

 private:
  struct Partition;
  struct Visit;
  struct Access;
  template <typename Body>
  Applied visit(Batch& batch, int threads, const Access& access, Body&& body) const;
  template <typename Body>
  Applied visit_partition(Batch& batch, std::size_t p, const Access& access, Body&& body) const;
  void ask_index(const Partition& partition, const Batch& batch, Visit& visit) const;
  void ask_row(const Partition& partition, Batch& batch, Visit& visit, const Access& access) const;
  void settle(const Partition& partition, Batch& batch, Visit& visit) const;
  void create(Partition& partition, Batch& batch, Visit& visit) const;
  void copy_out(const Visit& visit, float* rows) const;
  void expand(const Batch& batch, const float* rows, float* out, int threads) const;
  float swap_decay(std::byte* row, std::uint32_t period) const;
  void stamp(std::byte* row, When when) const;
  bool apply_row(std::byte* row, const float* gradient, When when, float adam_step) const;
  bool add_row(std::byte* row, const float* value, const float* state, When when) const;
  void put_row(std::byte* row, const Columns& columns, std::size_t at) const;
  Applied count(const Applied& applied);

  TableSpec spec_;
  Layout layout_;
  UpdateRule rule_;
  AdamSteps adam_steps_;
  Arena arena_;
  std::vector<std::unique_ptr<Partition>> partitions_;
  mutable std::atomic<std::uint64_t> next_start_{0}, refused_{0}, absent_{0}, created_{0}, erased_{0};
};

}  // namespace hotrow::store
