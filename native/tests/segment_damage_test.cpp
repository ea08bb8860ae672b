// store/segment.h by itself: files that are cut, damaged or another's are refused in a sentence, and left as they are.
#include "store/segment.h"
#include "tests/segment_files.h"

namespace hotrow::store {
namespace {

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

}  // namespace
}  // namespace hotrow::store
