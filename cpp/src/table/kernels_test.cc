#include "table/kernels.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "table/naive_row.h"
#include "table/row_layout.h"

namespace corro::table {
namespace {

constexpr float kMost = std::numeric_limits<float>::max();

/// Gradients as trainings have them, and what no training should have: zeros, denormals, values
/// whose squares overflow.
float draw(std::mt19937_64& random) {
  const auto unit = static_cast<float>(static_cast<double>(random() >> 11U) * 0x1p-52 - 1);
  switch (random() % 16) {
    case 0:
      return 0;
    case 1:
      return -0.0F;
    case 2:
      return unit * 0x1p-127F;
    case 3:
      return unit * 0x1p-146F;
    case 4:
      return unit * kMost;
    case 5:
      return unit * 0x1p64F;
    case 6:
      return unit * 0x1p-70F;
    default:
      return unit;
  }
}

/// A row in one set's memory, with a guard behind it.
class Row {
 public:
  Row(const Kernels& kernels, const TableSpec& spec)
      : kernels_(kernels), spec_(spec), layout_(layout_of(spec)), memory_(layout_.bytes() + 4) {
    std::memcpy(&memory_[layout_.bytes()], "tail", 4);
    write_initial_state(spec, {state(), layout_.state_count});
  }

  void write(const std::vector<float>& weights) {
    kernels_.write[type()](memory_.data(), weights.data(), spec_.dim);
  }
  void update(const std::vector<float>& gradient, uint64_t rounding) {
    const auto kind = static_cast<size_t>(spec_.optimizer.kind);
    kernels_.update[kind][type()](memory_.data(), state(), gradient.data(),
                                  {.dim = spec_.dim, .optimizer = spec_.optimizer}, rounding);
  }
  [[nodiscard]] std::vector<float> weights() const {
    std::vector<float> values(spec_.dim);
    kernels_.read[type()](memory_.data(), values.data(), spec_.dim);
    return values;
  }
  [[nodiscard]] std::vector<float> states() { return {state(), state() + layout_.state_count}; }
  [[nodiscard]] bool guarded() const {
    return std::memcmp(&memory_[layout_.bytes()], "tail", 4) == 0;
  }

 private:
  [[nodiscard]] size_t type() const { return static_cast<size_t>(spec_.dtype); }
  [[nodiscard]] float* state() {
    return reinterpret_cast<float*>(memory_.data() + layout_.weight_bytes);
  }

