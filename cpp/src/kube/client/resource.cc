#include "kube/client/resource.h"

#include <fmt/format.h>

namespace corro::kube {
namespace {

constexpr std::string_view kUnreserved =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";

/// RBAC's names have colons; nothing has slashes, and dots alone are folders.
bool is_segment(std::string_view text) {
  return !text.empty() && text.size() <= 253 && text != "." && text != ".." &&
         text.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._:") ==
             std::string_view::npos;
}

}  // namespace

std::string describe(const ResourceType& type, const ObjectKey& key) {
  std::string text(type.plural);
  if (!type.group.empty()) text += fmt::format(".{}", type.group);
  if (key.name.empty()) return key.space.empty() ? text : text + " of " + key.space;
  return text + " " + (key.space.empty() ? key.name : key.space + "/" + key.name);
}

Result<std::string> path_of(const ResourceType& type, const ObjectKey& key,
                            std::string_view subresource) {
  const auto refuse = [&](std::string_view what) {
    return Status(Code::kInvalidArgument, fmt::format("{}: {}", type.plural, what));
  };
  std::string path = type.group.empty() ? fmt::format("/api/{}", type.version)
                                        : fmt::format("/apis/{}/{}", type.group, type.version);
  if (type.is_namespaced && !key.space.empty()) {
    if (!is_segment(key.space)) return refuse("the namespace is no name");
    path += "/namespaces/" + key.space;
  } else if (type.is_namespaced && !key.name.empty()) {
    return refuse("an object needs a namespace");
  }
  path += fmt::format("/{}", type.plural);
  if (!key.name.empty()) {
    if (!is_segment(key.name)) return refuse("the object's name is no name");
    path += "/" + key.name;
  }
  if (subresource.empty()) return path;
  if (key.name.empty() || !is_segment(subresource)) return refuse("a subresource needs an object");
  return path + fmt::format("/{}", subresource);
}

std::string query_of(const std::vector<std::pair<std::string_view, std::string>>& pairs) {
  std::string query;
  for (const auto& [name, value] : pairs) {
    if (value.empty()) continue;
    query += fmt::format("{}{}=", query.empty() ? '?' : '&', name);
    for (const char c : value) {
      if (kUnreserved.find(c) != std::string_view::npos) {
        query += c;
      } else {
        query += fmt::format("%{:02X}", static_cast<unsigned char>(c));
      }
    }
  }
  return query;
}

}  // namespace corro::kube
