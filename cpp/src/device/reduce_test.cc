// Every kernel of every instruction set this processor has, against slow references in this file.
#include "device/reduce.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/check.h"
#include "device/kernels.h"

namespace corro::device {
namespace {

using Bytes = std::vector<std::byte>;

constexpr DType kAllTypes[] = {DType::kBool, DType::kU8,  DType::kI8,   DType::kI16, DType::kI32,
                               DType::kI64,  DType::kF16, DType::kBF16, DType::kF32, DType::kF64,
                               DType::kU16,  DType::kU32, DType::kU64};
constexpr ReduceOp kAllOps[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax,
                                ReduceOp::kProduct};

bool is_half(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }
bool is_float(DType dtype) {
  return is_half(dtype) || dtype == DType::kF32 || dtype == DType::kF64;
}

// --- References: 16-bit floats by definition, from sign, exponent and fraction ---

struct HalfFormat {
  int exponent_bits;
  int fraction_bits;
};
constexpr HalfFormat kF16Format{5, 10};
constexpr HalfFormat kBF16Format{8, 7};

HalfFormat format_of(DType dtype) { return dtype == DType::kF16 ? kF16Format : kBF16Format; }

double value_of(uint16_t bits, HalfFormat format) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const int exponent = (bits & 0x7fff) >> format.fraction_bits;
  const int fraction = bits & ((1 << format.fraction_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << format.exponent_bits) - 1) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * INFINITY;
  }
  const int whole = exponent == 0 ? fraction : fraction + (1 << format.fraction_bits);
  return sign * std::ldexp(whole, std::max(exponent, 1) - bias - format.fraction_bits);
}

uint16_t canonical_nan(HalfFormat format) {
  const int exponent = (1 << format.exponent_bits) - 1;
  return static_cast<uint16_t>(exponent << format.fraction_bits | 1 << (format.fraction_bits - 1));
}

/// The nearest representable value, the even one of two at the same distance; found by bisection.
uint16_t nearest_half(double value, HalfFormat format) {
  if (std::isnan(value)) return canonical_nan(format);
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  const auto infinity =
      static_cast<uint16_t>(((1 << format.exponent_bits) - 1) << format.fraction_bits);
  uint16_t below = 0;  // the largest finite value that is not above
  for (int bit = 14; bit >= 0; --bit) {
    const auto next = static_cast<uint16_t>(below | 1 << bit);
    if (next < infinity && value_of(next, format) <= magnitude) below = next;
  }
  const auto above = static_cast<uint16_t>(below + 1);
  // The value after the largest, for the purpose of rounding: as if the exponent went on.
  const double step = value_of(below, format) - value_of(static_cast<uint16_t>(below - 1), format);
  const double above_value =
      above == infinity ? value_of(below, format) + step : value_of(above, format);
  const double to_below = magnitude - value_of(below, format);
  const double to_above = above_value - magnitude;
  const bool up = to_above < to_below || (to_above == to_below && (below & 1) != 0);
  return static_cast<uint16_t>(sign | (up ? above : below));
}

// --- References: folds, one element at a time ---

