// What the bytes of a segment mean, and reading them without trusting them. docs/segments.md draws the same table.
//
//   header page | push log | piece header, piece | piece header, piece | ... | zeros to the end
//
// Everything is read with pread and checked before it is used, so a damaged file gives a sentence and never a signal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "store/push_log.h"

namespace hotrow::store {

// Trouble with a segment, told in one sentence.
class SegmentError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct PieceTag {
  std::uint32_t partition, first_index, rows;
};

// What must agree between a segment and the table that wants it: "dim" -> "16", "optimizer" -> "adagrad", ... in order.
using Identity = std::vector<std::pair<std::string, std::string>>;

constexpr std::uint32_t kSegmentVersion = 1;
constexpr std::size_t kBlockMax = 16 << 20;  // the file grows by so much at a time, or by one larger piece
constexpr std::size_t kPieceAlign = 64;      // pieces and their headers start at multiples of it
constexpr std::size_t kHeaderBytes = 4096;
constexpr std::size_t kPiecesAt = kHeaderBytes + PushLog::kBytes;

constexpr std::size_t padded(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

struct SegmentHeader {
  std::uint64_t magic;  // written last: without it the file was never used
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t pieces_at;
  std::uint32_t push_entries;
  std::uint32_t identity_bytes;
  std::uint64_t checksum;            // of all above but the magic, and of the identity
  std::uint64_t file_bytes;          // the file had at least these; grows
  std::uint32_t owner;               // process that has the segment, or died with it; 0: closed, and kept on purpose
  std::uint32_t pieces;              // there were at least so many; grows
  char identity[kHeaderBytes - 56];  // "name=value\n" and so on
};
static_assert(sizeof(SegmentHeader) == kHeaderBytes);

enum class PieceKind : std::uint64_t {
  none = 0,
  piece = 0x6370776f72746f68,  // "hotrowpc"
  gap = 0x7067776f72746f68,    // "hotrowgp": the rest of a block that was too small for the next piece
};

struct PieceHeader {
  PieceKind kind;  // written last
  PieceTag tag;
  std::uint32_t unused;
  std::uint64_t bytes;
  std::uint64_t checksum;  // of place, kind, tag and bytes
  std::uint64_t padding[3];
};
static_assert(sizeof(PieceHeader) == kPieceAlign);

// Fills a zeroed header page; SegmentError where the identity cannot be written down.
void write_header(SegmentHeader& page, const std::string& path, const Identity& identity);
// Fills a zeroed place at `offset` of the file.
void write_piece(PieceHeader& place, std::uint64_t offset, PieceKind kind, const PieceTag& tag, std::uint64_t bytes);

// A file whose making was cut off before the magic: it holds zeros where something could have been used.
bool never_used(int descriptor, std::uint64_t size);
// The header, sound in itself; SegmentError says what is wrong with it.
SegmentHeader read_header(int descriptor, std::uint64_t size, const std::string& path);
Identity identity_of(const SegmentHeader& header);
// SegmentError names every field that differs, with both values.
void check_identity(const std::string& path, const Identity& found, const Identity& wanted);

struct FoundPiece {
  PieceTag tag;
  std::uint64_t offset, bytes;  // of the piece itself, past its header
};
struct Contents {
  std::vector<FoundPiece> pieces;
  std::uint64_t end = 0;  // where the next piece header goes
};
// Push log, at least `pieces` pieces, and the zeros behind them; SegmentError with the byte at which something is
// wrong.
Contents read_contents(int descriptor, std::uint64_t size, std::uint32_t pieces, const std::string& path);

// What a listing shows of a file of any user.
struct SegmentReport {
  std::uint64_t bytes = 0;
  Identity identity;
  bool in_use = false;
  std::uint32_t owner = 0;  // the process that has it, or died with it
  bool kept = false;        // closed by its last owner, who wanted it kept
  std::string fault;        // empty: sound
};
SegmentReport inspect_segment(const std::string& path);

}  // namespace hotrow::store
