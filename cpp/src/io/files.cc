#include "io/files.h"

#include <fstream>
#include <sstream>

namespace corro::io {

std::string read_small_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace corro::io
