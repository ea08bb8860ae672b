// std::atomic_ref, or its operations that we use where a standard library of C++20 does not have it yet (libc++ before
// 19).
#pragma once

#include <atomic>

namespace hotrow::store {

#if defined(__cpp_lib_atomic_ref)
using std::atomic_ref;
#else
template <typename T>
class atomic_ref {
 public:
  explicit atomic_ref(T& value) : value_(&value) {}

  void store(T value, std::memory_order order) const { __atomic_store_n(value_, value, static_cast<int>(order)); }
  T load(std::memory_order order) const { return __atomic_load_n(value_, static_cast<int>(order)); }
  T fetch_add(T more, std::memory_order order) const {
    return __atomic_fetch_add(value_, more, static_cast<int>(order));
  }

 private:
  T* value_;
};
#endif

}  // namespace hotrow::store
