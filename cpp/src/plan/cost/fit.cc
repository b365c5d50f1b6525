// The fit works on x = log(field), so that every field stays positive and a prior is a parabola.
//
// It minimises sum over runs of huber(log(predicted / measured) / kNoise) + sum over fields of
// ((x - middle) / spread)^2 / 2. The loss is sqrt-shaped far out (pseudo-Huber: Barron, "A general
// and adaptive robust loss function", CVPR 2019, alpha = 1), written as a least squares problem by
// its square root, so Gauss-Newton applies; the Jacobian is by differences.
#include "plan/cost/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

namespace corro::plan {
namespace {

constexpr size_t kFields = kCalibrationFields.size();
constexpr double kNoise = 0.02;  ///< Spread of measured times around what a model can know.
constexpr uint32_t kMostIterations = 60;

using Point = std::array<double, kFields>;

Calibration calibration_at(const Point& x) {
  Calibration calibration;
  for (size_t i = 0; i < kFields; ++i) {
    calibration.*(kCalibrationFields[i].field) = std::exp(x[i]);
  }
  return calibration;
}

Point clamp(Point x) {
  for (size_t i = 0; i < kFields; ++i) {
    const CalibrationField& field = kCalibrationFields[i];
    x[i] = std::clamp(x[i], std::log(field.least), std::log(field.most));
  }
  return x;
}

/// The field is at an end of its range, and this direction leads out of it.
bool leaves_range(size_t i, double x, double direction) {
  const CalibrationField& field = kCalibrationFields[i];
  return direction > 0 ? x >= std::log(field.most) : x <= std::log(field.least);
}

Point start() {
  Point x;
  for (size_t i = 0; i < kFields; ++i) x[i] = std::log(kCalibrationFields[i].middle);
  return x;
}

/// Solves a x = b for a symmetric positive definite matrix (Cholesky).
Point solve(std::array<Point, kFields> a, Point b) {
  for (size_t j = 0; j < kFields; ++j) {
    for (size_t k = 0; k < j; ++k) {
      for (size_t i = j; i < kFields; ++i) a[i][j] -= a[i][k] * a[j][k];
    }
    const double root = std::sqrt(std::max(a[j][j], 1e-300));
    for (size_t i = j; i < kFields; ++i) a[i][j] /= root;
  }
  for (size_t i = 0; i < kFields; ++i) {
    for (size_t k = 0; k < i; ++k) b[i] -= a[i][k] * b[k];
    b[i] /= a[i][i];
  }
  for (size_t i = kFields; i-- > 0;) {
    for (size_t k = i + 1; k < kFields; ++k) b[i] -= a[k][i] * b[k];
    b[i] /= a[i][i];
  }
  return b;
}

class Fit {
 public:
  Fit(std::span<const MeasuredRun> runs, Machine machine) : machine_(std::move(machine)) {
    for (const MeasuredRun& run : runs) {
      if (run.seconds) runs_.push_back(run);
    }
  }

  Result<Point> minimise(Point x, uint32_t& iterations) {
    if (runs_.empty()) {
      return Status(Code::kInvalidArgument, "there is no run with a step_ms to fit to");
    }
    x = clamp(x);
    CORRO_ASSIGN(auto residuals, residuals_at(x));
    double damping = 1e-3;
    for (iterations = 0; iterations < kMostIterations; ++iterations) {
      CORRO_ASSIGN(const auto jacobian, jacobian_at(x, residuals));
      bool better = false;
      while (!better && damping < 1e8) {
        const Point next = clamp(step(x, residuals, jacobian, damping));
        CORRO_ASSIGN(auto found, residuals_at(next));
        const double gain = energy(residuals) - energy(found);
        better = gain > 0;
        damping = better ? damping / 5 : damping * 5;
        if (!better) continue;
        x = next;
        residuals = std::move(found);
        if (gain < 1e-6 * energy(residuals)) return x;
      }
      if (!better) break;
    }
    return x;
  }

 private:
  static double energy(const std::vector<double>& residuals) {
    double sum = 0;
    for (const double r : residuals) sum += r * r;
    return sum;
  }

  Result<std::vector<double>> residuals_at(const Point& x) {
    machine_.calibration = calibration_at(x);
    std::vector<double> residuals;
    for (const MeasuredRun& run : runs_) {
      CORRO_ASSIGN(const RunPrediction predicted, predict(run, machine_));
      const double error = std::log(predicted.seconds / *run.seconds) / kNoise;
      const double loss = 2 * (std::sqrt(1 + error * error) - 1);
      residuals.push_back(std::copysign(std::sqrt(loss), error));
    }
    for (size_t i = 0; i < kFields; ++i) {
      const CalibrationField& field = kCalibrationFields[i];
      residuals.push_back((x[i] - std::log(field.middle)) / field.spread);
    }
    return residuals;
  }

  Result<std::vector<Point>> jacobian_at(const Point& x, const std::vector<double>& residuals) {
    constexpr double kStep = 1e-4;
    std::vector<Point> jacobian(residuals.size());
    for (size_t i = 0; i < kFields; ++i) {
      Point moved = x;
      moved[i] += kStep;
      CORRO_ASSIGN(const auto found, residuals_at(moved));
      for (size_t r = 0; r < found.size(); ++r) {
        jacobian[r][i] = (found[r] - residuals[r]) / kStep;
      }
    }
    return jacobian;
  }