template <typename T>
T read_as(const std::byte* bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void write_as(std::byte* bytes, size_t index, T value) {
  std::memcpy(bytes + index * sizeof(T), &value, sizeof(T));
}

template <typename T>
T combine_float(ReduceOp op, T a, T b) {
  const bool nan = std::isnan(a) || std::isnan(b);
  switch (op) {
    case ReduceOp::kMin:
      return nan ? std::numeric_limits<T>::quiet_NaN() : (b < a ? b : a);
    case ReduceOp::kMax:
      return nan ? std::numeric_limits<T>::quiet_NaN() : (b > a ? b : a);
    case ReduceOp::kProduct:
      return a * b;
    default:
      return a + b;
  }
}

template <typename T>
T canonical_float(T value) {
  return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
}

__int128 combine_integer(ReduceOp op, __int128 a, __int128 b) {
  switch (op) {
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kProduct:
      // Of 64 bits, unsigned, it may have more than 127 bits; its lower ones count.
      return static_cast<__int128>(static_cast<unsigned __int128>(a) *
                                   static_cast<unsigned __int128>(b));
    default:
      return a + b;
  }
}

template <typename T>
T reference_integer(ReduceOp op, const std::vector<Bytes>& sources, size_t i, double scale,
                    int64_t divisor) {
  T sum = read_as<T>(sources[0].data(), i);
  for (size_t s = 1; s < sources.size(); ++s) {
    sum = static_cast<T>(combine_integer(op, sum, read_as<T>(sources[s].data(), i)));
  }
  if (divisor != 0) return static_cast<T>(static_cast<__int128>(sum) / divisor);
  if (scale == 1) return sum;
  const double scaled = std::trunc(static_cast<double>(sum) * scale);
  if (scaled <= static_cast<double>(std::numeric_limits<T>::min())) {
    return std::numeric_limits<T>::min();
  }
  const double above = std::ldexp(1, std::numeric_limits<T>::digits);
  return scaled >= above ? std::numeric_limits<T>::max() : static_cast<T>(scaled);
}

template <typename T>
T reference_float(ReduceOp op, const std::vector<Bytes>& sources, size_t i, double scale) {
  T sum = read_as<T>(sources[0].data(), i);
  for (size_t s = 1; s < sources.size(); ++s) {
    sum = combine_float(op, sum, read_as<T>(sources[s].data(), i));
  }
  return canonical_float(sum * static_cast<T>(scale));
}

uint16_t reference_half(DType dtype, ReduceOp op, const std::vector<Bytes>& sources, size_t i,
                        double scale) {
  const auto at = [&](size_t s) {
    return static_cast<float>(value_of(read_as<uint16_t>(sources[s].data(), i), format_of(dtype)));
  };
  float sum = at(0);
  for (size_t s = 1; s < sources.size(); ++s) sum = combine_float(op, sum, at(s));
  return nearest_half(sum * static_cast<float>(scale), format_of(dtype));
}

uint8_t reference_bool(ReduceOp op, const std::vector<Bytes>& sources, size_t i, double scale) {
  const bool every = op == ReduceOp::kMin || op == ReduceOp::kProduct;
  bool result = every;
  for (const Bytes& source : sources) {
    const bool value = source[i] != std::byte{0};
    result = every ? result && value : result || value;
  }
  return result && scale != 0;
}

struct Case {
  DType dtype;
  ReduceOp op;
  double scale = 1;
  int64_t divisor = 0;  ///< scale == 1.0 / divisor.
};

void reference_fold(const Case& c, const std::vector<Bytes>& sources, size_t count, Bytes& into) {
  for (size_t i = 0; i < count; ++i) {
    const auto integer = [&]<typename T>(T) {
      write_as(into.data(), i, reference_integer<T>(c.op, sources, i, c.scale, c.divisor));
    };
    switch (c.dtype) {
      case DType::kBool:
        write_as(into.data(), i, reference_bool(c.op, sources, i, c.scale));
        break;
      case DType::kU8:
        integer(uint8_t{});
        break;
      case DType::kI8:
        integer(int8_t{});
        break;
      case DType::kI16:
        integer(int16_t{});
        break;
      case DType::kI32:
        integer(int32_t{});
        break;
      case DType::kI64:
        integer(int64_t{});
        break;
      case DType::kU16:
        integer(uint16_t{});
        break;
      case DType::kU32:
        integer(uint32_t{});
        break;
      case DType::kU64:
        integer(uint64_t{});
        break;
      case DType::kF16:
      case DType::kBF16:
        write_as(into.data(), i, reference_half(c.dtype, c.op, sources, i, c.scale));
        break;
      case DType::kF32:
        write_as(into.data(), i, reference_float<float>(c.op, sources, i, c.scale));
        break;
      case DType::kF64:
        write_as(into.data(), i, reference_float<double>(c.op, sources, i, c.scale));
        break;
    }
  }
}

// --- Inputs ---

/// Random bits reach every NaN, subnormal and infinity of the small types; half the values are of
/// ordinary size.
Bytes random_values(DType dtype, size_t count, std::mt19937_64& random) {
  Bytes bytes(count * size_of(dtype));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  std::uniform_real_distribution<double> ordinary(-100, 100);
  for (size_t i = 0; i < count; ++i) {
    if (dtype == DType::kBool) write_as<uint8_t>(bytes.data(), i, random() % 3 % 2);
    if (!is_float(dtype) || random() % 2 == 0) continue;
    const double value = random() % 8 == 0 ? (random() % 2 == 0 ? 0.0 : -0.0) : ordinary(random);
    if (is_half(dtype)) write_as(bytes.data(), i, nearest_half(value, format_of(dtype)));
    if (dtype == DType::kF32) write_as(bytes.data(), i, static_cast<float>(value));
    if (dtype == DType::kF64) write_as(bytes.data(), i, value);
  }
  return bytes;
}

/// Copies `values` to `offset` elements behind a 64-byte boundary.
struct Placed {
  std::vector<std::byte> memory;
  std::byte* at = nullptr;

  Placed(const Bytes& values, size_t offset_bytes) : memory(values.size() + 128 + offset_bytes) {
    void* start = memory.data();
    size_t space = memory.size();
    at = static_cast<std::byte*>(std::align(64, values.size(), start, space)) + offset_bytes;
    if (!values.empty()) std::memcpy(at, values.data(), values.size());
  }
};

std::string describe(const Kernels& kernels, const Case& c, size_t sources, size_t count) {
  return std::string(kernels.name) + " " + std::string(name_of(c.dtype)) + " " +
         std::string(name_of(c.op)) + " sources=" + std::to_string(sources) +
         " count=" + std::to_string(count) + " scale=" + std::to_string(c.scale);
}

/// Folds with one table at one misalignment, out of place and into the last source; both have to
/// give `want`.
void expect_fold(const Kernels& kernels, const Case& c, const std::vector<Bytes>& sources,
                 size_t count, size_t offset, const Bytes& want) {
  SCOPED_TRACE(describe(kernels, c, sources.size(), count) + " offset=" + std::to_string(offset));
  const size_t offset_bytes = offset * size_of(c.dtype);
  std::vector<Placed> placed;
  std::vector<const std::byte*> pointers;
  for (size_t s = 0; s < sources.size(); ++s) placed.emplace_back(sources[s], s * offset_bytes);
  for (const Placed& source : placed) pointers.push_back(source.at);
  const FoldFunction fold = kernels.fold[static_cast<size_t>(c.dtype)][static_cast<size_t>(c.op)];
  const Placed into(Bytes(want.size(), std::byte{0xa5}), offset_bytes);
  fold(into.at, pointers.data(), pointers.size(), count, make_scale(c.scale));
  ASSERT_TRUE(std::equal(want.begin(), want.end(), into.at)) << "out of place";
  fold(placed.back().at, pointers.data(), pointers.size(), count, make_scale(c.scale));
  ASSERT_TRUE(std::equal(want.begin(), want.end(), placed.back().at)) << "into a source";
}

void check_case(const Case& c, size_t sources_count, std::mt19937_64& random) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{33}, size_t{600}}) {
    std::vector<Bytes> sources;
    for (size_t s = 0; s < sources_count; ++s) {
      sources.push_back(random_values(c.dtype, count, random));
    }
    Bytes want(count * size_of(c.dtype));
    reference_fold(c, sources, count, want);
    for (const Kernels* kernels : available_kernels()) {
      for (const size_t offset : {size_t{0}, size_t{1}, size_t{3}}) {
        ASSERT_NO_FATAL_FAILURE(expect_fold(*kernels, c, sources, count, offset, want));
      }
    }
  }
}

