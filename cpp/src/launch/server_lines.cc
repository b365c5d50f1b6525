#include "launch/server_lines.h"

#include <fmt/format.h>

namespace corro::launch {
namespace {

/// Adds each line to `text`.
screen::LineSplitter::Visit adding(std::string& text, size_t server) {
  return [&text, server](const screen::Line& line) {
    text += fmt::format("[server {}] {}\n", server, line.text);
  };
}

}  // namespace

std::string ServerLines::feed(size_t server, io::Output stream, std::string_view bytes) {
  std::string text;
  cutter(server, stream).feed(bytes, adding(text, server));
  return text;
}

std::string ServerLines::finish(size_t server, io::Output stream) {
  std::string text;
  cutter(server, stream).finish(adding(text, server));
  return text;
}

}  // namespace corro::launch