  const Kernels& kernels_;
  TableSpec spec_;
  RowLayout layout_;
  std::vector<std::byte> memory_;
};

std::vector<uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

/// The state as the layout has it.
std::vector<float> states_of(const TableSpec& spec, const NaiveRow& row) {
  std::vector<float> all;
  if (spec.optimizer.kind == OptimizerKind::kSgd) return all;
  all = row.first;
  const bool adam = spec.optimizer.kind == OptimizerKind::kAdam;
  if (adam || spec.optimizer.kind == OptimizerKind::kFtrl) {
    all.insert(all.end(), row.second.begin(), row.second.end());
  }
  if (adam) all.push_back(std::bit_cast<float>(row.pushes));
  return all;
}

/// kernels, optimizer, type
class TableKernels
    : public testing::TestWithParam<std::tuple<const Kernels*, OptimizerKind, DType>> {
 protected:
  [[nodiscard]] static const Kernels& kernels() { return *std::get<0>(GetParam()); }
  [[nodiscard]] static TableSpec spec(uint32_t dim) {
    TableSpec spec{.name = "t", .dim = dim, .dtype = std::get<2>(GetParam())};
    spec.optimizer = {.kind = std::get<1>(GetParam()),
                      .lr = 0.1F,
                      .initial_accumulator = 0.1F,
                      .l1 = 0.01F,
                      .l2 = 0.02F,
                      .beta = 0.5F};
    return spec;
  }
};

TEST_P(TableKernels, GiveTheBitsOfTheReference) {
  std::mt19937_64 random(7);
  for (uint32_t dim = 1; dim <= 67; ++dim) {
    const TableSpec s = spec(dim);
    Row row(kernels(), s);
    NaiveRow naive = naive_initial(s, 0);
    for (float& weight : naive.weights) weight = draw(random);
    row.write(naive.weights);
    for (float& weight : naive.weights) weight = naive_nearest(s.dtype, weight);
    ASSERT_EQ(bits_of(row.weights()), bits_of(naive.weights)) << dim;
    for (int step = 0; step < 4; ++step) {
      std::vector<float> gradient(dim);
      for (float& g : gradient) g = draw(random);
      const uint64_t rounding = random();
      row.update(gradient, rounding);
      naive_update(s, naive, gradient, rounding);
      ASSERT_EQ(bits_of(row.weights()), bits_of(naive.weights)) << dim << " " << step;
      ASSERT_EQ(bits_of(row.states()), bits_of(states_of(s, naive))) << dim << " " << step;
      ASSERT_TRUE(row.guarded());
    }
  }
}

TEST_P(TableKernels, KeepRowsFinite) {
  std::mt19937_64 random(8);
  constexpr float kLittle = std::numeric_limits<float>::denorm_min();
  for (const float lr : {kLittle, 1.0F, kMost}) {
    for (const float rest : {0.0F, kLittle, kMost}) {
      TableSpec s = spec(40);
      s.optimizer.lr = lr;
      s.optimizer.epsilon = rest;
      s.optimizer.initial_accumulator = rest;
      s.optimizer.l1 = s.optimizer.l2 = s.optimizer.beta = rest;
      Row row(kernels(), s);
      NaiveRow naive = naive_initial(s, 0);
      naive.weights.assign(40, 0);
      row.write(naive.weights);
      for (int step = 0; step < 30; ++step) {
        std::vector<float> gradient(40);
        for (float& g : gradient) g = draw(random);
        if (step % 3 == 2) {
          for (float& g : gradient) g = std::copysign(kMost, g);
        }
        const uint64_t rounding = random();
        row.update(gradient, rounding);
        naive_update(s, naive, gradient, rounding);
        std::vector<float> states = row.states();
        ASSERT_EQ(bits_of(row.weights()), bits_of(naive.weights)) << lr << " " << rest;
        ASSERT_EQ(bits_of(states), bits_of(states_of(s, naive))) << lr << " " << rest;
        if (s.optimizer.kind == OptimizerKind::kAdam) states.pop_back();
        for (const float weight : row.weights()) ASSERT_TRUE(std::isfinite(weight)) << lr << rest;
        for (const float state : states) ASSERT_TRUE(std::isfinite(state)) << lr << rest;
      }
    }
  }
}

std::string test_name(const testing::TestParamInfo<TableKernels::ParamType>& info) {
  const auto [kernels, kind, dtype] = info.param;
  return std::string(kernels->name) + "_" + std::string(name_of(kind)) + "_" +
         std::string(name_of(dtype));
}

std::vector<OptimizerKind> all_kinds() {
  std::vector<OptimizerKind> kinds;
  for (int i = 0; i < kOptimizerKindCount; ++i) kinds.push_back(static_cast<OptimizerKind>(i));
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(All, TableKernels,
                         testing::Combine(testing::ValuesIn(available_kernels().begin(),
                                                            available_kernels().end()),
                                          testing::ValuesIn(all_kinds()),
                                          testing::Values(DType::kF32, DType::kBF16, DType::kF16)),
                         test_name);

TEST(TableKernelsOfAllSets, SeeWhatIsNotFinite) {
  for (const Kernels* kernels : available_kernels()) {
    for (size_t count = 0; count <= 40; ++count) {
      std::vector<float> values(count, kMost);
      EXPECT_TRUE(kernels->all_finite(values.data(), count));
      for (size_t bad = 0; bad < count; ++bad) {
        for (const float value :
             {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::quiet_NaN()}) {
          values[bad] = value;
          EXPECT_FALSE(kernels->all_finite(values.data(), count)) << count << " " << bad;
          values[bad] = kMost;
        }
      }
    }
  }
}

/// The weight after one step of SGD that moves `from` by `by`.
float moved(DType dtype, float from, float by, uint64_t rounding) {
  TableSpec spec{.name = "t", .dim = 1, .dtype = dtype};
  spec.optimizer.lr = 1;
  Row row(*available_kernels().back(), spec);
  row.write({from});
  row.update({-by}, rounding);
  return row.weights()[0];
}

TEST(StochasticRounding, IsRightOnAverage) {
  struct Case {
    DType dtype;
    float from;
    float by;
    double unit;  ///< Between two values of the type.
  };
  constexpr uint64_t kTimes = 20000;
  for (const Case& c : {Case{DType::kBF16, 1, 0x1p-10F, 0x1p-7},
                        {DType::kBF16, -1, -0x1p-9F, 0x1p-7},
                        {DType::kBF16, 0, 0x1.01p-130F, 0x1p-133},
                        {DType::kF16, 1, 0x1p-13F, 0x1p-10},
                        {DType::kF16, 0, 0x1p-27F, 0x1p-24},
                        {DType::kF16, -0x1p-15F, 0x1.8p-25F, 0x1p-24},
                        {DType::kF16, 1000, 0.1F, 0.5}}) {
    double sum = 0;
    for (uint64_t i = 0; i < kTimes; ++i) {
      const float value = moved(c.dtype, c.from, c.by, mix64(i));
      ASSERT_LE(std::abs(value - c.from - c.by), c.unit);
      sum += value - c.from;
    }
    // Four deviations of a mean of values that are one of two, `unit` apart.
    EXPECT_NEAR(sum / kTimes, c.by, 4 * c.unit / 2 / std::sqrt(kTimes)) << c.from << " " << c.by;
  }
}

TEST(StochasticRounding, StepsBelowTheUnitAddUp) {
  // Rounded to nearest, 1 + 1/1024 is 1 in bf16, for ever.
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    TableSpec spec{.name = "t", .dim = 64, .dtype = dtype};
    spec.optimizer.lr = 1;
    Row row(*available_kernels().back(), spec);
    row.write(std::vector<float>(64, 1));
    for (uint64_t step = 0; step < 512; ++step) {
      row.update(std::vector<float>(64, -0x1p-12F), mix64(step));
    }
    double sum = 0;
    for (const float weight : row.weights()) sum += weight;
    EXPECT_NEAR(sum / 64, 1.125, 0.02) << name_of(dtype);
  }
}

TEST(StochasticRounding, KeepsWhatTheTypeHas) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const uint16_t most = dtype == DType::kBF16 ? 0x7f7f : 0x7bff;
    for (uint32_t bits = 0; bits <= most; ++bits) {
      const float value = widened(dtype, static_cast<uint16_t>(bits));
      ASSERT_EQ(moved(dtype, value, 0, mix64(bits)), value);
      ASSERT_EQ(moved(dtype, 0, -value, ~uint64_t{0} - bits), -value);
    }
  }
}

