#include "launch/arrivals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::launch {
namespace {

using testing::HasSubstr;

AgentLink host(size_t number, std::vector<std::string> addresses) {
  AgentLink link{.host = number, .name = "node" + std::to_string(number)};
  link.survey.emplace();
  link.survey->here.addresses = std::move(addresses);
  return link;
}

void reach(AgentLink& from, const AgentLink& to, const std::string& address) {
  if (!from.routes) from.routes.emplace();
  from.routes->push_back({.host = static_cast<int32_t>(to.host), .address = address});
}

TEST(Arrivals, TheAddressIsOneThatAllOthersHaveReached) {
  const AgentLink comes = host(2, {"172.17.0.1", "10.0.0.2", "10.1.0.2"});
  AgentLink a = host(0, {});
  AgentLink b = host(1, {});
  for (const char* address : {"172.17.0.1", "10.1.0.2"}) reach(a, comes, address);
  for (const char* address : {"10.0.0.2", "10.1.0.2"}) reach(b, comes, address);
  EXPECT_EQ(choose_address(comes, {&a, &b}).value(), "10.1.0.2");
  EXPECT_EQ(choose_address(comes, {&b}).value(), "10.0.0.2") << "the best guess first";
}

TEST(Arrivals, AHostThatIsNotReachedSaysSo) {
  const AgentLink comes = host(2, {"10.0.0.2"});
  AgentLink a = host(0, {});
  a.routes.emplace();
  EXPECT_THAT(choose_address(comes, {&a}).status().message(), HasSubstr("do not reach it"));
}

}  // namespace
}  // namespace corro::launch
