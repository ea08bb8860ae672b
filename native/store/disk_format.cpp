#include "store/disk_format.h"

#include <algorithm>
#include <cstring>

namespace hotrow::store {
namespace {

constexpr std::uint64_t kFileMagic = 0x6b64776f72746f68;    // "hotrowdk"
constexpr std::uint64_t kExtentMagic = 0x7865776f72746f68;  // "hotrowex"
constexpr std::size_t kExtentMost = 1 << 20, kExtentLeast = 64 << 10, kSlotsLeast = 16, kExtentsWanted = 64;

struct FileHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t identity_bytes;
  std::uint64_t extent_bytes;
  std::uint64_t slot_bytes;
  std::uint64_t checksum;     // of all above but the magic, and of the identity
  char identity[kPage - 40];  // "name=value\n" and so on
};
static_assert(sizeof(FileHeader) == kPage);

constexpr std::uint64_t kFactor = 0x9fb21c651e98df25ull;

std::uint64_t mix(std::uint64_t sum, std::uint64_t word) { return fold_product(sum ^ word, kFactor) + kGolden; }

std::uint64_t checksum_of(const FileHeader& page) {
  std::uint64_t sum = mix(mix(mix(page.version, page.identity_bytes), page.extent_bytes), page.slot_bytes);
  for (std::uint32_t i = 0; i < page.identity_bytes; ++i) sum = mix(sum, static_cast<unsigned char>(page.identity[i]));
  return sum;
}

std::uint64_t checksum_of(const ExtentHeader& header) {
  std::uint64_t sum = mix(mix(header.magic, header.generation), header.opened_at);
  sum = mix(mix(sum, header.extent), header.used);
  for (const std::uint64_t word : header.unused) sum = mix(sum, word);
  return sum;
}

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw DiskError("disk file " + path + ": " + what);
}

std::string text_of(const Identity& identity, const std::string& path) {
  std::string text;
  for (const auto& [name, value] : identity) {
    if (value.find('\n') != std::string::npos) fail(path, name + " has a line break, which cannot be written down");
    text.append(name).append("=").append(value).append("\n");
  }
  if (text.size() > sizeof(FileHeader::identity))
    fail(path, "its layout takes " + std::to_string(text.size()) + " bytes, the header has room for " +
                   std::to_string(sizeof(FileHeader::identity)) + ": give the table shorter names");
  return text;
}

Identity identity_of(const FileHeader& header) {
  Identity found;
  const std::string text(header.identity, header.identity_bytes);
  for (std::size_t at = 0, end; at < text.size() && (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    const std::size_t sign = std::min(text.find('=', at), end);
    found.emplace_back(text.substr(at, sign - at), sign < end ? text.substr(sign + 1, end - sign - 1) : "");
  }
  return found;
}

bool sound(const FileHeader& header) {
  return header.magic == kFileMagic && header.identity_bytes <= sizeof header.identity &&
         header.checksum == checksum_of(header);
}

void check_same(const std::string& path, const Identity& found, const Identity& expected) {
  std::string differences;
  for (const auto& [name, wanted] : expected) {
    const auto same_name = [&](const auto& field) { return field.first == name; };
    const auto field = std::ranges::find_if(found, same_name);
    const std::string value = field == found.end() ? "nothing" : field->second;
    if (value != wanted) {
      differences += differences.empty() ? "" : ", ";
      differences += name + "=" + wanted + " here and " + value + " in the file";
    }
  }
  if (!differences.empty())
    fail(path, "is of another table: " + differences + "; give this table another path, or remove the file");
}

}  // namespace

void SlotLayout::encode(std::byte* slot, const DiskColumns& rows, std::size_t at, std::uint64_t sequence) const {
  reinterpret_cast<std::uint64_t*>(slot)[bytes_ / 8 - 1] = 0;  // padding
  reinterpret_cast<Key*>(slot)[0] = rows.keys[at];
  reinterpret_cast<std::uint64_t*>(slot)[1] = sequence;
  auto* fields = reinterpret_cast<std::uint32_t*>(slot + kFieldsAt);
  for (std::size_t field = 0; field < fields_; ++field) fields[field] = rows.fields[field][at];
  const float* value = rows.values + at * dim_;
  if (type_ == RowType::float32) {
    std::memcpy(slot + value_at_, value, dim_ * sizeof(float));
  } else {
    if (dim_ % 2 != 0) std::memset(slot + state_at_ - sizeof(float), 0, sizeof(float));
    // Numbers that the type can hold stay as they are: only those that it cannot are rounded.
    narrow_kernels().narrow[static_cast<int>(type_)](value, reinterpret_cast<std::uint16_t*>(slot + value_at_), dim_,
                                                     mix(rows.keys[at], sequence));
  }
  if (state_dim_ != 0) std::memcpy(slot + state_at_, rows.state + at * state_dim_, state_dim_ * sizeof(float));
}

void SlotLayout::encode_erased(std::byte* slot, Key key, std::uint64_t sequence) const {
  std::memset(slot, 0, bytes_);
  reinterpret_cast<Key*>(slot)[0] = key;
  reinterpret_cast<std::uint64_t*>(slot)[1] = sequence | kErased;
}

