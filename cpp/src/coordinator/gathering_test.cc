#include "coordinator/gathering.h"

#include <gtest/gtest.h>

namespace corro::coordinator {
namespace {

TEST(Gathering, WhoHasNotComeIsNamedAndOfManyTheFirst) {
  EXPECT_EQ(describe_absent({"worker-0", "worker-2"}),
            "still waiting for worker-0, worker-2; the log of each says what it cannot reach");
  std::vector<std::string> many;
  for (int worker = 0; worker < 30; ++worker) many.push_back("w" + std::to_string(worker));
  EXPECT_EQ(describe_absent(many),
            "still waiting for w0, w1, w2, w3, w4, w5, w6, w7 and 22 more; the log of each says "
            "what it cannot reach");
}

}  // namespace
}  // namespace corro::coordinator
