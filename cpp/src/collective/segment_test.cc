#include "collective/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace corro::collective {
namespace {

TEST(Segment, APeersSegmentShowsWhatItsOwnerWrites) {
  const auto own = Segment::create(size_t{1} << 20U).value();
  const auto seen = Segment::attach(io::Fd(::dup(own->fd()))).value();
  EXPECT_EQ(seen->bytes(), own->bytes());
  own->header().sleeping.store(kAsleep);
  EXPECT_EQ(seen->header().sleeping.load(), kAsleep);
  std::byte* memory = own->allocate(100).value();
  memory[99] = std::byte{7};
  EXPECT_EQ(*seen->at(own->offset_of(memory, 100).value() + 99, 1), std::byte{7});
}

/// Its owner could cut it short under the reader, who would die of SIGBUS.
TEST(Segment, UnsealedMemoryOfAPeerIsRefused) {
  io::Fd fd(memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(fd.get(), 1 << 30), 0);
  EXPECT_EQ(Segment::attach(std::move(fd)).status().code(), Code::kPermissionDenied);
}

TEST(Segment, MemoryOfAnotherKindIsRefused) {
  io::Fd large = io::create_memfd("other", size_t{1} << 30U).value();
  EXPECT_EQ(Segment::attach(std::move(large)).status().code(), Code::kDataLoss);
  io::Fd small = io::create_memfd("other", 4096).value();
  EXPECT_EQ(Segment::attach(std::move(small)).status().code(), Code::kDataLoss);
}

}  // namespace
}  // namespace corro::collective
