#include "store/segment.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/statfs.h>
#else
#include <sys/mount.h>  // where BSD and macOS declare statfs
#include <sys/param.h>
#endif

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "store/atomic_ref.h"

namespace hotrow::store {
namespace {

constexpr std::size_t kHugePage = 2 << 20;
constexpr std::size_t kFirstBlock = 2 << 20;
constexpr std::size_t kPieceMax = std::size_t{1} << 46;  // more than any file has, and sums with it cannot overflow
[[maybe_unused]] constexpr long kHugetlbfs = 0x958458f6;
constexpr int kReserveTries = 100;  // a signal interrupts a reservation, which then starts over

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw SegmentError("segment " + path + ": " + what);
}

bool on_hugetlbfs([[maybe_unused]] const struct statfs& system) {
#if defined(__linux__)
  return static_cast<std::uint32_t>(system.f_type) == static_cast<std::uint32_t>(kHugetlbfs);
#else
  return false;
#endif
}

// Give a part of a file memory or disk blocks; returns the error, as posix_fallocate does.
int allocate_blocks(int descriptor, off_t offset, off_t bytes) {
#if defined(__APPLE__)  // has no posix_fallocate, and F_PREALLOCATE leaves the length as it is
  struct stat found;
  if (fstat(descriptor, &found) != 0) return errno;
  if (found.st_size >= offset + bytes) return 0;
  fstore_t wanted = {F_ALLOCATEALL, F_PEOFPOSMODE, 0, offset + bytes - found.st_size, 0};
  if (fcntl(descriptor, F_PREALLOCATE, &wanted) != 0 || ftruncate(descriptor, offset + bytes) != 0) return errno;
  return 0;
#else
  return posix_fallocate(descriptor, offset, bytes);
#endif
}

// Granule of lengths and places in the file: 2 MB so that the system may use pages of that size, or the file system's.
std::size_t page_of(int descriptor, const SegmentSpec& spec) {
  struct statfs system;
  if (fstatfs(descriptor, &system) != 0) fail(spec.path, std::string("no file system, ") + std::strerror(errno));
  if (on_hugetlbfs(system)) return std::max<std::size_t>(static_cast<std::size_t>(system.f_bsize), kHugePage);
  if (spec.huge)
    fail(spec.path,
         "huge=True, but its directory is not on hugetlbfs: mount one (mount -t hugetlbfs none DIRECTORY) "
         "and name it, or leave huge away");
  return kHugePage;
}

[[noreturn]] void fail_room(const std::string& path, int descriptor, std::uint64_t bytes, int error) {
  const std::string more = std::to_string(bytes >> 10) + " KiB more";
  struct statfs system;
  if (fstatfs(descriptor, &system) != 0) fail(path, "no room for " + more + ", " + std::strerror(error));
  if (on_hugetlbfs(system))
    fail(path, "no free huge pages for " + more + ": raise /proc/sys/vm/nr_hugepages, or lower the table's capacity");
  const std::uint64_t left = static_cast<std::uint64_t>(system.f_bavail) * static_cast<std::uint64_t>(system.f_bsize);
  fail(path, "no room for " + more + ", the file system has " + std::to_string(left >> 10) + " KiB left (" +
                 std::strerror(error) + "): make room, lower the table's capacity, or choose another directory");
}

}  // namespace

Segment::Mapping::~Mapping() {
  if (address != nullptr) munmap(address, bytes);
}

Segment::Segment(const SegmentSpec& spec) : spec_(spec), file_(spec.path) {
  const bool fresh = never_used(file_.descriptor(), file_.bytes());
  try {
    page_ = page_of(file_.descriptor(), spec_);
    fresh ? create() : attach();
  } catch (...) {
    file_.release(fresh);  // what nobody can use yet is not left behind
    throw;
  }
}

Segment::~Segment() { give_up(!spec_.keep && (!attached_ || taken_over_)); }

void Segment::close() noexcept { give_up(!spec_.keep); }

void Segment::leave() noexcept { give_up(false); }

void Segment::give_up(bool remove) noexcept {
  if (file_.in_child()) {  // another thread may have held the mutex at the fork, and nobody here will ever give it back
    file_.release(false);
    closed_ = true;
    return;
  }
  const std::lock_guard held(mutex_);
  if (closed_) return;
  if (!remove) header_->owner = 0;  // kept on purpose, not left behind
  file_.release(remove);
  closed_ = true;
}

std::size_t Segment::bytes() const {
  const std::lock_guard held(mutex_);
  return file_bytes_;
}

void Segment::create() {
  if (ftruncate(file_.descriptor(), 0) != 0)
    fail(spec_.path, std::string("cannot be emptied, ") + std::strerror(errno));
  const std::size_t first = padded(kFirstBlock, page_);
  reserve(0, first);
  std::byte* start = map(0, first);
  header_ = reinterpret_cast<SegmentHeader*>(start);
  file_bytes_ = header_->file_bytes = first;
  header_->owner = static_cast<std::uint32_t>(getpid());
  free_ = start + kPiecesAt;
  free_offset_ = kPiecesAt;
  free_bytes_ = first - kPiecesAt;
  open_pushes();
  write_header(*header_, spec_.path, spec_.identity);  // last: from here on the file is a segment
}

