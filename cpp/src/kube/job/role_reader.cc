#include <fmt/format.h>

#include "kube/job/job_readers.h"

namespace corro::kube {
namespace {

/// A list of texts, or a list of objects with a name; what the API server itself would refuse.
void check_list(const Json& container, std::string_view field, bool of_texts,
                const std::string& path, Problems& problems) {
  const auto found = container.find(field);
  if (found == container.end() || found->is_null()) return;
  const bool fits =
      found->is_array() && std::all_of(found->begin(), found->end(), [&](const Json& item) {
        return of_texts ? item.is_string() : item.is_object();
      });
  if (fits) return;
  problems.push_back({fmt::format("{}.{}", path, field),
                      of_texts ? "must be a list of texts" : "must be a list of objects"});
}

void check_container(const Json& container, const std::string& path, Problems& problems) {
  if (!container.is_object()) return problems.push_back({path, "must be an object"});
  FieldReader fields(container, path, problems);
  if (fields.text("name").empty()) fields.fail("name", "is missing");
  check_list(container, "command", true, path, problems);
  check_list(container, "args", true, path, problems);
  check_list(container, "env", false, path, problems);
  check_list(container, "volumeMounts", false, path, problems);
  FieldReader resources = fields.object("resources");
  (void)resources.object("limits");
  (void)resources.object("requests");
}

void check_metadata(FieldReader& pod_template) {
  FieldReader metadata = pod_template.object("metadata");
  (void)metadata.object("labels");
  (void)metadata.object("annotations");
}

}  // namespace

Role read_role(FieldReader& fields, Problems& problems) {
  Role role;
  const size_t before = problems.size();
  const Json* pod_template = fields.require("template");
  if (pod_template == nullptr) return role;
  FieldReader reader(*pod_template, fields.path_of("template"), problems);
  check_metadata(reader);
  FieldReader spec = reader.object("spec");
  const Json* containers = spec.require("containers");
  if (containers == nullptr) return role;
  if (!containers->is_array() || containers->empty()) {
    spec.fail("containers", "must be a list of at least one container");
    return role;
  }
  for (size_t i = 0; i < containers->size() && problems.size() < kMostProblems; ++i)
    check_container((*containers)[i], fmt::format("{}[{}]", spec.path_of("containers"), i),
                    problems);
  const std::string path = spec.path_of("");
  check_list((*pod_template)["spec"], "initContainers", false, path, problems);
  check_list((*pod_template)["spec"], "volumes", false, path, problems);
  (void)spec.object("dnsConfig");
  role.template_has_restart_policy = spec.has("restartPolicy");
  if (problems.size() == before) role.pod_template = *pod_template;
  return role;
}

std::optional<std::chrono::seconds> read_seconds(FieldReader& fields, std::string_view field,
                                                 int64_t least) {
  const auto value = fields.integer(field, {least, INT32_MAX});
  if (!value) return {};
  return std::chrono::seconds(*value);
}

}  // namespace corro::kube
