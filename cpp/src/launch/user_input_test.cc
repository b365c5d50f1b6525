#include "launch/user_input.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "agent/messages.h"

namespace corro::launch {
namespace {

/// Puts something else in the place of standard input.
class StandardInput {
 public:
  explicit StandardInput(int fd) : before_(dup(STDIN_FILENO)) { dup2(fd, STDIN_FILENO); }
  ~StandardInput() { dup2(before_.get(), STDIN_FILENO); }
  StandardInput(const StandardInput&) = delete;
  StandardInput& operator=(const StandardInput&) = delete;

 private:
  io::Fd before_;
};

/// The launcher's loop around it.
struct Reader {
  io::Loop loop = io::Loop::create().value();
  UserInput input{loop};
  bool readable = false;
  std::string bytes = {};
  bool ended = false;

  Reader() {
    input.start([this] { readable = true; });
  }
  /// Has something to do without anybody's word.
  [[nodiscard]] bool ready() {
    readable = input.is_file();
    loop.turn(Time{});
    return readable;
  }
  void read_all() {
    while (ready()) {
      const auto read = input.read();
      ended = ended || (read && read->empty());
      bytes += read.value_or("");
    }
  }
};

/// Text of which no two pieces are alike.
std::string long_text(size_t size) {
  std::string text;
  while (text.size() < size) text += std::to_string(text.size()) + "\n";
  text.resize(size);
  return text;
}

/// Writes into a pipe until it takes nothing more; removes what was written.
bool feed(int fd, std::string_view& rest) {
  const ssize_t count = write(fd, rest.data(), rest.size());
  if (count > 0) rest.remove_prefix(static_cast<size_t>(count));
  return count > 0;
}

TEST(UserInput, WhoWritesWaitsUntilTheRankHasTakenWhatWasRead) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  io::Fd from(ends[0]);
  io::Fd to(ends[1]);
  fcntl(to.get(), F_SETFL, O_NONBLOCK);
  const StandardInput replaced(from.get());
  const std::string text = long_text(size_t{64} << 20U);
  std::string_view rest = text;
  Reader reader;
  while (!rest.empty() && feed(to.get(), rest)) reader.read_all();
  EXPECT_LT(reader.bytes.size(), 2 * agent::kInputCredit);
  EXPECT_LT(text.size() - rest.size(), 3 * agent::kInputCredit) << "a pipe holds little";
  EXPECT_FALSE(reader.ready()) << "it would be asked again and again";

  size_t taken = 0;
  while (!reader.ended) {
    reader.input.take(reader.bytes.size() - taken);
    taken = reader.bytes.size();
    reader.read_all();
    (void)feed(to.get(), rest);
    if (rest.empty()) to.reset();
  }
  EXPECT_TRUE(reader.bytes == text);
}

TEST(UserInput, AFileIsReadAsFarAsTheRankTakesIt) {
  std::string name = ::testing::TempDir() + "input-XXXXXX";
  const io::Fd file(mkstemp(name.data()));
  ASSERT_TRUE(file.valid());
  unlink(name.c_str());
  const std::string text = long_text(3 * agent::kInputCredit);
  ASSERT_EQ(write(file.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  lseek(file.get(), 0, SEEK_SET);
  const StandardInput replaced(file.get());
  Reader reader;
  reader.read_all();
  EXPECT_LT(reader.bytes.size(), 2 * agent::kInputCredit);
  EXPECT_FALSE(reader.ended);
  while (!reader.ended) {
    reader.input.take(agent::kInputCredit);
    reader.read_all();
  }
  EXPECT_TRUE(reader.bytes == text);
}

}  // namespace
}  // namespace corro::launch
