// Which instruction set the vector kernels use. Files under store/isa are compiled once per set, each time into a
// namespace of its own (HOTROW_ISA); the best set this processor has is picked when the first kernel is called.
//
// Rule for files under store/isa: no standard-library templates and no inline functions with external linkage. The
// linker keeps one copy of those, and if it kept the AVX-512 one, the plain path would crash on an old processor.
#pragma once

namespace hotrow::store {

enum class Isa { plain, avx2, avx512 };

// Best set of this processor, or what the variable HOTROW_ISA (plain, avx2, avx512) asks for, if the processor has it.
Isa isa();
const char* isa_name();

// Kernels are plain structs of function pointers. HOTROW_KERNELS(RowKernels, row_kernels) in a header declares the
// accessor row_kernels(); each compilation of the file under store/isa defines `const RowKernels row_kernels_table`.
#if defined(HOTROW_X86)
#define HOTROW_KERNELS(Type, name)             \
  namespace isa_plain {                        \
  extern const Type name##_table;              \
  }                                            \
  namespace isa_avx2 {                         \
  extern const Type name##_table;              \
  }                                            \
  namespace isa_avx512 {                       \
  extern const Type name##_table;              \
  }                                            \
  [[maybe_unused]] static const Type& name() { \
    switch (isa()) {                           \
      case Isa::avx512:                        \
        return isa_avx512::name##_table;       \
      case Isa::avx2:                          \
        return isa_avx2::name##_table;         \
      default:                                 \
        return isa_plain::name##_table;        \
    }                                          \
  }
#else
#define HOTROW_KERNELS(Type, name) \
  namespace isa_plain {            \
  extern const Type name##_table;  \
  }                                \
  [[maybe_unused]] static const Type& name() { return isa_plain::name##_table; }
#endif

}  // namespace hotrow::store
