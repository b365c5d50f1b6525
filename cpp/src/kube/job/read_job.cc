#include "kube/job/read_job.h"

#include <fmt/format.h>

#include "kube/job/job_readers.h"
#include "kube/job/names.h"

namespace corro::kube {
namespace {

/// A label as of RFC 1035: what the host name of a pod has to be.
bool is_host_label(std::string_view text) {
  const auto is_lower = [](char letter) { return letter >= 'a' && letter <= 'z'; };
  const auto fits = [&](char letter) {
    return is_lower(letter) || (letter >= '0' && letter <= '9') || letter == '-';
  };
  return !text.empty() && text.size() <= 63 && is_lower(text.front()) && text.back() != '-' &&
         std::all_of(text.begin(), text.end(), fits);
}

void read_metadata(const Json& object, ReadJob& job) {
  FieldReader top(object, "", job.problems);
  FieldReader metadata = top.object("metadata");
  JobSpec& spec = job.spec;
  spec.api_version = top.text("apiVersion");
  spec.name = metadata.text("name", "", 253);
  spec.space = metadata.text("namespace", "", 63);
  spec.uid = metadata.text("uid", "", 128);
  spec.generation = metadata.integer("generation", {0, INT64_MAX}).value_or(0);
  spec.is_being_deleted = metadata.has("deletionTimestamp");
  if (spec.name.empty()) metadata.fail("name", "is missing");
  if (spec.uid.empty()) metadata.fail("uid", "is missing");
}

void check_names(ReadJob& job) {
  const int most = std::max({job.spec.workers, job.spec.most_workers, 1});
  const std::string last = worker_host(job.spec, most - 1);
  if (is_host_label(last)) return;
  job.problems.push_back(
      {"metadata.name",
       fmt::format("{} must be a host name: at most 63 of a-z, 0-9 and -, a letter first", last)});
}

}  // namespace

std::string_view name_of(Cause cause) {
  switch (cause) {
    case Cause::kOutOfMemory:
      return "outOfMemory";
    case Cause::kUserError:
      return "userError";
    case Cause::kLostPod:
      return "lostPod";
  }
  return "";
}

ReadJob read_job(const Json& object, const ReadOptions& options) {
  ReadJob job;
  read_metadata(object, job);
  FieldReader top(object, "", job.problems);
  const std::string kind = top.text("kind", "", 64);
  if (kind == "CorroJob") {
    job.spec.kind = JobKind::kCorroJob;
    read_corro_job(top.object("spec"), job);
  } else if (kind == "MPIJob") {
    read_mpi_job(object, top.object("spec"), options, job);
  } else {
    top.fail("kind", "must be MPIJob or CorroJob");
  }
  if (job.problems.empty()) check_names(job);
  return job;
}

}  // namespace corro::kube
