#include "plan/cluster/matrix_file.h"

#include <algorithm>

#include <fmt/format.h>

namespace corro::plan {
namespace {

constexpr RealRange kDiagonal{0, 1e18};

/// Cuts the text before the first of `marks` off, and the mark.
std::string_view cut(std::string_view& text, std::string_view marks) {
  const size_t end = std::min(text.find_first_of(marks), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

/// Appends the numbers of a line, or returns why they are none.
std::string add_row(std::string_view line, size_t row, size_t hosts, std::vector<double>& matrix) {
  size_t column = 0;
  while (!line.empty()) {
    const std::string_view word = cut(line, ", \t\r");
    if (word.empty()) continue;
    const std::optional<double> number = parse_quantity(word, Unit::kBytesPerSecond);
    const RealRange range = row == column ? kDiagonal : kBandwidthRange;
    if (!number || !range.holds(*number)) {
      return fmt::format("number {} must be bytes/s from {} to {}", column + 1, range.least,
                         range.most);
    }
    if (++column > hosts) break;
    matrix.push_back(*number);
  }
  if (column == hosts) return "";
  return fmt::format("the row has {} numbers; the cluster has {} hosts",
                     column > hosts ? "more" : fmt::format("{}", column), hosts);
}

}  // namespace

std::vector<double> read_matrix_rows(const Json& rows, const Place& place, Reading& reading,
                                     size_t hosts) {
  std::vector<double> matrix;
  const auto check_size = [&](const Json& list, const Place& at, std::string_view noun) {
    if (!list.is_array()) return reading.fail(at, fmt::format("must be a list of {}", noun));
    if (list.size() == hosts) return;
    reading.fail(at, fmt::format("has {} {}; the cluster has {} hosts", list.size(), noun, hosts));
  };
  check_size(rows, place, "rows");
  for (size_t i = 0; i < hosts && reading.ok(); ++i) {
    const Place at{&place, {}, i};
    check_size(rows[i], at, "numbers");
    for (size_t j = 0; j < hosts && reading.ok(); ++j) {
      matrix.push_back(read_quantity(rows[i][j], {&at, {}, j}, reading, Unit::kBytesPerSecond,
                                     i == j ? kDiagonal : kBandwidthRange));
    }
  }
  return matrix;
}

Result<std::vector<double>> parse_matrix(std::string_view text, std::string_view name,
                                         size_t hosts) {
  const auto refuse = [&](size_t line, std::string_view what) {
    return Status(Code::kInvalidArgument, fmt::format("{}:{}: {}", name, line, what));
  };
  if (hosts > kMostMatrixHosts) {
    return refuse(1, fmt::format("a matrix has at most {} hosts", kMostMatrixHosts));
  }
  std::vector<double> matrix;
  size_t row = 0;
  for (size_t line = 1; !text.empty(); ++line) {
    const std::string_view words = cut(text, "\n");
    const size_t first = words.find_first_not_of(", \t\r");
    if (first == std::string_view::npos || words[first] == '#') continue;
    if (row == hosts)
      return refuse(line, fmt::format("is row {}; the cluster has {} hosts", row + 1, hosts));
    const std::string error = add_row(words, row++, hosts, matrix);
    if (!error.empty()) return refuse(line, error);
  }
  if (row == hosts) return matrix;
  return Status(Code::kInvalidArgument,
                fmt::format("{}: has {} rows; the cluster has {} hosts", name, row, hosts));
}

}  // namespace corro::plan