void SlotLayout::decode(const std::byte* slot, const DiskColumns& rows, std::size_t at) const {
  rows.keys[at] = key(slot);
  const auto* fields = reinterpret_cast<const std::uint32_t*>(slot + kFieldsAt);
  for (std::size_t field = 0; field < fields_; ++field) rows.fields[field][at] = fields[field];
  float* value = rows.values + at * dim_;
  if (type_ == RowType::float32)
    std::memcpy(value, slot + value_at_, dim_ * sizeof(float));
  else
    narrow_kernels().widen[static_cast<int>(type_)](reinterpret_cast<const std::uint16_t*>(slot + value_at_), value,
                                                    dim_);
  if (state_dim_ != 0) std::memcpy(rows.state + at * state_dim_, slot + state_at_, state_dim_ * sizeof(float));
}

std::uint32_t SlotLayout::checksum(const std::byte* slot, std::uint64_t generation, std::uint64_t place) const {
  const auto* words = reinterpret_cast<const std::uint64_t*>(slot);
  std::uint64_t even = mix(generation, place), odd = mix(place, words[0]);
  even = mix(even, words[1]);
  odd = mix(odd, words[2] >> 32);  // its low half is the checksum itself
  const std::size_t count = bytes_ / 8;
  std::size_t word = 3;
  for (; word + 1 < count; word += 2) {  // two chains, so that their multiplications overlap
    even = mix(even, words[word]);
    odd = mix(odd, words[word + 1]);
  }
  if (word < count) even = mix(even, words[word]);
  const std::uint64_t sum = mix(even, odd);
  return static_cast<std::uint32_t>(sum ^ (sum >> 32));
}

void SlotLayout::seal(std::byte* slot, std::uint64_t generation, std::uint64_t place) const {
  const std::uint32_t sum = checksum(slot, generation, place);
  std::memcpy(slot + kChecksumAt, &sum, sizeof sum);
}

void write_extent_header(std::byte* extent, std::size_t extent_bytes, std::uint64_t generation, std::uint64_t opened_at,
                         std::uint32_t number, std::uint32_t used) {
  ExtentHeader header{kExtentMagic, generation, opened_at, number, used, {}, 0};
  header.checksum = checksum_of(header);
  std::memcpy(extent, &header, sizeof header);
  std::memcpy(extent + extent_bytes - sizeof header, &header, sizeof header);
}

bool read_extent_header(const std::byte* front, const std::byte* back, ExtentHeader& found) {
  for (const std::byte* place : {front, back}) {
    std::memcpy(&found, place, sizeof found);
    if (found.magic == kExtentMagic && found.checksum == checksum_of(found)) return true;
  }
  return false;
}

DiskGeometry choose_geometry(const SlotLayout& layout, std::uint64_t capacity_bytes) {
  DiskGeometry chosen{kExtentMost, layout.bytes()};
  while (chosen.extent_bytes > kExtentLeast && capacity_bytes / chosen.extent_bytes < kExtentsWanted)
    chosen.extent_bytes /= 2;
  while (chosen.slots() < kSlotsLeast) chosen.extent_bytes *= 2;
  return chosen;
}

std::vector<std::byte> file_header(const std::string& path, const DiskGeometry& geometry, const Identity& identity) {
  std::vector<std::byte> pages(2 * kPage);
  FileHeader page{};
  const std::string text = text_of(identity, path);
  page.magic = kFileMagic;
  page.version = kDiskVersion;
  page.identity_bytes = static_cast<std::uint32_t>(text.size());
  page.extent_bytes = geometry.extent_bytes;
  page.slot_bytes = geometry.slot_bytes;
  std::memcpy(page.identity, text.data(), text.size());
  page.checksum = checksum_of(page);
  std::memcpy(pages.data(), &page, kPage);
  std::memcpy(pages.data() + kPage, &page, kPage);
  return pages;
}

FoundHeader read_file_header(const std::string& path, const std::vector<std::byte>& pages, std::uint64_t size,
                             const Identity& expected, std::size_t slot_bytes, DiskGeometry& found) {
  FileHeader header;
  std::memcpy(&header, pages.data(), kPage);
  if (!sound(header)) {
    FileHeader copy;
    std::memcpy(&copy, pages.data() + kPage, kPage);
    const bool zeros = std::ranges::all_of(pages, [](std::byte byte) { return byte == std::byte{0}; });
    const bool ours = header.magic == kFileMagic || copy.magic == kFileMagic;
    if (sound(copy))
      header = copy;
    else if ((zeros || ours) && size <= 2 * kPage)
      return FoundHeader::never_used;  // its making was cut off, or the file was: it cannot hold a row
    else if (ours)
      fail(path, "damaged, both copies of its header: remove it, or give this table another path");
    else
      fail(path, "is not a disk file of Hotrow: give this table another path");
  }
  if (header.version != kDiskVersion)
    fail(path, "has format version " + std::to_string(header.version) + ", this Hotrow reads version " +
                   std::to_string(kDiskVersion) + ": use the Hotrow that wrote it, or remove it");
  check_same(path, identity_of(header), expected);
  if (header.slot_bytes != slot_bytes || header.extent_bytes % kPage != 0 || header.extent_bytes < 2 * kPage)
    fail(path, "has slots of " + std::to_string(header.slot_bytes) + " bytes, this table needs " +
                   std::to_string(slot_bytes) + ": give this table another path, or remove the file");
  found = {header.extent_bytes, header.slot_bytes};
  return FoundHeader::whole;
}

}  // namespace hotrow::store