TEST(StochasticRounding, BeyondTheLargestValueGivesThat) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const float most = widened(dtype, dtype == DType::kBF16 ? 0x7f7f : 0x7bff);
    for (uint64_t i = 0; i < 100; ++i) {
      EXPECT_EQ(moved(dtype, most, most / 4096, mix64(i)), most);
      EXPECT_EQ(moved(dtype, most, kMost, mix64(i)), most);
      EXPECT_EQ(moved(dtype, -most, -kMost, mix64(i)), -most);
    }
  }
}

TEST(StochasticRounding, ElementsAndStepsRoundOnTheirOwn) {
  TableSpec spec{.name = "t", .dim = 64, .dtype = DType::kBF16};
  spec.optimizer.lr = 1;
  std::vector<std::vector<float>> seen;
  for (uint64_t step = 0; step < 8; ++step) {
    Row row(*available_kernels().back(), spec);
    row.write(std::vector<float>(64, 1));
    row.update(std::vector<float>(64, -0x1p-8F), mix64(step));
    const auto up = std::ranges::count_if(row.weights(), [](float w) { return w > 1; });
    EXPECT_GT(up, 12);
    EXPECT_LT(up, 52);
    for (const auto& other : seen) EXPECT_NE(row.weights(), other);
    seen.push_back(row.weights());
  }
}

/// Ten steps of one weight, in double, as the papers write them.
double textbook(const Optimizer& o, double w, const std::vector<double>& gradients) {
  double first = 0;
  double second = 0;
  int t = 0;
  for (const double g : gradients) {
    ++t;
    if (o.kind == OptimizerKind::kSgd) w -= o.lr * g;
    if (o.kind == OptimizerKind::kMomentum) w -= o.lr * (first = o.momentum * first + g);
    if (o.kind == OptimizerKind::kAdagrad || o.kind == OptimizerKind::kRowwiseAdagrad) {
      first += g * g;
      w -= o.lr * g / (std::sqrt(first) + o.epsilon);
    }
    if (o.kind == OptimizerKind::kAdam) {
      first = o.beta1 * first + (1 - o.beta1) * g;
      second = o.beta2 * second + (1 - o.beta2) * g * g;
      const double m = first / (1 - std::pow(o.beta1, t));
      const double v = second / (1 - std::pow(o.beta2, t));
      w -= o.lr * m / (std::sqrt(v) + o.epsilon);
    }
    if (o.kind == OptimizerKind::kFtrl) {
      first += g - (std::sqrt(second + g * g) - std::sqrt(second)) / o.lr * w;
      second += g * g;
      const double beyond = std::abs(first) - o.l1;
      w = beyond <= 0
              ? 0
              : -std::copysign(beyond, first) / ((o.beta + std::sqrt(second)) / o.lr + o.l2);
    }
  }
  return w;
}

TEST(TableOptimizers, DoAsThePapersSay) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<float> draws(-1, 1);
  for (const OptimizerKind kind : all_kinds()) {
    TableSpec spec{.name = "t", .dim = 1};
    spec.optimizer = {.kind = kind, .lr = 0.05F, .l1 = 0.01F, .l2 = 0.1F, .beta = 1};
    Row row(*available_kernels().back(), spec);
    row.write({0.25F});
    std::vector<double> gradients;
    for (int step = 0; step < 10; ++step) {
      const float gradient = draws(random);
      gradients.push_back(gradient);
      row.update({gradient}, 0);
      EXPECT_NEAR(row.weights()[0], textbook(spec.optimizer, 0.25, gradients), 2e-6)
          << name_of(kind) << " " << step;
    }
  }
}

}  // namespace
}  // namespace corro::table
