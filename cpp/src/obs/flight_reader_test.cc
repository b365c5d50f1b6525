#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "obs/flight_layout.h"
#include "obs/flight_recorder.h"

namespace corro::obs {
namespace {

/// A memfd with the given bytes, sealed as a recorder's would be unless told otherwise.
class Memory {
 public:
  explicit Memory(const std::vector<std::byte>& bytes, bool sealed = true)
      : fd_(memfd_create("foreign", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    EXPECT_EQ(write(fd_, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    if (sealed) {
      EXPECT_EQ(fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    }
  }
  ~Memory() { close(fd_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
};

/// The bytes of a real recorder with four operations.
std::vector<std::byte> real_bytes() {
  auto recorder = std::move(FlightRecorder::create({.rank = 1, .size = 2, .capacity = 4})).value();
  for (uint64_t i = 0; i < 4; ++i) recorder->end(recorder->begin({.op_id = i}), Code::kOk);
  std::vector<std::byte> bytes(flight_bytes(4));
  EXPECT_EQ(pread(recorder->fd(), bytes.data(), bytes.size(), 0),
            static_cast<ssize_t>(bytes.size()));
  return bytes;
}

template <typename T>
std::vector<std::byte> with(std::vector<std::byte> bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
  return bytes;
}

constexpr size_t kSecond = kFlightRecordsAt + sizeof(FlightRecord);
constexpr size_t kWhat = kSecond + 3 * sizeof(uint64_t);
constexpr size_t kState = kSecond + 5 * sizeof(uint64_t);

TEST(ReadFlight, ReadsAnHonestCopy) {
  const auto snapshot = read_flight(Memory(real_bytes()).fd());
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().to_string();
  EXPECT_EQ(snapshot->rank, 1);
  EXPECT_EQ(snapshot->recent.size(), 4U);
}

TEST(ReadFlight, RefusesMemoryThatItsOwnerCouldCutOff) {
  const auto snapshot = read_flight(Memory(real_bytes(), false).fd());
  EXPECT_EQ(snapshot.status().code(), Code::kDataLoss);
  EXPECT_NE(snapshot.status().message().find("sealed"), std::string::npos);
}

TEST(ReadFlight, RefusesWhatIsNoMemfd) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_FALSE(read_flight(ends[0]).ok());
  EXPECT_FALSE(read_flight(-1).ok());
  close(ends[0]);
  close(ends[1]);
}

TEST(ReadFlight, RefusesEveryTruncation) {
  const auto whole = real_bytes();
  for (size_t size = 0; size < whole.size(); size += 16) {
    const std::vector<std::byte> part(whole.begin(),
                                      whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_EQ(read_flight(Memory(part).fd()).status().code(), Code::kDataLoss) << size;
  }
}

TEST(ReadFlight, RefusesACapacityThatLies) {
  for (const uint32_t capacity : {0U, 3U, 8U, 1U << 16U, 1U << 31U, ~0U}) {
    const Memory memory(with(real_bytes(), offsetof(FlightHeader, capacity), capacity));
    EXPECT_EQ(read_flight(memory.fd()).status().code(), Code::kDataLoss) << capacity;
  }
}

TEST(ReadFlight, RefusesAnotherFormat) {
  const Memory memory(with(real_bytes(), 0, uint64_t{0}));
  EXPECT_EQ(read_flight(memory.fd()).status().code(), Code::kDataLoss);
}

TEST(ReadFlight, RefusesAnotherVersionAndSaysSo) {
  const Memory memory(with(real_bytes(), 7, '1'));
  const Status refused = read_flight(memory.fd()).status();
  EXPECT_EQ(refused.code(), Code::kDataLoss);
  EXPECT_NE(refused.message().find("another release"), std::string::npos) << refused.message();
}

TEST(ReadFlight, LeavesOutRecordsThatNoWriterStores) {
  const std::vector<std::vector<std::byte>> broken = {
      with(real_bytes(), kSecond, uint64_t{0}),  // being filled
      with(real_bytes(), kSecond, uint64_t{1}),  // belongs to another slot
      with(real_bytes(), kSecond, uint64_t{6}),  // newer than the newest
      with(real_bytes(), kWhat, uint8_t{kOpKindCount}),
      with(real_bytes(), kWhat + 1, uint8_t{kDTypeCount}),
      with(real_bytes(), kWhat + 2, uint8_t{kReduceOpCount}),
      with(real_bytes(), kState, uint8_t{9}),        // phase
      with(real_bytes(), kState + 1, uint8_t{17})};  // code
  for (size_t i = 0; i < broken.size(); ++i) {
    const auto snapshot = read_flight(Memory(broken[i]).fd());
    ASSERT_TRUE(snapshot.ok());
    EXPECT_EQ(snapshot->recent.size(), 3U) << "case " << i;
  }
}

TEST(ReadFlight, LeavesOutValuesThatNoWriterStores) {
  auto recorder = std::move(FlightRecorder::create({.capacity = 4})).value();
  const std::vector<NamedValue> values = {{"loss", 1}, {"accuracy", 2}};
  ASSERT_TRUE(recorder->steps().log(1, values).ok());
  std::vector<std::byte> bytes(flight_bytes(4));
  ASSERT_EQ(pread(recorder->fd(), bytes.data(), bytes.size(), 0), std::ssize(bytes));
  constexpr size_t kFirst = kFlightLoggedAt + offsetof(FlightLogged, cells);
  constexpr size_t kName = kFirst + offsetof(LoggedCell, name);
  const std::vector<std::vector<std::byte>> broken = {
      with(bytes, kFirst, uint64_t{0}), with(bytes, kFirst, uint64_t{3}),  // its writer was killed
      with(bytes, kName, '\0'), with(bytes, kName, '\n'), with(bytes, kName, '\xff')};
  for (size_t i = 0; i < broken.size(); ++i) {
    const auto snapshot = read_flight(Memory(broken[i]).fd());
    ASSERT_TRUE(snapshot.ok());
    ASSERT_EQ(snapshot->logged.size(), 1U) << "case " << i;
    EXPECT_EQ(snapshot->logged[0].name, "accuracy");
  }
}

TEST(ReadFlight, GarbageNeverDoesMoreThanFail) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    auto bytes = real_bytes();
    for (int i = 0; i < 40; ++i) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    const auto snapshot = read_flight(Memory(bytes).fd());
    if (snapshot.ok()) {
      EXPECT_LE(snapshot->recent.size(), 4U);
    }
  }
}

TEST(ReadFlightOf, FindsTheRecorderOfAProcess) {
  EXPECT_EQ(read_flight_of(getpid()).status().code(), Code::kNotFound);
  auto recorder = std::move(FlightRecorder::create({.rank = 3, .size = 4})).value();
  const auto snapshot = read_flight_of(getpid());
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().to_string();
  EXPECT_EQ(snapshot->rank, 3);
}

TEST(ReadFlightOf, SaysThatAProcessDoesNotExist) {
  const auto snapshot = read_flight_of(0x7FFFFFFF);
  EXPECT_EQ(snapshot.status().code(), Code::kNotFound);
  EXPECT_NE(snapshot.status().message().find("2147483647"), std::string::npos);
}

}  // namespace
}  // namespace corro::obs
