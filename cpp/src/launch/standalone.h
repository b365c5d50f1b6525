// Standalone: what a standalone coordinator has beside what every launcher has.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "launch/job_record.h"
#include "launch/lead.h"
#include "launch/reception.h"
#include "wire/secret.h"

namespace corro::launch {

struct Standalone {
  Lead& lead;
  Reception& reception;
  wire::Secret secret{};                           ///< Of the ranks; every coordinator has it.
  std::optional<JobRecord> record = std::nullopt;  ///< Of a job that goes on.
  /// Shows people the job's progress (progress.h), where there is no screen. May block for some
  /// seconds; null: nobody looks.
  std::function<void(const std::string& progress)> show = nullptr;
  /// How the job has ended: what run_job() finds out. None: it was not led to its end.
  std::optional<Ending> ending = std::nullopt;
};

}  // namespace corro::launch