void Segment::attach() {
  const std::uint64_t size = file_.bytes();
  const SegmentHeader header = read_header(file_.descriptor(), size, spec_.path);
  check_identity(spec_.path, identity_of(header), spec_.identity);
  const Contents contents = read_contents(file_.descriptor(), size, header.pieces, spec_.path);
  file_bytes_ = padded(size, page_);
  reserve(0, file_bytes_);  // fills holes too, which a copied file may have
  std::byte* start = map(0, file_bytes_);
  header_ = reinterpret_cast<SegmentHeader*>(start);
  header_->file_bytes = file_bytes_;
  header_->pieces = static_cast<std::uint32_t>(contents.pieces.size());  // the last may not have been counted
  header_->owner = static_cast<std::uint32_t>(getpid());
  for (const FoundPiece& piece : contents.pieces)
    found_.push_back({piece.tag, start + piece.offset, static_cast<std::size_t>(piece.bytes)});
  free_ = start + contents.end;
  free_offset_ = contents.end;
  free_bytes_ = file_bytes_ - contents.end;
  if (free_bytes_ >= kPieceAlign) std::memset(free_, 0, kPieceAlign);  // a header that was never finished
  open_pushes();
  attached_ = true;
}

void Segment::open_pushes() {
  auto* entries = reinterpret_cast<std::uint64_t*>(reinterpret_cast<std::byte*>(header_) + kHeaderBytes);
  pushes_.emplace(std::span(entries, PushLog::kEntries));
}

std::byte* Segment::allocate(const PieceTag& tag, std::size_t bytes) {
  if (bytes == 0 || bytes > kPieceMax) fail(spec_.path, "a piece of " + std::to_string(bytes) + " bytes cannot be");
  const std::size_t room = kPieceAlign + padded(bytes, kPieceAlign);
  const std::lock_guard held(mutex_);
  if (closed_) fail(spec_.path, "is closed");
  if (room > free_bytes_) add_block(room);
  std::byte* piece = free_ + kPieceAlign;
  write_piece(*reinterpret_cast<PieceHeader*>(free_), free_offset_, PieceKind::piece, tag, bytes);
  atomic_ref(header_->pieces).fetch_add(1, std::memory_order_release);
  free_ += room;
  free_offset_ += room;
  free_bytes_ -= room;
  return piece;
}

// Killed anywhere in here, the process leaves a file whose end is zero: the next one finds it with a longer last block.
void Segment::add_block(std::size_t room) {
  const std::size_t doubling = std::clamp<std::size_t>(file_bytes_, kFirstBlock, kBlockMax);
  std::size_t block = padded(std::max(doubling, room), page_);
  if (try_reserve(file_bytes_, block) != 0) {  // where the file system is nearly full, what is needed and no more
    block = padded(room, page_);
    reserve(file_bytes_, block);
  }
  std::byte* start = nullptr;
  try {
    start = map(file_bytes_, block);
  } catch (...) {
    shrink(file_bytes_);
    throw;
  }
  atomic_ref(header_->file_bytes).store(file_bytes_ + block, std::memory_order_release);
  if (free_bytes_ > 0)  // a piece does not cross blocks
    write_piece(*reinterpret_cast<PieceHeader*>(free_), free_offset_, PieceKind::gap, {}, free_bytes_ - kPieceAlign);
  free_ = start;
  free_offset_ = file_bytes_;
  free_bytes_ = block;
  file_bytes_ += block;
}

// A file that stays longer than needed is not wrong, so a refusal is no fault.
void Segment::shrink(std::uint64_t bytes) {
  [[maybe_unused]] const int refused = ftruncate(file_.descriptor(), static_cast<off_t>(bytes));
}

// Memory for this part of the file, now: a touch of a page that the file system cannot provide would be a SIGBUS.
void Segment::reserve(std::uint64_t offset, std::uint64_t bytes) {
  if (const int error = try_reserve(offset, bytes); error != 0) fail_room(spec_.path, file_.descriptor(), bytes, error);
}

int Segment::try_reserve(std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t before = file_.bytes();
  int error = EINTR;
  for (int tries = 0; error == EINTR && tries < kReserveTries; ++tries)
    error = allocate_blocks(file_.descriptor(), static_cast<off_t>(offset), static_cast<off_t>(bytes));
  if (error != 0) shrink(before);
  return error;
}

// At an address that is a multiple of the page, so that the system may use huge pages.
std::byte* Segment::map(std::uint64_t offset, std::size_t bytes) {
  mappings_.reserve(mappings_.size() + 1);
  const std::size_t reserved = bytes + page_;
  void* place = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) fail(spec_.path, std::string("no address space, ") + std::strerror(errno));
  mappings_.emplace_back(place, reserved);
  auto* start = reinterpret_cast<std::byte*>(padded(reinterpret_cast<std::uintptr_t>(place), page_));
  void* mapped = mmap(start, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file_.descriptor(),
                      static_cast<off_t>(offset));
  if (mapped == MAP_FAILED) {
    const int error = errno;
    mappings_.pop_back();
    fail(spec_.path, std::string("cannot be mapped, ") + std::strerror(error));
  }
#if defined(MADV_HUGEPAGE)
  madvise(start, bytes, MADV_HUGEPAGE);  // a wish: without huge pages the table is slower, not wrong
#endif
  return start;
}

}  // namespace hotrow::store
