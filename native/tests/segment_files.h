// Segments of tests: files in a directory of their own, to be damaged byte by byte.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "store/segment.h"
#include "tests/check.h"

namespace hotrow::store {

constexpr std::size_t kFirstBlock = 2 << 20;
constexpr std::size_t kLargestFirst = kFirstBlock - kPiecesAt - kPieceAlign;  // piece that fills the first block
inline const Identity kIdentity = {{"dim", "16"}, {"optimizer", "adagrad"}};

// A directory of its own, and a file in it that does not exist yet.
struct Folder {
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "hotrow-units-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary directory: " + name);
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string file(const std::string& name = "rows") const { return (path / name).string(); }
  SegmentSpec spec(bool keep = true) const { return {file(), kIdentity, false, keep}; }
  // The file as a killed process would leave it now.
  SegmentSpec killed(const std::string& name) const {
    std::filesystem::copy_file(file(), file(name), std::filesystem::copy_options::overwrite_existing);
    return {file(name), kIdentity, false, true};
  }

  std::filesystem::path path;
};

inline std::vector<char> bytes_of(const std::string& path) {
  std::vector<char> bytes(std::filesystem::file_size(path));
  std::ifstream(path, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

inline void overwrite(const std::string& path, std::size_t offset, const std::vector<char>& bytes) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(offset));
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

inline void flip(const std::string& path, std::size_t offset) {
  overwrite(path, offset, {static_cast<char>(bytes_of(path).at(offset) ^ 0x10)});
}

inline bool zeroed(const std::byte* memory, std::size_t bytes) {
  return std::all_of(memory, memory + bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

// A kept segment with two pieces of 100 and 200 bytes.
inline void make_two_pieces(const Folder& folder) {
  Segment segment(folder.spec());
  std::memset(segment.allocate({1, 0, 4}, 100), 'a', 100);
  std::memset(segment.allocate({2, 4, 8}, 200), 'b', 200);
}

}  // namespace hotrow::store
