// Operations of more than 4 GiB: no size, offset or count on their way has 32 bits. Buffers repeat
// the same 2 MiB of memory, so the machine holds a few MiB; only their last page is one of its own.
#include <fcntl.h>
#include <sys/mman.h>

#include <array>

#include <gtest/gtest.h>

#include "io/memory.h"
#include "testing/world.h"

namespace corro::testing {
namespace {

using collective::OpRequest;

constexpr size_t kPatch = size_t{2} << 20U;
constexpr size_t kPage = 4096;
constexpr size_t kRepeated = size_t{4} << 30U;
constexpr size_t kBytes = kRepeated + kPage;

/// kBytes of address space over kPatch + kPage bytes of memory.
class HugeBuffer {
 public:
  HugeBuffer() : memory_(io::create_memfd("corro-test", kPatch + kPage).value()) {
    void* place =
        mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CORRO_CHECK(place != MAP_FAILED);
    data_ = static_cast<std::byte*>(place);
    for (size_t at = 0; at < kRepeated; at += kPatch) map(at, kPatch, 0);
    map(kRepeated, kPage, kPatch);
  }
  ~HugeBuffer() { munmap(data_, kBytes); }
  HugeBuffer(const HugeBuffer&) = delete;
  HugeBuffer& operator=(const HugeBuffer&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }
  /// Byte i of the repeated part, and of the last page.
  void fill() const {
    for (size_t i = 0; i < kPatch; ++i) data_[i] = patch(i);
    for (size_t i = 0; i < kPage; ++i) data_[kRepeated + i] = last(i);
  }
  /// Every byte is `times` what fill() writes.
  void expect(int times) const {
    const auto scaled = [times](std::byte b) {
      return static_cast<std::byte>(static_cast<int>(b) * times);
    };
    size_t wrong = 0;
    for (size_t i = 0; i < kPatch; ++i) wrong += data_[i] == scaled(patch(i)) ? 0 : 1;
    EXPECT_EQ(wrong, 0U) << "of what lies below 4 GiB";
    wrong = 0;
    for (size_t i = 0; i < kPage; ++i) wrong += data_[kRepeated + i] == scaled(last(i)) ? 0 : 1;
    EXPECT_EQ(wrong, 0U) << "of what lies above 4 GiB";
  }

 private:
  static std::byte patch(size_t i) { return static_cast<std::byte>(i % 101); }
  static std::byte last(size_t i) { return static_cast<std::byte>(102 + i % 23); }
  void map(size_t at, size_t bytes, size_t from) {
    void* mapped = mmap(data_ + at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                        memory_.get(), static_cast<off_t>(from));
    CORRO_CHECK(mapped == data_ + at, at);
  }
  io::Fd memory_;
  std::byte* data_ = nullptr;
};

class Huge : public ::testing::TestWithParam<bool> {
 protected:
  World world_{{.board = GetParam(), .stream_bytes = size_t{1} << 20U}};
};

TEST_P(Huge, ABroadcastOfMoreThan4GiBPutsEveryByteInItsPlace) {
  const HugeBuffer from;
  const HugeBuffer to;
  from.fill();
  const auto results = world_.run_all([&](int32_t r) {
    OpRequest request{.kind = OpKind::kBroadcast};
    request.input = r == 0 ? from.data() : nullptr;
    request.output = r == 0 ? from.data() : to.data();
    request.count = kBytes;
    return request;
  });
  for (const Status& result : results) EXPECT_TRUE(result.ok()) << result.to_string();
  to.expect(1);
}

TEST_P(Huge, AnAllreduceOfMoreThan4GiBFoldsEveryElement) {
  const HugeBuffer from;
  const std::array<HugeBuffer, 2> to;
  from.fill();
  const auto results = world_.run_all([&](int32_t r) {
    OpRequest request{.kind = OpKind::kAllreduce};
    request.input = from.data();
    request.output = to[static_cast<size_t>(r)].data();
    request.count = kBytes;
    return request;
  });
  for (const Status& result : results) EXPECT_TRUE(result.ok()) << result.to_string();
  for (const HugeBuffer& each : to) each.expect(2);
}

INSTANTIATE_TEST_SUITE_P(All, Huge, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "board" : "streams"; });

}  // namespace
}  // namespace corro::testing
