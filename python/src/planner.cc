// corro._planner: the planner for Python, without libcorro.so, an engine or torch. Text goes in,
// text comes out; the GIL is released in between. What corro::plan refuses becomes the exception of
// its code (corro.errors.make).
//
//   document, table, terms, remarks = _planner.plan(model, "model.json", "", "cluster.yaml", "{}",
//   [])
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/status.h"
#include "plan/model/known_models.h"
#include "plan/model/model_file.h"
#include "plan/report/decision_file.h"
#include "plan/report/text_report.h"
#include "plan/search/planner.h"
#include "plan_files/plan_files.h"
#include "planning.h"
#include "raised.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using corro::Result;
using corro::python::PythonPolicies;
using corro::python::raise;

/// A plan's file, the table that a terminal shows, the explanation of each term, and remarks on how
/// the model was read.
using Texts = std::tuple<std::string, std::string, std::string, std::vector<std::string>>;

Result<corro::plan::Model> read_model(const std::string& text, const std::string& name,
                                      const corro::plan::ModelOptions& options) {
  return text.empty() ? corro::plan::make_known_model(name, options)
                      : corro::plan::read_model(text, name, options);
}

Result<corro::plan::Cluster> read_cluster(const std::string& text, const std::string& name) {
  return text.empty() ? corro::plan_files::load_cluster(name)
                      : corro::plan_files::read_cluster(text, name);
}

Result<Texts> make_texts(const Result<corro::plan::Model>& model,
                         const Result<corro::plan::Cluster>& cluster, corro::plan::Request request,
                         const corro::plan::Policies& policies) {
  CORRO_TRY(model.status());
  CORRO_TRY(cluster.status());
  request.model = *model;
  request.cluster = *cluster;
  CORRO_ASSIGN(corro::plan::Decision decision, corro::plan::make_plan(request, policies));
  const auto file = corro::plan::make_decision_file(std::move(decision), *model, *cluster);
  CORRO_ASSIGN(std::string document, corro::plan::decision_to_json(file));
  return Texts(std::move(document), corro::plan::format_decision(file, false),
               corro::plan::explain_decision(file), {});
}

/// A model without text is a known one's name, a cluster without text is a file's path.
Texts plan(const std::string& model, const std::string& model_name, const std::string& cluster,
           const std::string& cluster_name, const std::string& options, const nb::list& policies) {
  Result<corro::python::Options> read = corro::python::read_options(options);
  if (!read.ok()) raise(read.status());
  PythonPolicies python(policies);
  std::vector<std::string> remarks;
  read->model.remarks = &remarks;
  Result<Texts> texts = [&] {
    const nb::gil_scoped_release release;
    return make_texts(read_model(model, model_name, read->model),
                      read_cluster(cluster, cluster_name), std::move(read->request),
                      python.native());
  }();
  python.rethrow();
  if (!texts.ok()) raise(texts.status());
  std::get<3>(*texts) = std::move(remarks);
  return *std::move(texts);
}

}  // namespace

NB_MODULE(_planner, module) {
  module.doc() = "The planner's door: text in, text out; use corro.plan().";
  module.def("version", [] { return CORRO_VERSION; }, "Returns corro's version.");
  module.def("plan", &plan, "model"_a, "model_name"_a, "cluster"_a, "cluster_name"_a, "options"_a,
             "policies"_a,
             "Returns a plan's file, its table for a terminal, the explanation, and remarks on the "
             "model.");
}
