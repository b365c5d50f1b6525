#include "dashboard/page_routes.h"

#include <fmt/format.h>

#include "dashboard/page_files.h"

namespace corro::dashboard {

std::map<std::string, http::Pages::Route> page_routes() {
  std::map<std::string, http::Pages::Route> routes;
  for (const http::Asset& file : page_files()) {
    const std::string path = file.name == "index.html" ? "/" : fmt::format("/{}", file.name);
    routes[path] = {
        [file](const http::Query&) { return http::Page{200, std::string(file.text), file.type}; },
        true};
  }
  return routes;
}

}  // namespace corro::dashboard
