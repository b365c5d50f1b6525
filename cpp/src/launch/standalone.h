// Standalone: what a standalone coordinator has beside what every launcher has.
#pragma once

#include <optional>

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
};

}  // namespace corro::launch
