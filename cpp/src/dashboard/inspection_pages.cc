#include "dashboard/inspection_pages.h"

#include <nlohmann/json.hpp>

#include "dashboard/board_json.h"
#include "dashboard/json_page.h"

namespace corro::dashboard {
namespace {

constexpr int kAccepted = 202;
constexpr uint64_t kMostTracedSteps = 1'000'000;

std::string_view state_of(const Inspection& inspection, Inspected what) {
  const Inspection::Answer& last = inspection.last(what);
  if (inspection.is_asking(what)) return "asked";
  if (!last.why.empty()) return "failed";
  return last.asked ? "answered" : "none";
}

nlohmann::ordered_json json_of(const Inspection& inspection, Inspected what) {
  const Inspection::Answer& last = inspection.last(what);
  nlohmann::ordered_json json{
      {"state", state_of(inspection, what)}, {"asked", nullptr}, {"why", nullptr}};
  if (last.asked) json["asked"] = seconds_of(*last.asked);
  if (!last.why.empty()) json["why"] = last.why;
  if (what == Inspected::kStacks) json["text"] = last.text;
  return json;
}

}  // namespace

http::Page ask_page(Inspection& inspection, Inspected what, const http::Query& query, Time now,
                    UnixTime clock) {
  const auto steps = http::number_of(query, "steps", 1, kMostTracedSteps);
  if (!steps.ok()) return page_of(steps.status());
  const Status asked = inspection.ask(what, static_cast<uint32_t>(steps->value_or(1)), now, clock);
  return asked.ok() ? page_of(json_of(inspection, what), kAccepted) : page_of(asked);
}

http::Page answer_page(Inspection& inspection, Inspected what, Time now) {
  inspection.look(now);
  return page_of(json_of(inspection, what));
}

http::Page trace_file_page(const Inspection& inspection) {
  const std::string& trace = inspection.last(Inspected::kTrace).text;
  if (trace.empty())
    return page_of(Status(Code::kNotFound, "no trace was made: ask for one by POST /api/trace"));
  return {.text = trace, .type = http::kJson};
}

}  // namespace corro::dashboard