  static Point step(const Point& x, const std::vector<double>& residuals,
                    const std::vector<Point>& jacobian, double damping) {
    std::array<Point, kFields> a = {};
    Point b = {};
    for (size_t r = 0; r < residuals.size(); ++r) {
      for (size_t i = 0; i < kFields; ++i) {
        b[i] -= jacobian[r][i] * residuals[r];
        for (size_t j = 0; j < kFields; ++j) a[i][j] += jacobian[r][i] * jacobian[r][j];
      }
    }
    for (size_t i = 0; i < kFields; ++i) {
      a[i][i] *= 1 + damping;
      if (!leaves_range(i, x[i], b[i])) continue;
      // A field that is at its end and would go further stays, and the others' steps are theirs.
      for (size_t j = 0; j < kFields; ++j) a[i][j] = a[j][i] = i == j ? 1 : 0;
      b[i] = 0;
    }
    Point next = x;
    const Point moved = solve(a, b);
    for (size_t i = 0; i < kFields; ++i) next[i] += moved[i];
    return next;
  }

  Machine machine_;
  std::vector<MeasuredRun> runs_;
};

Result<std::vector<double>> errors_of(std::span<const MeasuredRun> runs, const Machine& machine) {
  std::vector<double> errors;
  for (const MeasuredRun& run : runs) {
    if (!run.seconds) continue;
    CORRO_ASSIGN(const RunPrediction predicted, predict(run, machine));
    errors.push_back(std::abs(predicted.seconds / *run.seconds - 1));
  }
  return errors;
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// What the run predicted fastest took, over the fastest, - 1.
Result<double> regret_of(std::span<const MeasuredRun> runs, const Machine& machine) {
  double predicted_least = 0;
  double taken = 0;
  double fastest = 0;
  for (const MeasuredRun& run : runs) {
    if (!run.seconds) continue;
    CORRO_ASSIGN(const RunPrediction predicted, predict(run, machine));
    if (fastest == 0 || *run.seconds < fastest) fastest = *run.seconds;
    if (predicted_least != 0 && predicted.seconds >= predicted_least) continue;
    predicted_least = predicted.seconds;
    taken = *run.seconds;
  }
  return fastest == 0 ? 0 : taken / fastest - 1;
}

}  // namespace

Result<FitResult> fit_calibration(std::span<const MeasuredRun> runs, const Machine& machine) {
  FitResult result;
  CORRO_ASSIGN(const Point x, Fit(runs, machine).minimise(start(), result.iterations));
  result.calibration = calibration_at(x);
  Machine fitted = machine;
  fitted.calibration = result.calibration;
  CORRO_ASSIGN(const auto errors, errors_of(runs, fitted));
  result.mean_error = mean_of(errors);
  result.median_error = median_of(errors);
  result.worst_error = *std::max_element(errors.begin(), errors.end());
  return result;
}

Result<std::vector<LeftOut>> leave_models_out(std::span<const MeasuredRun> runs,
                                              const Machine& machine) {
  std::map<std::pair<uint32_t, uint32_t>, std::vector<MeasuredRun>> models;
  for (const MeasuredRun& run : runs) models[{run.hidden, run.layers}].push_back(run);
  std::vector<LeftOut> result;
  if (models.size() < 2) return result;
  for (const auto& [model, left_out] : models) {
    std::vector<MeasuredRun> others;
    for (const MeasuredRun& run : runs) {
      if (std::pair(run.hidden, run.layers) != model) others.push_back(run);
    }
    CORRO_ASSIGN(const FitResult fit, fit_calibration(others, machine));
    Machine fitted = machine;
    fitted.calibration = fit.calibration;
    CORRO_ASSIGN(const auto errors, errors_of(left_out, fitted));
    CORRO_ASSIGN(const double regret, regret_of(left_out, fitted));
    result.push_back({.model = fmt::format("hidden {}, {} layers", model.first, model.second),
                      .runs = left_out.size(),
                      .mean_error = mean_of(errors),
                      .median_error = median_of(errors),
                      .regret = regret});
  }
  return result;
}

Result<double> leave_one_out_error(std::span<const MeasuredRun> runs, const Machine& machine) {
  uint32_t iterations = 0;
  CORRO_ASSIGN(const Point all, Fit(runs, machine).minimise(start(), iterations));
  const size_t every = (runs.size() + kMostFits - 1) / kMostFits;
  std::vector<double> errors;
  for (size_t i = 0; i < runs.size(); i += every) {
    std::vector<MeasuredRun> others(runs.begin(), runs.end());
    others.erase(others.begin() + static_cast<ptrdiff_t>(i));
    CORRO_ASSIGN(const Point x, Fit(others, machine).minimise(all, iterations));
    Machine fitted = machine;
    fitted.calibration = calibration_at(x);
    CORRO_ASSIGN(const auto error, errors_of(runs.subspan(i, 1), fitted));
    errors.insert(errors.end(), error.begin(), error.end());
  }
  return mean_of(errors);
}

}  // namespace corro::plan
