#include <string>

#include <fmt/format.h>

#include "plan/report/drawing.h"
#include "plan/report/facts.h"
#include "plan/report/look.h"
#include "plan/report/table.h"
#include "plan/report/text_report.h"

namespace corro::plan {
namespace {

constexpr std::string_view kPageStyle = R"(:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1d2430; background: #ffffff; max-width: 1000px;
  margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; margin-bottom: 0.2em; }
h2 { font-size: 1.15em; margin: 2em 0 0.5em; }
svg { width: 100%; height: auto; display: block; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 0.8em 0; font-size: 0.92em; }
caption { text-align: left; font-weight: 600; padding: 0.4em 0; }
th, td { text-align: left; padding: 0.2em 1em 0.2em 0; border-bottom: 1px solid #e2e6ec; white-space: nowrap; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
tr.sum td { border-top: 2px solid #657080; font-weight: 600; }
table.facts { width: 100%; }
table.facts th { color: #657080; font-weight: 400; width: 7em; vertical-align: top; }
table.facts td { white-space: normal; }
tr.step td { font-weight: 600; }
p.note { color: #657080; font-size: 0.88em; margin: 0.3em 0; }
@media (prefers-color-scheme: dark) {
  body { color: #e4e9f0; background: #14181e; }
  th, td { border-color: #2c3440; }
  table.facts th, p.note { color: #9aa6b5; } }
)";

std::string table_of(const std::vector<Fact>& facts, bool first_is_strong) {
  std::string html = "<table class=\"facts\">\n";
  for (size_t i = 0; i < facts.size(); ++i) {
    html += fmt::format("<tr{}><th scope=\"row\">{}</th><td>{}</td></tr>\n",
                        first_is_strong && i == 0 ? " class=\"step\"" : "", escaped(facts[i].label),
                        escaped(facts[i].value));
  }
  return html + "</table>\n";
}

std::string section_of(const Drawing& drawing) {
  std::string html = fmt::format("<h2>{}</h2>\n", escaped(drawing.title));
  if (!drawing.body.empty()) {
    html += fmt::format(
        "<svg role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {} {:.0f}\" {}>\n{}</svg>\n",
        escaped(drawing.title), kDrawingWidth, drawing.height, kFontAttributes, drawing.body);
  }
  if (!drawing.note.empty())
    html += fmt::format("<p class=\"note\">{}</p>\n", escaped(drawing.note));
  return html;
}

}  // namespace

std::string decision_to_html(const DecisionFile& file) {
  const Facts facts = facts_of(file);
  const std::string title = escaped(fmt::format("{} on {}", file.model.name, file.cluster.name));
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{0}</title>\n<style>\n{1}{2}</style>\n</head>\n<body>\n<h1>{0}</h1>\n",
      title, dark_style(), kPageStyle);
  if (!file.decision.why.empty()) html += fmt::format("<p>{}</p>\n", escaped(file.decision.why));
  html += table_of(facts.predictions, true) + table_of(facts.decisions, false) +
          table_of(facts.certificates, false);
  for (const Drawing& drawing : drawings_of(file)) html += section_of(drawing);
  html += "<h2>Explanation</h2>\n";
  for (const Table& table : explanation_of(file)) html += table_to_html(table);
  return html + "</body>\n</html>\n";
}

}  // namespace corro::plan
