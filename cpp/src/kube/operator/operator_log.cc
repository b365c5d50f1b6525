#include "kube/operator/operator_log.h"

#include <fmt/format.h>

#include "base/unix_time.h"
#include "kube/client/json.h"

namespace corro::kube {

void OperatorLog::write(std::string_view level, std::string_view what, const Json& fields) {
  nlohmann::ordered_json line;
  line["time"] = rfc3339_micro(wall_now());
  line["level"] = level;
  line["what"] = what;
  for (const auto& [name, value] : fields.items()) line[name] = value;
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  const std::scoped_lock held(mutex_);
  std::fwrite(text.data(), 1, text.size(), file_);
  std::fflush(file_);
}

}  // namespace corro::kube
