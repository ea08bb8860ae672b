// How many floats the instruction set of this compilation takes at once. Only for files under store/isa.
#pragma once

namespace hotrow::store::HOTROW_ISA {

#if defined(__AVX512F__)
constexpr int kWidth = 16;
#elif defined(__AVX2__)
constexpr int kWidth = 8;
#else
constexpr int kWidth = 4;
#endif

}  // namespace hotrow::store::HOTROW_ISA
