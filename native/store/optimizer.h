// The optimizers that live in the rows, as plain data. The arithmetic is in store/isa/rows.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hotrow::store {

enum class Rule : int { sgd, adagrad, rowwise_adagrad, decayed_adagrad, adam, ftrl, count };

struct Optimizer {
  Rule rule = Rule::sgd;
  double lr = 0.05;
  double l2 = 0, decay = 0;
  double clip = 0;  // 0: none
  double eps = 1e-10;
  bool eps_inside = false;
  double initial = 0;                 // the first second moment of the Adagrads, the first n of FTRL
  double rate = 1;                    // decayed Adagrad
  double workers = 1;                 // Adagrads, cached rows: each is expected to add as much to the second moment
  double beta1 = 0.9, beta2 = 0.999;  // Adam
  bool correct_by_row = false;        // Adam: bias by the row's own updates, not by the step
  double beta = 1, l1 = 0;            // FTRL
  std::uint64_t swap_period = 0;      // samples; 0: no SWAP
  double swap_decay = 1;
  double swap_floor = 0;  // decay stops here; 0: never

  std::size_t state_dim(std::size_t dim) const;
};

// Everything an update of one call shares, in the row's own precision.
struct UpdateRule {
  Rule rule;
  bool eps_inside;
  float lr, l2, keep;  // keep = 1 - lr * decay
  float eps, beta1_rest, beta2_rest, rate, rate_rest;
  float beta, l1, inverse_lr;  // FTRL
  float swap_floor;
  float workers;
};

// What differs from row to row.
struct RowTouch {
  float squares = 0;     // of the gradient, summed
  float scale = 1;       // clipping
  float swap_decay = 1;  // how much the second moment has to lose first
  float step_size = 0;   // Adam: lr with bias correction
};

UpdateRule update_rule(const Optimizer& optimizer);

// lr * sqrt(1 - beta2^t) / (1 - beta1^t), from a table while t is small: rows of one batch differ in t.
class AdamSteps {
 public:
  explicit AdamSteps(const Optimizer& optimizer);
  float at(std::uint64_t t) const { return t < known_.size() ? known_[t] : compute(t); }

 private:
  float compute(std::uint64_t t) const;
  Optimizer optimizer_;
  std::vector<float> known_;
};

}  // namespace hotrow::store
