#include "launch/rank_input.h"

namespace corro::launch {

void RankInput::send() {
  if (const auto bytes = input_.read()) {
    const agent::Input input{.bytes = *bytes, .ends = bytes->empty()};
    job_.agents.send(job_.course.host_of(0), {job_.course.subject(0), input});
  }
}

}  // namespace corro::launch
