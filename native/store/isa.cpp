#include "store/isa.h"

#include <cstdlib>
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

Isa choose() {
  const Isa most = best();
  const char* asked = std::getenv("HOTROW_ISA");
  if (asked == nullptr) return most;
  const std::string_view name(asked);
  const Isa wanted = name == "plain" ? Isa::plain : name == "avx2" ? Isa::avx2 : Isa::avx512;
  return wanted < most ? wanted : most;
}

}  // namespace

Isa isa() {
  static const Isa chosen = choose();
  return chosen;
}

const char* isa_name() {
  switch (isa()) {
    case Isa::avx512:
      return "avx512";
    case Isa::avx2:
      return "avx2";
    default:
      return "plain";
  }
}

}  // namespace hotrow::store