class Fold : public testing::TestWithParam<DType> {};

TEST_P(Fold, AgreesWithTheReferenceOnEveryInstructionSet) {
  std::mt19937_64 random(7);
  for (const ReduceOp op : kAllOps) {
    for (const size_t sources : {1U, 2U, 3U, 4U, 5U, 8U, 9U}) {
      ASSERT_NO_FATAL_FAILURE(check_case({GetParam(), op}, sources, random));
    }
  }
}

TEST_P(Fold, ScalesBeforeItRounds) {
  std::mt19937_64 random(8);
  for (const size_t sources : {1U, 2U, 5U}) {
    for (const double scale : {0.37, -2.5, 1e30, 0.0}) {
      ASSERT_NO_FATAL_FAILURE(check_case({GetParam(), ReduceOp::kSum, scale}, sources, random));
    }
    for (const int64_t divisor : {2, 3, 49, 1000003}) {
      const Case c{GetParam(), ReduceOp::kAverage, 1.0 / static_cast<double>(divisor), divisor};
      ASSERT_NO_FATAL_FAILURE(check_case(c, sources, random));
    }
  }
}

TEST_P(Fold, IsTheSameHoweverTheRangeIsCut) {
  std::mt19937_64 random(9);
  constexpr size_t kCount = 1337;
  const size_t element = size_of(GetParam());
  for (const size_t sources_count : {2U, 5U}) {
    std::vector<Bytes> sources;
    for (size_t s = 0; s < sources_count; ++s) {
      sources.push_back(random_values(GetParam(), kCount, random));
    }
    const auto fold_range = [&](Bytes& into, size_t begin, size_t end) {
      std::vector<const std::byte*> at;
      for (const Bytes& source : sources) at.push_back(source.data() + begin * element);
      fold(GetParam(), ReduceOp::kSum, into.data() + begin * element, at, end - begin, 0.3);
    };
    Bytes whole(kCount * element);
    Bytes pieces(kCount * element);
    fold_range(whole, 0, kCount);
    for (size_t begin = 0; begin < kCount;) {
      const size_t end = std::min<size_t>(kCount, begin + 1 + random() % 100);
      fold_range(pieces, begin, end);
      begin = end;
    }
    EXPECT_EQ(whole, pieces);
  }
}

