#include "store/segment_format.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "store/atomic_ref.h"
#include "store/hash.h"
#include "store/segment_owner.h"

namespace hotrow::store {
namespace {

constexpr std::uint64_t kMagic = 0x6773776f72746f68;  // "hotrowsg"

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw SegmentError("segment " + path + ": " + what);
}

std::string remedy(const std::string& path) { return "remove it with: hotrow segments remove " + path; }

[[noreturn]] void fail_damaged(const std::string& path, std::uint64_t offset, const std::string& what) {
  fail(path, "damaged at byte " + std::to_string(offset) + " (" + what + "); " + remedy(path));
}

[[noreturn]] void fail_truncated(const std::string& path, std::uint64_t size, std::uint64_t wanted) {
  fail(path,
       "truncated, it has " + std::to_string(size) + " bytes and had " + std::to_string(wanted) + "; " + remedy(path));
}

std::uint64_t mix(std::uint64_t seed, std::uint64_t word) { return hash_key(seed ^ word) + kGolden; }

std::uint64_t checksum(const SegmentHeader& page) {
  std::uint64_t sum = mix(mix(page.version, page.header_bytes), page.pieces_at);
  sum = mix(mix(sum, page.push_entries), page.identity_bytes);
  for (std::uint32_t i = 0; i < page.identity_bytes; ++i) sum = mix(sum, static_cast<unsigned char>(page.identity[i]));
  return sum;
}

std::uint64_t checksum(const PieceHeader& place, std::uint64_t offset) {
  std::uint64_t sum = mix(mix(offset, static_cast<std::uint64_t>(place.kind)), place.tag.partition);
  return mix(mix(mix(sum, place.tag.first_index), place.tag.rows), place.bytes);
}

// As many of `bytes` as the file still has; the rest of `to` is left alone.
std::size_t read_some(int descriptor, std::uint64_t offset, void* to, std::size_t bytes) {
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t got =
        pread(descriptor, static_cast<char*>(to) + done, bytes - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

// The first byte in [from, to) that is not zero, or `to`.
std::uint64_t first_nonzero(int descriptor, std::uint64_t from, std::uint64_t to) {
  std::vector<char> buffer(1 << 16);
  while (from < to) {
    const std::size_t want = std::min<std::uint64_t>(buffer.size(), to - from);
    const std::size_t got = read_some(descriptor, from, buffer.data(), want);
    const auto end = buffer.begin() + static_cast<std::ptrdiff_t>(got);
    const auto hit = std::find_if(buffer.begin(), end, [](char byte) { return byte != 0; });
    if (hit != end) return from + static_cast<std::uint64_t>(hit - buffer.begin());
    if (got < want) return to;  // the file ended
    from += got;
  }
  return to;
}

void check_pushes(int descriptor, const std::string& path) {
  std::vector<std::uint64_t> entries(PushLog::kEntries);
  read_some(descriptor, kHeaderBytes, entries.data(), PushLog::kBytes);
  const std::size_t damaged = PushLog::first_damaged(entries);
  if (damaged < PushLog::kEntries)
    fail_damaged(path, kHeaderBytes + damaged * sizeof(std::uint64_t), "an entry of the push log");
}

}  // namespace

void write_header(SegmentHeader& page, const std::string& path, const Identity& identity) {
  std::string text;
  for (const auto& [name, value] : identity) {
    if (name.empty() || name.find_first_of("=\n") != std::string::npos || value.find('\n') != std::string::npos)
      fail(path, "the field '" + name + "' of its identity has a sign that cannot be written down");
    text.append(name).append("=").append(value).append("\n");
  }
  if (text.size() > sizeof page.identity)
    fail(path, "its identity takes " + std::to_string(text.size()) + " bytes, the header has room for " +
                   std::to_string(sizeof page.identity) + ": give the table shorter names");
  page.version = kSegmentVersion;
  page.header_bytes = kHeaderBytes;
  page.pieces_at = kPiecesAt;
  page.push_entries = PushLog::kEntries;
  page.identity_bytes = static_cast<std::uint32_t>(text.size());
  std::memcpy(page.identity, text.data(), text.size());
  page.checksum = checksum(page);
  atomic_ref(page.magic).store(kMagic, std::memory_order_release);
}

void write_piece(PieceHeader& place, std::uint64_t offset, PieceKind kind, const PieceTag& tag, std::uint64_t bytes) {
  PieceHeader whole{kind, tag, 0, bytes, 0, {}};
  whole.checksum = checksum(whole, offset);
  place.tag = tag;
  place.bytes = bytes;
  place.checksum = whole.checksum;
  atomic_ref(place.kind).store(kind, std::memory_order_release);
  std::atomic_signal_fence(std::memory_order_seq_cst);  // rows come after the mark that lets an attach find them
}

bool never_used(int descriptor, std::uint64_t size) {
  std::uint64_t magic = 0;
  read_some(descriptor, 0, &magic, sizeof magic);
  return magic == 0 && first_nonzero(descriptor, kHeaderBytes, size) >= size;
}

SegmentHeader read_header(int descriptor, std::uint64_t size, const std::string& path) {
  SegmentHeader page{};
  const std::size_t got = read_some(descriptor, 0, &page, sizeof page);
  const std::uint64_t magic = kMagic;
  if (got == 0 || std::memcmp(&page.magic, &magic, std::min(got, sizeof magic)) != 0)
    fail(path, "is not a segment of Hotrow; move it away or choose another directory");
  if (got < sizeof page) fail_truncated(path, size, kHeaderBytes);
  if (page.version != kSegmentVersion)
    fail(path, "has format version " + std::to_string(page.version) + ", this Hotrow knows version " +
                   std::to_string(kSegmentVersion) + ": attach with the Hotrow that made it, or " + remedy(path));
  if (page.identity_bytes > sizeof page.identity || page.checksum != checksum(page) ||
      page.header_bytes != kHeaderBytes || page.pieces_at != kPiecesAt || page.push_entries != PushLog::kEntries)
    fail_damaged(path, 0, "the header");
  const std::uint64_t wanted = std::max<std::uint64_t>(page.file_bytes, kPiecesAt);
  if (size < wanted) fail_truncated(path, size, wanted);
  return page;
}

Identity identity_of(const SegmentHeader& header) {
  Identity identity;
  std::string_view text(header.identity, header.identity_bytes);
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const std::size_t equals = std::min(line.find('='), line.size());
    identity.emplace_back(line.substr(0, equals), line.substr(std::min(equals + 1, line.size())));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return identity;
}

void check_identity(const std::string& path, const Identity& found, const Identity& wanted) {
  const auto value_in = [](const Identity& identity, const std::string& name) -> std::string {
    const auto field = std::ranges::find(identity, name, &Identity::value_type::first);
    return field == identity.end() ? "not given" : field->second;
  };
  std::string faults;
  const auto compare = [&](const std::string& name) {
    const std::string there = value_in(found, name), here = value_in(wanted, name);
    if (there != here) faults += (faults.empty() ? "" : ", ") + name + " is " + there + " there and " + here + " here";
  };
  for (const auto& [name, value] : wanted) compare(name);
  for (const auto& [name, value] : found)
    if (std::ranges::find(wanted, name, &Identity::value_type::first) == wanted.end()) compare(name);
  if (!faults.empty())
    fail(path, "holds another table: " + faults + "; set the table as it was, give it another run or name, or " +
                   remedy(path));
}

Contents read_contents(int descriptor, std::uint64_t size, std::uint32_t pieces, const std::string& path) {
  check_pushes(descriptor, path);
  Contents found;
  const std::uint64_t last = size / kPieceAlign * kPieceAlign;
  std::uint64_t offset = kPiecesAt;
  while (last - offset >= kPieceAlign) {
    PieceHeader place{};
    read_some(descriptor, offset, &place, sizeof place);
    if (place.kind == PieceKind::none) break;
    if ((place.kind != PieceKind::piece && place.kind != PieceKind::gap) || place.checksum != checksum(place, offset))
      fail_damaged(path, offset, "the header of a piece");
    const std::uint64_t start = offset + kPieceAlign;
    if (place.bytes > last - start) fail_truncated(path, size, start + place.bytes);
    if (place.kind == PieceKind::piece) found.pieces.push_back({place.tag, start, place.bytes});
    offset = start + padded(place.bytes, kPieceAlign);
  }
  if (found.pieces.size() < pieces)
    fail_damaged(path, offset,
                 "piece " + std::to_string(found.pieces.size() + 1) + " of " + std::to_string(pieces) + " is gone");
  // A header that was being written may lie at the end; behind it nothing was handed out.
  const std::uint64_t behind = std::min(offset + kPieceAlign, size);
  const std::uint64_t stray = first_nonzero(descriptor, behind, size);
  if (stray < size) fail_damaged(path, stray, "something lies behind the last piece");
  found.end = offset;
  return found;
}

SegmentReport inspect_segment(const std::string& path) {
  SegmentReport report;
  const FileProbe file(path);
  report.bytes = file.bytes();
  try {
    check_ours(file.descriptor(), path);  // before the lock: probing a stranger's could disturb him
  } catch (const SegmentError& error) {
    report.fault = error.what();
    return report;
  }
  report.in_use = file.locked();
  if (never_used(file.descriptor(), report.bytes)) return report;
  try {
    const SegmentHeader header = read_header(file.descriptor(), report.bytes, path);
    report.identity = identity_of(header);
    report.owner = header.owner;
    report.kept = !report.in_use && header.owner == 0;
    if (!report.in_use) read_contents(file.descriptor(), report.bytes, header.pieces, path);
  } catch (const SegmentError& error) {
    // An owner that came meanwhile, or is just making the file, explains what looks like damage.
    report.in_use = report.in_use || file.locked();
    if (!report.in_use) report.fault = error.what();
  }
  return report;
}

}  // namespace hotrow::store
