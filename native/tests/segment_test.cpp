// store/segment.h by itself: pieces that a later attach finds again, and files that are refused in a sentence.
#include "store/segment.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "tests/check.h"

namespace hotrow::store {
namespace {

constexpr std::size_t kFirstBlock = 2 << 20;
constexpr std::size_t kLargestFirst = kFirstBlock - kPiecesAt - kPieceAlign;  // piece that fills the first block
const Identity kIdentity = {{"dim", "16"}, {"optimizer", "adagrad"}};

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

std::vector<char> bytes_of(const std::string& path) {
  std::vector<char> bytes(std::filesystem::file_size(path));
  std::ifstream(path, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

void overwrite(const std::string& path, std::size_t offset, const std::vector<char>& bytes) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(offset));
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

void flip(const std::string& path, std::size_t offset) {
  overwrite(path, offset, {static_cast<char>(bytes_of(path).at(offset) ^ 0x10)});
}

bool zeroed(const std::byte* memory, std::size_t bytes) {
  return std::all_of(memory, memory + bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

// A kept segment with two pieces of 100 and 200 bytes.
void make_two_pieces(const Folder& folder) {
  Segment segment(folder.spec());
  std::memset(segment.allocate({1, 0, 4}, 100), 'a', 100);
  std::memset(segment.allocate({2, 4, 8}, 200), 'b', 200);
}

TEST(segment_new_file_is_private_and_gives_zeroed_aligned_memory) {
  const Folder folder;
  Segment segment(folder.spec());
  CHECK(!segment.attached());
  CHECK_EQ(segment.pieces().size(), 0u);
  CHECK_EQ(segment.bytes(), kFirstBlock);
  struct stat found;
  CHECK_EQ(stat(folder.file().c_str(), &found), 0);
  CHECK_EQ(found.st_mode & 0777u, 0600u);
  std::byte* before = nullptr;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{65}}) {
    std::byte* memory = segment.allocate({0, 0, 1}, bytes);
    CHECK_EQ(reinterpret_cast<std::uintptr_t>(memory) % kPieceAlign, 0u);
    CHECK(zeroed(memory, bytes));
    std::memset(memory, 0xff, bytes);
    if (before != nullptr) CHECK_EQ(memory - before, 2 * kPieceAlign);  // a header and one unit, 65 comes last
    before = memory;
  }
}

TEST(segment_attach_finds_tags_rows_and_order_again) {
  const Folder folder;
  make_two_pieces(folder);
  Segment segment(folder.spec());
  CHECK(segment.attached());
  const auto pieces = segment.pieces();
  CHECK_EQ(pieces.size(), 2u);
  CHECK_EQ(pieces[0].tag.partition, 1u);
  CHECK_EQ(pieces[1].tag.partition, 2u);
  CHECK_EQ(pieces[1].tag.first_index, 4u);
  CHECK_EQ(pieces[1].tag.rows, 8u);
  CHECK_EQ(pieces[0].bytes, 100u);
  CHECK_EQ(pieces[1].bytes, 200u);
  for (std::size_t i = 0; i < 200; ++i) CHECK_EQ(std::to_integer<char>(pieces[1].memory[i]), 'b');
  std::byte* next = segment.allocate({3, 0, 1}, 64);  // behind what was found
  CHECK(next >= pieces[1].memory + 200);
  CHECK(zeroed(next, 64));
}

TEST(segment_piece_that_fills_the_block_fits_and_one_byte_more_grows_the_file) {
  for (const std::size_t more : {0, 1}) {
    const Folder folder;
    {
      Segment segment(folder.spec());
      std::byte* memory = segment.allocate({7, 0, 1}, kLargestFirst + more);
      memory[kLargestFirst + more - 1] = std::byte{1};
      CHECK_EQ(segment.bytes(), kFirstBlock * (1 + more));
      segment.allocate({8, 0, 1}, 64);
      CHECK_EQ(segment.bytes(), kFirstBlock * 2);
    }
    const Segment again(folder.spec());
    CHECK_EQ(again.pieces().size(), 2u);  // a gap is not a piece
    CHECK_EQ(again.pieces()[0].bytes, kLargestFirst + more);
    CHECK_EQ(std::to_integer<int>(again.pieces()[0].memory[kLargestFirst + more - 1]), 1);
    CHECK_EQ(again.pieces()[1].tag.partition, 8u);
  }
}

TEST(segment_grows_by_doubling_and_by_one_larger_piece) {
  const Folder folder;
  Segment segment(folder.spec());
  segment.allocate({0, 0, 1}, kLargestFirst);
  segment.allocate({0, 0, 1}, kFirstBlock - kPieceAlign);
  CHECK_EQ(segment.bytes(), 2 * kFirstBlock);
  segment.allocate({0, 0, 1}, 1);
  CHECK_EQ(segment.bytes(), 4 * kFirstBlock);
  segment.allocate({0, 0, 1}, 20 << 20);
  CHECK_EQ(segment.bytes(), 4 * kFirstBlock + (22 << 20));  // its header needs a page more
}

TEST(segment_pieces_of_no_bytes_or_of_too_many_are_refused) {
  const Folder folder;
  Segment segment(folder.spec());
  CHECK_THROWS(SegmentError, "a piece of 0 bytes cannot be", segment.allocate({0, 0, 0}, 0));
  CHECK_THROWS(SegmentError, "a piece of 70368744177665 bytes", segment.allocate({0, 0, 0}, (1ull << 46) + 1));
  CHECK_THROWS(SegmentError, "no room for", segment.allocate({0, 0, 0}, 1ull << 46));
  CHECK_EQ(segment.bytes(), kFirstBlock);
  CHECK_EQ(std::filesystem::file_size(folder.file()), kFirstBlock);
}

TEST(segment_close_removes_the_file_unless_it_is_kept) {
  const Folder folder;
  for (const bool keep : {false, true}) {
    Segment segment(folder.spec(keep));
    std::byte* memory = segment.allocate({0, 0, 1}, 8);
    segment.close();
    CHECK_EQ(std::filesystem::exists(folder.file()), keep);
    memory[7] = std::byte{1};  // stays mapped
    CHECK_THROWS(SegmentError, "is closed", segment.allocate({0, 0, 1}, 8));
  }
}

TEST(segment_attached_file_stays_until_its_rows_are_taken_over) {
  const Folder folder;
  make_two_pieces(folder);
  {
    const Segment dropped(folder.spec(false));
  }
  CHECK(std::filesystem::exists(folder.file()));
  {
    Segment used(folder.spec(false));
    used.take_over();
  }
  CHECK(!std::filesystem::exists(folder.file()));
}

TEST(segment_leave_keeps_a_file_that_close_would_remove) {
  const Folder folder;
  Segment segment(folder.spec(false));
  segment.leave();
  CHECK(std::filesystem::exists(folder.file()));
}

TEST(segment_has_one_owner_at_a_time) {
  const Folder folder;
  Segment segment(folder.spec());
  CHECK_THROWS(SegmentError, "in use", Segment(folder.spec()));
  segment.close();
  CHECK(Segment(folder.spec()).attached());
}

TEST(segment_of_another_table_is_refused_with_both_values) {
  const Folder folder;
  make_two_pieces(folder);
  const auto before = bytes_of(folder.file());
  SegmentSpec other = folder.spec(false);
  other.identity = {{"dim", "32"}, {"init", "zero"}};
  CHECK_THROWS(SegmentError,
               "dim is 16 there and 32 here, init is not given there and zero here, "
               "optimizer is adagrad there and not given here",
               Segment{other});
  CHECK(bytes_of(folder.file()) == before);
}

TEST(segment_identity_takes_all_the_room_of_the_header_and_no_byte_more) {
  const std::size_t room = sizeof(SegmentHeader::identity) - 3;  // "n=" and a line end
  const Folder folder;
  SegmentSpec spec = folder.spec();
  spec.identity = {{"n", std::string(room + 1, 'x')}};
  CHECK_THROWS(SegmentError, "give the table shorter names", Segment{spec});
  CHECK(!std::filesystem::exists(folder.file()));
  spec.identity = {{"n", std::string(room, 'x')}};
  {
    const Segment made(spec);
  }
  CHECK(Segment(spec).attached());
  spec.identity = {{"a=b", "1"}};
  spec.path = folder.file("other");
  CHECK_THROWS(SegmentError, "cannot be written down", Segment{spec});
}

TEST(segment_any_damaged_byte_of_the_header_is_refused_and_left_alone) {
  const Folder folder;
  make_two_pieces(folder);
  const auto sound = bytes_of(folder.file());
  const std::size_t identity_end = offsetof(SegmentHeader, identity) + std::strlen("dim=16\noptimizer=adagrad\n");
  std::size_t refused = 0;
  for (std::size_t offset = 0; offset < identity_end; ++offset) {
    const bool grows = offset >= offsetof(SegmentHeader, file_bytes) && offset < offsetof(SegmentHeader, identity);
    if (grows) continue;  // outside the checksum: checked against the file below
    flip(folder.file(), offset);
    const auto damaged = bytes_of(folder.file());
    const char* wanted = offset < 8 ? "is not a segment of Hotrow" : offset < 12 ? "format version" : "the header";
    CHECK_THROWS(SegmentError, wanted, Segment(folder.spec(false)));
    CHECK(bytes_of(folder.file()) == damaged);
    flip(folder.file(), offset);
    ++refused;
  }
  CHECK_EQ(refused, identity_end - 16);
  CHECK(bytes_of(folder.file()) == sound);
  CHECK_EQ(Segment(folder.spec()).pieces().size(), 2u);
}

TEST(segment_cut_file_and_lost_piece_are_refused) {
  const Folder folder;
  make_two_pieces(folder);
  std::filesystem::resize_file(folder.file(), kFirstBlock - 1);
  CHECK_THROWS(SegmentError, "truncated, it has 2097151 bytes and had 2097152", Segment(folder.spec()));
  std::filesystem::resize_file(folder.file(), kFirstBlock);
  CHECK_EQ(Segment(folder.spec()).pieces().size(), 2u);  // what was cut off were zeros
  overwrite(folder.file(), offsetof(SegmentHeader, pieces), {3});
  CHECK_THROWS(SegmentError, "piece 3 of 3 is gone", Segment(folder.spec()));
  std::filesystem::resize_file(folder.file(), 100);
  CHECK_THROWS(SegmentError, "truncated, it has 100 bytes and had 4096", Segment(folder.spec()));
}

TEST(segment_damaged_piece_header_push_log_and_strange_tail_are_refused_with_their_place) {
  const Folder folder;
  make_two_pieces(folder);
  const std::size_t second = kPiecesAt + kPieceAlign + 128;  // behind the first piece of 100 bytes
  for (std::size_t byte = 0; byte < 40; ++byte) {
    if (byte >= offsetof(PieceHeader, unused) && byte < offsetof(PieceHeader, bytes)) continue;
    flip(folder.file(), second + byte);
    CHECK_THROWS(SegmentError, "damaged at byte " + std::to_string(second), Segment(folder.spec()));
    flip(folder.file(), second + byte);
  }
  const std::size_t behind = second + kPieceAlign + 256;
  for (const std::size_t stray : {behind + kPieceAlign, kFirstBlock - 1}) {
    overwrite(folder.file(), stray, {1});
    CHECK_THROWS(SegmentError, "damaged at byte " + std::to_string(stray), Segment(folder.spec()));
    overwrite(folder.file(), stray, {0});
  }
  overwrite(folder.file(), kHeaderBytes + 8, {'\xff', '\xff', '\xff', '\xff', '\xff', '\xff', '\xff', '\xff'});
  CHECK_THROWS(SegmentError, "an entry of the push log", Segment(folder.spec()));
}

TEST(segment_piece_header_that_was_never_finished_is_forgotten) {
  const Folder folder;
  make_two_pieces(folder);
  const std::size_t third = kPiecesAt + kPieceAlign + 128 + kPieceAlign + 256;
  overwrite(folder.file(), third + offsetof(PieceHeader, tag), std::vector<char>(32, 'x'));
  Segment segment(folder.spec());
  CHECK_EQ(segment.pieces().size(), 2u);
  const auto cleared = bytes_of(folder.file());
  CHECK_EQ(std::count(cleared.begin() + third, cleared.begin() + third + kPieceAlign, 0), kPieceAlign);
  segment.allocate({9, 0, 1}, 64);
  segment.close();
  CHECK_EQ(Segment(folder.spec()).pieces()[2].tag.partition, 9u);
}

TEST(segment_file_that_was_never_used_is_made_anew) {
  const Folder folder;
  {
    Segment cut(folder.spec());
    overwrite(folder.file(), 0, std::vector<char>(8, 0));  // killed before the magic was written
    const SegmentSpec left = folder.killed("left");
    CHECK(!Segment(left).attached());
    CHECK(Segment(left).attached());
    std::memset(cut.allocate({0, 0, 1}, 8), 1, 8);
    CHECK_THROWS(SegmentError, "is not a segment of Hotrow", Segment(folder.killed("used")));
  }
}

TEST(segment_of_a_killed_process_has_its_pieces_and_its_cut_pushes) {
  const Folder folder;
  Segment segment(folder.spec());
  std::memset(segment.allocate({5, 0, 2}, 3 << 20), 'k', 3 << 20);
  CHECK(segment.pushes().begin(11) == PushSeen::fresh);
  CHECK(segment.pushes().begin(12) == PushSeen::fresh);
  segment.pushes().finish(12);
  Segment attached(folder.killed("killed"));
  CHECK_EQ(attached.pieces().size(), 1u);
  CHECK_EQ(std::to_integer<char>(attached.pieces()[0].memory[(3 << 20) - 1]), 'k');
  CHECK(attached.pushes().begin(11) == PushSeen::partly);
  CHECK(attached.pushes().begin(12) == PushSeen::done);
  CHECK_EQ(attached.pushes().newest(), 12u);
}

TEST(segment_file_that_others_may_read_is_refused) {
  const Folder folder;
  make_two_pieces(folder);
  CHECK_EQ(chmod(folder.file().c_str(), 0640), 0);
  CHECK_THROWS(SegmentError, "has mode 0640", Segment(folder.spec()));
  CHECK_EQ(chmod(folder.file().c_str(), 0600), 0);
  CHECK(Segment(folder.spec()).attached());
}

struct Written {
  PieceTag tag;
  std::size_t bytes;
  int mark;
};

TEST(segment_equals_a_list_of_pieces_over_many_attaches) {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    const Folder folder;
    std::mt19937_64 random(seed);
    std::vector<Written> twin;
    for (int attach = 0; attach < 5; ++attach) {
      Segment segment(folder.spec());
      CHECK_EQ(segment.attached(), attach > 0);
      const auto found = segment.pieces();
      CHECK_EQ(found.size(), twin.size());
      for (std::size_t i = 0; i < twin.size(); ++i) {
        CHECK_EQ(found[i].tag.rows, twin[i].tag.rows);
        CHECK_EQ(found[i].bytes, twin[i].bytes);
        CHECK(std::all_of(found[i].memory, found[i].memory + found[i].bytes,
                          [&](std::byte byte) { return std::to_integer<int>(byte) == twin[i].mark; }));
      }
      for (int piece = 0; piece < 20; ++piece) {
        const std::size_t bytes = 1 + random() % (random() % 4 == 0 ? 600'000 : 3000);
        const PieceTag tag = {0, 0, static_cast<std::uint32_t>(random())};
        std::byte* memory = segment.allocate(tag, bytes);
        CHECK(zeroed(memory, bytes));
        twin.push_back({tag, bytes, 1 + static_cast<int>(random() % 255)});
        std::memset(memory, twin.back().mark, bytes);
      }
    }
  }
}

}  // namespace
}  // namespace hotrow::store
