// Calibration: what data sheets do not say about machines, as a few numbers with a meaning each.
#pragma once

#include <array>
#include <string_view>

namespace corro::plan {

/// Efficiencies are fractions of what the cluster file says. The defaults are fitted to the 69
/// runs of docs/planner.md's validation page (vTrain's measurements, A100-80GB).
struct Calibration {
  double matmul_efficiency = 0.779;     ///< Of a device's peak, by large matrix multiplications.
  double memory_efficiency = 0.929;     ///< Of a device's memory bandwidth, by everything else.
  double link_efficiency = 1.0;         ///< Of the links inside a host, by collectives.
  double network_efficiency = 0.95;     ///< Of a host's network, by collectives.
  double collective_seconds = 2.68e-4;  ///< Until a collective is under way on all its ranks.
  double operator_seconds = 2.1e-4;     ///< The least that an operator takes in one direction:
                                        ///< launching its kernels.
  bool operator==(const Calibration&) const = default;
};

/// A field of Calibration that a fit may change. A prior is what is expected before anything is
/// measured: the middle and the spread (standard deviation of the logarithm) of a log-normal, from
/// least to most.
struct CalibrationField {
  std::string_view name;
  double Calibration::* field;
  double middle;
  double spread;
  double least;
  double most;
};

inline constexpr std::array<CalibrationField, 6> kCalibrationFields = {{
    {"matmul_efficiency", &Calibration::matmul_efficiency, 0.75, 0.3, 0.05, 1.0},
    {"memory_efficiency", &Calibration::memory_efficiency, 0.8, 0.3, 0.05, 1.0},
    {"link_efficiency", &Calibration::link_efficiency, 0.77, 0.3, 0.02, 1.0},
    {"network_efficiency", &Calibration::network_efficiency, 0.8, 0.3, 0.02, 1.0},
    {"collective_seconds", &Calibration::collective_seconds, 1e-4, 1.0, 1e-6, 1e-2},
    {"operator_seconds", &Calibration::operator_seconds, 1.8e-4, 1.0, 1e-7, 5e-3},
}};

}  // namespace corro::plan
