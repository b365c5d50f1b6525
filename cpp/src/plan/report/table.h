// Table: cells that become text for a terminal or HTML for a page.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace corro::plan {

inline constexpr size_t kReportColumns = 100;

struct Table {
  std::string title = {};
  std::vector<std::string> head = {};
  std::vector<std::vector<std::string>> rows = {};  ///< Each as long as the head.
  std::string note = {};                            ///< A sentence below; may be empty.
  bool sums = false;                                ///< The last row is the sum of the others.
};

/// At most kReportColumns columns: the widest cells are cut. Columns whose cells begin with digits
/// stand at the right.
[[nodiscard]] std::string table_to_text(const Table& table);
[[nodiscard]] std::string table_to_html(const Table& table);

/// Lines of at most `columns` columns; longer words are cut.
[[nodiscard]] std::vector<std::string> wrapped(std::string_view text, size_t columns);
/// For element content and for attributes in quotation marks, of HTML and of XML.
[[nodiscard]] std::string escaped(std::string_view text);

}  // namespace corro::plan
