#include "agent/commander.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

namespace corro::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

/// An agent's side, and coordinators that answer at two addresses.
class CommanderTest : public testing::Test {
 protected:
  CommanderTest() {
    EXPECT_TRUE(commander_.watch(loop_, [this] { (void)commander_.read(); }).ok());
  }

  Commander::Dialling dialling() {
    return {.addresses = {"10.0.0.1:7078", "10.0.0.2:7078"},
            .dial = [this](size_t address) -> Result<MessagePipe> {
              dialled_.push_back(address);
              if (away_) return Status(Code::kUnavailable, "nobody is there");
              int ends[2];
              EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
              there_.emplace(io::Fd(ends[1]));
              return MessagePipe(io::Fd(ends[0]));
            },
            .note = [this](const std::string& line) { notes_.push_back(line); },
            .host = "node1",
            .slots = 2,
            .patience = seconds(60)};
  }
  void tick(Duration later = {}) {
    now_ = now_ + later;
    commander_.tick({{}, Hello{.corro = "1", .host = "node1"}}, now_);
    commander_.flush_on(loop_);
    loop_.turn(Time{});
  }
  /// What the coordinator hears.
  std::vector<Message> heard() {
    std::vector<Message> all;
    (void)there_->read();
    while (auto message = there_->take()) all.push_back(std::move(*message));
    return all;
  }
  static Message output(const std::string& bytes) { return {{}, Output{.bytes = bytes}}; }

  io::Loop loop_ = io::Loop::create().value();
  bool away_ = false;
  std::optional<MessagePipe> there_;
  std::vector<size_t> dialled_;
  std::vector<std::string> notes_;
  Time now_{std::chrono::hours(1)};
  Commander commander_{dialling()};
};

TEST_F(CommanderTest, DialsOneAddressAfterAnotherAndSaysWhatIsNewOfEach) {
  away_ = true;
  tick();
  tick(milliseconds(100));
  EXPECT_THAT(dialled_, ElementsAre(0));
  for (int i = 0; i < 3; ++i) tick(kDialPause);
  EXPECT_THAT(dialled_, ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(notes_, ElementsAre("coordinator 10.0.0.1:7078: nobody is there",
                                  "coordinator 10.0.0.2:7078: nobody is there"));
}

TEST_F(CommanderTest, KeepsWhatRanksPrintAndNothingElseUntilOneLeads) {
  commander_.send(output("early "));
  commander_.send({{}, Joined{}});
  tick();
  commander_.send(output("words"));
  ASSERT_EQ(heard().size(), 1U) << "HELLO";
  EXPECT_FALSE(commander_.met());
  commander_.meet(3);
  EXPECT_EQ(commander_.send_kept(), 11U);
  commander_.send({{}, Joined{}});
  const auto all = heard();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(std::get<Output>(all[0].body).bytes, "early ");
  EXPECT_EQ(std::get<Output>(all[1].body).bytes, "words");
  EXPECT_TRUE(std::holds_alternative<Joined>(all[2].body));
  EXPECT_EQ(commander_.send_kept(), 0U);
}

TEST_F(CommanderTest, OfTooMuchOutputTheEndIsKeptAndItIsSaidHowMuchIsLost) {
  const std::string piece(kMaxOutputBytes, 'x');
  for (size_t sent = 0; sent < kOutputCredit; sent += piece.size()) commander_.send(output(piece));
  commander_.send(output("the end"));
  tick();
  (void)heard();
  commander_.meet(1);
  EXPECT_EQ(commander_.send_kept(), kOutputCredit - piece.size() + 7);
  std::vector<Message> all;
  while (all.empty() || !std::holds_alternative<Output>(all.back().body) ||
         std::get<Output>(all.back().body).bytes != "the end") {
    commander_.flush_on(loop_);
    for (Message& message : heard()) all.push_back(std::move(message));
  }
  EXPECT_THAT(std::get<Trouble>(all.at(0).body).text, HasSubstr("65536 bytes"));
}

TEST_F(CommanderTest, OneThatEndsOrDoesNotAnswerIsGone) {
  tick();
  tick(seconds(2));
  EXPECT_EQ(dialled_.size(), 1U);
  tick(seconds(1));
  EXPECT_THAT(notes_, ElementsAre("coordinator 10.0.0.1:7078: it does not answer"));
  tick(kDialPause);
  EXPECT_THAT(dialled_, ElementsAre(0, 1));
  commander_.meet(1);
  tick(seconds(100));
  EXPECT_TRUE(commander_.met()) << "how long it may be silent, others know";
  there_.reset();
  tick();
  tick();
  EXPECT_FALSE(commander_.met());
  EXPECT_EQ(commander_.due(), now_ + kDialPause);
}

TEST_F(CommanderTest, OneThatTakesItLaterIsDialledAgainAndOthersAreNot) {
  tick();
  commander_.refuse("waiting for agents", /*waits=*/true, now_);
  tick(kDialPause);
  EXPECT_THAT(dialled_, ElementsAre(0));
  tick(kRefusedPause - kDialPause);
  EXPECT_THAT(dialled_, ElementsAre(0, 0));
  commander_.refuse("another one of that name is there", /*waits=*/false, now_);
  tick(kRefusedPause);
  EXPECT_THAT(dialled_, ElementsAre(0, 0, 1));
}

}  // namespace
}  // namespace corro::agent