TEST_P(Fold, ScaleAloneIsAFoldOfOneSource) {
  std::mt19937_64 random(10);
  constexpr size_t kCount = 100;
  const Bytes from = random_values(GetParam(), kCount, random);
  Bytes want(from.size());
  reference_fold({GetParam(), ReduceOp::kSum, 0.75}, {from}, kCount, want);
  Bytes into = from;
  scale(GetParam(), into.data(), into.data(), kCount, 0.75);
  EXPECT_EQ(into, want);
}

INSTANTIATE_TEST_SUITE_P(Types, Fold, testing::ValuesIn(kAllTypes),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

TEST(Fold, AveragesEqualIntegersExactly) {
  for (int32_t n = 2; n < 200; ++n) {
    const int32_t one = 1;
    const std::vector<const std::byte*> sources(static_cast<size_t>(n),
                                                reinterpret_cast<const std::byte*>(&one));
    int32_t average = 0;
    fold(DType::kI32, ReduceOp::kAverage, reinterpret_cast<std::byte*>(&average), sources, 1,
         1.0 / n);
    EXPECT_EQ(average, 1) << n;
  }
}

TEST(Fold, RoundsHalvesOnceNotAtEverySource) {
  // 2048 + 1 is a tie in f16 that rounds down, so folding with a rounding each time would stay at
  // 2048 for ever.
  std::vector<uint16_t> values(9, nearest_half(1, kF16Format));
  values[0] = nearest_half(2048, kF16Format);
  std::vector<const std::byte*> sources;
  for (const uint16_t& value : values)
    sources.push_back(reinterpret_cast<const std::byte*>(&value));
  uint16_t sum = 0;
  fold(DType::kF16, ReduceOp::kSum, reinterpret_cast<std::byte*>(&sum), sources, 1, 1);
  EXPECT_EQ(value_of(sum, kF16Format), 2056);
}

TEST(Fold, RefusesNoSources) {
  EXPECT_THROW(fold(DType::kF32, ReduceOp::kSum, nullptr, {}, 0, 1), ContractError);
}

// --- Adasum's ---

class AdasumKernels : public testing::TestWithParam<DType> {
 protected:
  static constexpr size_t kCounts[] = {0, 1, 7, 8, 9, 511, 512, 513, 2000};

  /// Of ordinary size.
  Bytes values(size_t count, uint64_t seed) const {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    Bytes bytes(count * size_of(GetParam()));
    for (size_t i = 0; i < count; ++i) {
      const double value = normal(random);
      if (is_half(GetParam())) {
        write_as(bytes.data(), i, nearest_half(value, format_of(GetParam())));
      } else if (GetParam() == DType::kF32) {
        write_as(bytes.data(), i, static_cast<float>(value));
      } else {
        write_as(bytes.data(), i, value);
      }
    }
    return bytes;
  }
  [[nodiscard]] double at(const Bytes& bytes, size_t i) const {
    if (is_half(GetParam()))
      return value_of(read_as<uint16_t>(bytes.data(), i), format_of(GetParam()));
    return GetParam() == DType::kF32 ? read_as<float>(bytes.data(), i)
                                     : read_as<double>(bytes.data(), i);
  }
  [[nodiscard]] size_t type() const { return static_cast<size_t>(GetParam()); }
};

TEST_P(AdasumKernels, DotsAreRightAndTheSameBitsInEverySet) {
  for (const size_t count : kCounts) {
    const Bytes a = values(count, 1), b = values(count, 2);
    double a_a = 0, a_b = 0, b_b = 0;
    for (size_t i = 0; i < count; ++i) {
      a_a += at(a, i) * at(a, i);
      a_b += at(a, i) * at(b, i);
      b_b += at(b, i) * at(b, i);
    }
    const Dots baseline = available_kernels()[0]->dots[type()](a.data(), b.data(), count);
    const double slack = 1e-12 * static_cast<double>(count);
    EXPECT_NEAR(baseline.a_a, a_a, slack);
    EXPECT_NEAR(baseline.a_b, a_b, slack);
    EXPECT_NEAR(baseline.b_b, b_b, slack);
    for (const Kernels* kernels : available_kernels()) {
      const Dots dots = kernels->dots[type()](a.data(), b.data(), count);
      EXPECT_EQ(dots.a_a, baseline.a_a) << kernels->name << " " << count;
      EXPECT_EQ(dots.a_b, baseline.a_b) << kernels->name << " " << count;
      EXPECT_EQ(dots.b_b, baseline.b_b) << kernels->name << " " << count;
    }
  }
}

TEST_P(AdasumKernels, CombineIsRightAndTheSameBitsInEverySet) {
  const double slack = GetParam() == DType::kBF16 ? 0.04 : GetParam() == DType::kF16 ? 4e-3 : 1e-6;
  for (const size_t count : kCounts) {
    const Bytes a = values(count, 3), b = values(count, 4);
    Bytes baseline(a.size());
    available_kernels()[0]->combine[type()](baseline.data(), a.data(), 0.7, b.data(), -1.3, count);
    for (size_t i = 0; i < count; ++i)
      EXPECT_NEAR(at(baseline, i), 0.7 * at(a, i) - 1.3 * at(b, i), slack) << i;
    for (const Kernels* kernels : available_kernels()) {
      Bytes into = a;
      kernels->combine[type()](into.data(), into.data(), 0.7, b.data(), -1.3, count);
      EXPECT_EQ(into, baseline) << kernels->name << " " << count;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, AdasumKernels,
                         testing::Values(DType::kF16, DType::kBF16, DType::kF32, DType::kF64),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

TEST(AdasumKernels, AreNoFold) {
  float value = 1;
  auto* bytes = reinterpret_cast<std::byte*>(&value);
  const std::vector<const std::byte*> sources = {bytes};
  EXPECT_THROW(fold(DType::kF32, ReduceOp::kAdasum, bytes, sources, 1, 1), ContractError);
  EXPECT_THROW((void)dots(DType::kI32, bytes, bytes, 1), ContractError);
}

// --- Casts ---

template <typename From, typename Into>
std::vector<Into> cast_with(const Kernels& kernels, DType from_dtype, const std::vector<From>& from,
                            DType into_dtype) {
  std::vector<Into> into(from.size());
  kernels.cast[static_cast<size_t>(from_dtype)][static_cast<size_t>(into_dtype)](
      reinterpret_cast<const std::byte*>(from.data()), reinterpret_cast<std::byte*>(into.data()),
      from.size());
  return into;
}

std::vector<uint16_t> all_halves() {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  return halves;
}

class Cast : public testing::TestWithParam<DType> {
 protected:
  HalfFormat format() const { return format_of(GetParam()); }
};

TEST_P(Cast, EveryHalfToF32AndBackIsItself) {
  const std::vector<uint16_t> halves = all_halves();
  for (const Kernels* kernels : available_kernels()) {
    SCOPED_TRACE(kernels->name);
    const auto wide = cast_with<uint16_t, float>(*kernels, GetParam(), halves, DType::kF32);
    const auto back = cast_with<float, uint16_t>(*kernels, DType::kF32, wide, GetParam());
    const auto doubles = cast_with<uint16_t, double>(*kernels, GetParam(), halves, DType::kF64);
    for (size_t i = 0; i < halves.size(); ++i) {
      const double value = value_of(halves[i], format());
      const bool nan = std::isnan(value);
      ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]),
                std::bit_cast<uint32_t>(canonical_float(static_cast<float>(value))))
          << i;
      ASSERT_EQ(std::bit_cast<uint64_t>(doubles[i]),
                std::bit_cast<uint64_t>(canonical_float(value)));
      ASSERT_EQ(back[i], nan ? canonical_nan(format()) : halves[i]) << i;
    }
  }
}

/// Around each half: the value, the tie to its neighbour, and the f32 values next to the tie.
std::vector<float> values_around_every_half(HalfFormat format) {
  std::vector<float> values;
  for (const uint16_t half : all_halves()) {
    const auto value = static_cast<float>(value_of(half, format));
    const auto next = static_cast<float>(value_of(static_cast<uint16_t>(half + 1), format));
    const float tie = std::isfinite(value) && std::isfinite(next) ? value / 2 + next / 2 : value;
    for (const float v : {value, tie}) {
      values.push_back(v);
      values.push_back(std::nextafterf(v, INFINITY));
      values.push_back(std::nextafterf(v, -INFINITY));
    }
  }
  return values;
}

std::vector<float> interesting_floats(HalfFormat format) {
  std::vector<float> values = values_around_every_half(format);
  std::mt19937_64 random(11);
  for (int i = 0; i < 200000; ++i)
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  for (const uint32_t bits :
       {0x7f800000U, 0xff800000U, 0x7f800001U, 0xffffffffU, 0x7f7fffffU, 0x477fefffU, 0x477ff000U,
        0x477fffffU, 0x7f7f7fffU, 0x7f7f8000U, 1U, 0x80000001U}) {
    values.push_back(std::bit_cast<float>(bits));
  }
  return values;
}

TEST_P(Cast, F32RoundsToNearestEvenAroundEveryHalf) {
  const std::vector<float> values = interesting_floats(format());
  std::vector<uint16_t> want;
  for (const float value : values) want.push_back(nearest_half(value, format()));
  for (const Kernels* kernels : available_kernels()) {
    SCOPED_TRACE(kernels->name);
    const auto halves = cast_with<float, uint16_t>(*kernels, DType::kF32, values, GetParam());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(halves[i], want[i]) << std::bit_cast<uint32_t>(values[i]);
    }
  }
}

