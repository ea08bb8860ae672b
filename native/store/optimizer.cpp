#include "store/optimizer.h"

#include <cmath>

namespace hotrow::store {

std::size_t Optimizer::state_dim(std::size_t dim) const {
  switch (rule) {
    case Rule::adagrad:
    case Rule::decayed_adagrad:
      return dim;
    case Rule::rowwise_adagrad:
      return 1;
    case Rule::adam:
    case Rule::ftrl:
      return 2 * dim;
    default:
      return 0;
  }
}

UpdateRule update_rule(const Optimizer& o) {
  return UpdateRule{
      .rule = o.rule,
      .eps_inside = o.eps_inside,
      .lr = static_cast<float>(o.lr),
      .l2 = static_cast<float>(o.l2),
      .keep = static_cast<float>(1 - o.lr * o.decay),
      .eps = static_cast<float>(o.eps),
      .beta1_rest = static_cast<float>(1 - o.beta1),
      .beta2_rest = static_cast<float>(1 - o.beta2),
      .rate = static_cast<float>(o.rate),
      .rate_rest = static_cast<float>(1 - o.rate),
      .beta = static_cast<float>(o.beta),
      .l1 = static_cast<float>(o.l1),
      .inverse_lr = static_cast<float>(1 / o.lr),
      .swap_floor = static_cast<float>(o.swap_floor),
      .workers = static_cast<float>(o.workers),
  };
}

AdamSteps::AdamSteps(const Optimizer& optimizer) : optimizer_(optimizer) {
  if (optimizer.rule != Rule::adam || !optimizer.correct_by_row) return;
  known_.resize(4096);
  for (std::size_t t = 1; t < known_.size(); ++t) known_[t] = compute(t);
}

float AdamSteps::compute(std::uint64_t t) const {
  const double power = static_cast<double>(t);
  const double first = 1 - std::pow(optimizer_.beta1, power);
  const double second = 1 - std::pow(optimizer_.beta2, power);
  return static_cast<float>(optimizer_.lr * std::sqrt(second) / first);
}

}  // namespace hotrow::store
