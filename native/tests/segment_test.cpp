// store/segment.h by itself: pieces, growth, and what a later attach finds again.
#include "store/segment.h"

#include <random>

#include "tests/segment_files.h"

namespace hotrow::store {
namespace {

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