TEST_P(Cast, F64RoundsOnce) {
  // Just beside a tie, by less than f32 can hold: rounding to f32 first would make it a tie.
  std::vector<double> values;
  for (const float value : values_around_every_half(format())) {
    values.push_back(value);
    values.push_back(std::nextafter(static_cast<double>(value), INFINITY));
    values.push_back(std::nextafter(static_cast<double>(value), -INFINITY));
  }
  values.insert(values.end(), {1e300, -1e300, 1e-300, -1e-300, 0.0, -0.0});
  std::vector<uint16_t> want;
  for (const double value : values) want.push_back(nearest_half(value, format()));
  for (const Kernels* kernels : available_kernels()) {
    SCOPED_TRACE(kernels->name);
    const auto halves = cast_with<double, uint16_t>(*kernels, DType::kF64, values, GetParam());
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(halves[i], want[i]) << values[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Halves, Cast, testing::Values(DType::kF16, DType::kBF16),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

TEST(Cast, ConvertsBetweenTheTwoHalvesAndBetweenF32AndF64) {
  const std::vector<uint16_t> halves = all_halves();
  for (const Kernels* kernels : available_kernels()) {
    const auto brains = cast_with<uint16_t, uint16_t>(*kernels, DType::kF16, halves, DType::kBF16);
    for (size_t i = 0; i < halves.size(); ++i) {
      ASSERT_EQ(brains[i], nearest_half(value_of(halves[i], kF16Format), kBF16Format)) << i;
    }
    const std::vector<double> values = {0.1, -1e300, 1e-320, -0.0, std::nan("7")};
    const auto floats = cast_with<double, float>(*kernels, DType::kF64, values, DType::kF32);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(std::bit_cast<uint32_t>(floats[i]),
                std::bit_cast<uint32_t>(canonical_float(static_cast<float>(values[i]))));
    }
  }
}

TEST(Cast, ToTheSameTypeCopiesAndIntegersAreRefused) {
  const int32_t from = -3;
  int32_t into = 0;
  cast(DType::kI32, reinterpret_cast<const std::byte*>(&from), DType::kI32,
       reinterpret_cast<std::byte*>(&into), 1);
  EXPECT_EQ(into, -3);
  EXPECT_THROW(cast(DType::kI32, reinterpret_cast<const std::byte*>(&from), DType::kF32,
                    reinterpret_cast<std::byte*>(&into), 1),
               ContractError);
}

TEST(Kernels, BaselineIsAlwaysThereAndFirst) {
  EXPECT_STREQ(available_kernels().front()->name, "baseline");
}

}  // namespace
}  // namespace corro::device
