#include "collective/fabric.h"

#include "collective/coded_operation.h"

namespace corro::collective {

std::unique_ptr<Operation> Fabric::start(uint64_t op, const OpRequest& request, bool published) {
  if (request.codec == nullptr) return start_plain(op, request, published);
  return make_coded_operation(request, size_, scratch_, [this, op](const OpRequest& small) {
    return start_plain(op, small, false);
  });
}

}  // namespace corro::collective
