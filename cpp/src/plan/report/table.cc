#include "plan/report/table.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "plan/amounts.h"

namespace corro::plan {
namespace {

constexpr size_t kGap = 2;

bool is_number(std::string_view cell) {
  if (cell.starts_with('-') || cell.starts_with('+')) cell.remove_prefix(1);
  return !cell.empty() && cell.front() >= '0' && cell.front() <= '9';
}

/// The first column has the names of the rows.
std::vector<bool> columns_at_right(const Table& table) {
  std::vector<bool> right(table.head.size(), false);
  for (size_t column = 1; column < right.size(); ++column) {
    right[column] =
        !table.rows.empty() && std::ranges::all_of(table.rows, [column](const auto& row) {
          return row[column].empty() || is_number(row[column]);
        });
  }
  return right;
}

std::vector<size_t> widths_of(const Table& table) {
  std::vector<size_t> widths;
  for (const std::string& cell : table.head) widths.push_back(columns_of(cell));
  for (const auto& row : table.rows) {
    for (size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], columns_of(row[i]));
  }
  const size_t gaps = kGap * (widths.size() - 1);
  size_t sum = std::accumulate(widths.begin(), widths.end(), gaps);
  while (sum > kReportColumns) {
    size_t& widest = *std::ranges::max_element(widths);
    if (widest == 1) break;
    --widest;
    --sum;
  }
  return widths;
}

std::string line_of_cells(const std::vector<std::string>& cells, const std::vector<size_t>& widths,
                          const std::vector<bool>& right) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string cell = clipped(cells[i], widths[i]);
    const std::string space(widths[i] - columns_of(cell), ' ');
    if (i > 0) line.append(kGap, ' ');
    line += right[i] ? space + cell : cell + space;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

std::string table_to_text(const Table& table) {
  const std::vector<size_t> widths = widths_of(table);
  const std::vector<bool> right = columns_at_right(table);
  const size_t width = std::accumulate(widths.begin(), widths.end(), kGap * (widths.size() - 1));
  const std::string rule = std::string(width, '-') + "\n";
  std::string text = table.title.empty() ? "" : clipped(table.title, kReportColumns) + "\n";
  text += line_of_cells(table.head, widths, right) + rule;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    if (table.sums && i + 1 == table.rows.size()) text += rule;
    text += line_of_cells(table.rows[i], widths, right);
  }
  if (table.note.empty()) return text;
  for (const std::string& line : wrapped(table.note, kReportColumns)) text += line + "\n";
  return text;
}

std::string table_to_html(const Table& table) {
  const std::vector<bool> right = columns_at_right(table);
  std::string html = "<div class=\"wide\"><table>\n";
  if (!table.title.empty()) html += fmt::format("<caption>{}</caption>\n", escaped(table.title));
  const auto add = [&](const std::vector<std::string>& cells, std::string_view tag,
                       std::string_view row) {
    html += fmt::format("<tr{}>", row);
    for (size_t i = 0; i < cells.size(); ++i) {
      html +=
          fmt::format("<{}{}>{}</{}>", tag, right[i] ? " class=\"n\"" : "", escaped(cells[i]), tag);
    }
    html += "</tr>\n";
  };
  add(table.head, "th", "");
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const bool is_sum = table.sums && i + 1 == table.rows.size();
    add(table.rows[i], "td", is_sum ? " class=\"sum\"" : "");
  }
  html += "</table></div>\n";
  if (!table.note.empty()) html += fmt::format("<p class=\"note\">{}</p>\n", escaped(table.note));
  return html;
}

std::vector<std::string> wrapped(std::string_view text, size_t columns) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string word = clipped(text.substr(0, end), columns);
    const bool fits = !lines.empty() && columns_of(lines.back()) + 1 + columns_of(word) <= columns;
    if (fits) {
      lines.back() += " " + word;
    } else if (!word.empty()) {
      lines.push_back(word);
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += c < ' ' && c >= 0 ? ' ' : c;
    }
  }
  return result;
}

}  // namespace corro::plan
