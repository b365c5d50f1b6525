// Where the page's files are served.
#pragma once

#include <map>
#include <string>

#include "http/pages.h"

namespace corro::dashboard {

/// "/" and a route for each other file of page_files(); all protected.
[[nodiscard]] std::map<std::string, http::Pages::Route> page_routes();

}  // namespace corro::dashboard
