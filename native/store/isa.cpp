#include "store/isa.h"

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

namespace hotrow::store {
namespace {

Isa best() {
#if defined(HOTROW_X86)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") &&
                    __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return avx512 ? Isa::avx512 : avx2 ? Isa::avx2 : Isa::plain;
#else
  return Isa::plain;
#endif
}

const char* name_of(Isa isa) { return isa == Isa::avx512 ? "avx512" : isa == Isa::avx2 ? "avx2" : "plain"; }

Isa choose() {
  const Isa most = best();
  const char* asked = std::getenv("HOTROW_ISA");
  if (asked == nullptr) return most;
  const std::string_view name(asked);
  for (const Isa each : {Isa::plain, Isa::avx2, Isa::avx512})
    if (name == name_of(each)) return each < most ? each : most;
  throw std::invalid_argument("HOTROW_ISA=" + std::string(name) + ": must be plain, avx2 or avx512");
}

}  // namespace

Isa isa() {
  static const Isa chosen = choose();
  return chosen;
}

const char* isa_name() { return name_of(isa()); }

}  // namespace hotrow::store
