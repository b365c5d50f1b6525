#include "transport/tcp_stream.h"

#include "transport/stream_conformance.h"
#include "transport/tcp_test_pair.h"

namespace corro::transport {
namespace {

StreamPair make(const std::string& host) {
  constexpr int kSocketBuffer = 64 << 10;  // Small: a full pipe is reached soon.
  TcpTestPair pair = connect_tcp_pair(host, kSocketBuffer);
  // A send and a receive buffer; the kernel doubles both, and counts its own overhead in.
  return {.first = std::move(pair.first),
          .second = std::move(pair.second),
          .capacity = 4 * 2 * static_cast<size_t>(kSocketBuffer)};
}

const auto kTcpMakers = testing::Values(StreamMaker{"v4", [] { return make("127.0.0.1"); }},
                                        StreamMaker{"v6", [] { return make("::1"); }});
INSTANTIATE_TEST_SUITE_P(Tcp, StreamConformance, kTcpMakers, maker_name);
INSTANTIATE_TEST_SUITE_P(Tcp, StreamWakeConformance, kTcpMakers, maker_name);
INSTANTIATE_TEST_SUITE_P(Tcp, EndpointConformance, kTcpMakers, maker_name);

}  // namespace
}  // namespace corro::transport
