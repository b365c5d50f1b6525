#include "coordinator/tls_reception.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/job_secret.h"

namespace corro::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

class TlsReceptionTest : public testing::Test {
 protected:
  TlsReceptionTest() {
    secret_.fill(std::byte{7});
    reception_ = TlsReception::create({.listen = io::SocketAddress::parse("127.0.0.1:0").value(),
                                       .find_key = keys_of_agents(secret_),
                                       .version = "1.2"})
                     .value();
    EXPECT_TRUE(reception_
                    ->watch(loop_,
                            [this](launch::Reception::Dialled dialled) {
                              dialled_.push_back(std::move(dialled));
                            })
                    .ok());
  }

  /// One that proves to be the agent of a host.
  agent::MessagePipe dial(const std::string& host, const wire::Secret& secret) const {
    const auto address = io::SocketAddress::parse(reception_->address()).value();
    const auto tls = secure::Tls::client(identity_of(host), key_of(secret, host)).value();
    return agent::MessagePipe(tls.open(io::connect_tcp(address).value()).value());
  }
  static agent::Message hello(const std::string& host, int slots = 1,
                              const std::string& corro = "1.2") {
    agent::Hello hello{.corro = corro, .host = host};
    hello.slots = slots;
    return {{}, hello};
  }
  /// Lets both sides speak.
  void turn(agent::MessagePipe& pipe) {
    for (int i = 0; i < 20; ++i) {
      pipe.flush();
      (void)pipe.read();
      loop_.turn(monotonic_now() + milliseconds(10));
      reception_->tick(monotonic_now());
    }
  }
  std::string refusal_of(agent::MessagePipe& pipe) {
    turn(pipe);
    const auto answer = pipe.take();
    if (!answer) return "";
    const auto* refused = std::get_if<agent::Refused>(&answer->body);
    return refused == nullptr ? "it is something else" : refused->why;
  }

  wire::Secret secret_{};
  io::Loop loop_ = io::Loop::create().value();
  std::unique_ptr<TlsReception> reception_;
  std::vector<launch::Reception::Dialled> dialled_;
};

TEST_F(TlsReceptionTest, GivesAConnectionOnWithWhatComesAfterHello) {
  agent::MessagePipe pipe = dial("node1", secret_);
  pipe.send(hello("node1", 4));
  turn(pipe);
  ASSERT_EQ(dialled_.size(), 1U);
  EXPECT_EQ(dialled_[0].hello.host, "node1");
  EXPECT_EQ(dialled_[0].hello.slots, 4);
  dialled_[0].pipe.send({{}, agent::Lead{.term = 9}});
  turn(pipe);
  const auto answer = pipe.take();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(std::get<agent::Lead>(answer->body).term, 9U);
}

TEST_F(TlsReceptionTest, WhoHasAnotherSecretIsNotHeard) {
  wire::Secret other = secret_;
  other[0] = std::byte{8};
  agent::MessagePipe pipe = dial("node1", other);
  pipe.send(hello("node1"));
  turn(pipe);
  EXPECT_TRUE(dialled_.empty());
  EXPECT_EQ(pipe.failure().code(), Code::kUnauthenticated);
}

TEST_F(TlsReceptionTest, WhoCannotBeTakenIsToldWhy) {
  agent::MessagePipe liar = dial("node1", secret_);
  liar.send(hello("node2"));
  EXPECT_THAT(refusal_of(liar), HasSubstr("another host's agent"));
  agent::MessagePipe old = dial("node1", secret_);
  old.send(hello("node1", 1, "1.1"));
  EXPECT_THAT(refusal_of(old), HasSubstr("it has corro 1.1, the coordinator 1.2"));
  agent::MessagePipe empty = dial("node1", secret_);
  empty.send(hello("node1", 0));
  EXPECT_THAT(refusal_of(empty), HasSubstr("no slots"));
  agent::MessagePipe early = dial("node1", secret_);
  early.send(hello("node1"));
  turn(early);
  ASSERT_EQ(dialled_.size(), 1U);
  reception_->refuse(std::move(dialled_[0]), {Code::kUnavailable, "waiting for agents"});
  EXPECT_EQ(refusal_of(early), "waiting for agents");
}

TEST_F(TlsReceptionTest, WhoSaysNothingIsClosedAfterAWhile) {
  agent::MessagePipe pipe = dial("node1", secret_);
  turn(pipe);
  ASSERT_FALSE(pipe.ended());
  EXPECT_LE(reception_->due(), monotonic_now() + seconds(10));
  reception_->tick(monotonic_now() + seconds(10));
  turn(pipe);
  EXPECT_TRUE(pipe.ended());
  EXPECT_EQ(reception_->due(), Time::never());
}

}  // namespace
}  // namespace corro::coordinator
