// Memory for extents that are on their way to the disk: of the process, or a file of shared memory, in which they
// outlive a process that is killed.
#pragma once

#include <cstddef>
#include <string>

namespace hotrow::store {

class Staging {
 public:
  Staging() = default;
  // New memory, zeros; `path` empty: of this process. A file that is there is replaced: take over what is in it first.
  Staging(std::string path, std::size_t bytes);
  // What an earlier process left; `data` is null where there is nothing.
  static Staging found(const std::string& path);
  ~Staging();
  Staging(Staging&& other) noexcept;
  Staging& operator=(Staging&& other) noexcept;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  void remove() const;

 private:
  std::string path_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace hotrow::store
