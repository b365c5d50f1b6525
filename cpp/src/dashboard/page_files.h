// The files of the page, as they stand in this folder; embedded when the program is built.
#pragma once

#include <span>

#include "http/pages.h"

namespace corro::dashboard {

[[nodiscard]] std::span<const http::Asset> page_files();

}  // namespace corro::dashboard
