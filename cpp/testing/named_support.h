// What the tests of named operations in a World share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "testing/world.h"

namespace corro::testing {

struct NamedCase {
  int32_t size;
  bool board;
  uint64_t fusion_bytes;

  [[nodiscard]] WorldOptions world(uint64_t seed) const {
    return {
        .size = size, .seed = seed, .board = board, .fusion = {.threshold_bytes = fusion_bytes}};
  }
};

inline std::string name_of_named_case(const ::testing::TestParamInfo<NamedCase>& info) {
  const NamedCase& c = info.param;
  return fmt::format("{}_ranks_{}_{}", c.size, c.board ? "board" : "streams",
                     c.fusion_bytes > 0 ? "fused" : "alone");
}

inline auto named_cases() {
  constexpr uint64_t kFused = uint64_t{64} << 10U;
  return ::testing::Values(NamedCase{1, true, kFused}, NamedCase{2, true, kFused},
                           NamedCase{4, true, kFused}, NamedCase{4, true, 0},
                           NamedCase{2, false, kFused}, NamedCase{3, false, kFused},
                           NamedCase{3, false, 0});
}

/// A tensor on one rank: reduced in place.
struct Tensor {
  std::string name;
  std::vector<float> data;

  [[nodiscard]] collective::OpRequest request(OpKind kind = OpKind::kAllreduce) {
    auto* bytes = reinterpret_cast<std::byte*>(data.data());
    return {.kind = kind,
            .dtype = DType::kF32,
            .input = bytes,
            .output = bytes,
            .count = data.size(),
            .name = name};
  }
};

/// Every rank's tensors of a step. Values are whole numbers: every order of additions gives the
/// same bits.
class Tensors {
 public:
  Tensors(int32_t ranks, size_t count, uint64_t salt = 0) {
    for (int32_t r = 0; r < ranks; ++r) {
      auto& own = by_rank_.emplace_back();
      for (size_t i = 0; i < count; ++i) {
        Tensor tensor{.name = fmt::format("grad.{}", i), .data = {}};
        for (size_t k = 0; k < 1 + i * 37 % 301; ++k) tensor.data.push_back(value(r, i, k, salt));
        own.push_back(std::move(tensor));
      }
    }
  }
  std::vector<Tensor>& of(int32_t rank) { return by_rank_[static_cast<size_t>(rank)]; }

  /// The first tensor that is not the sum over all ranks, or "".
  [[nodiscard]] std::string wrong(uint64_t salt = 0) const {
    for (size_t r = 0; r < by_rank_.size(); ++r) {
      for (size_t i = 0; i < by_rank_[r].size(); ++i) {
        const Tensor& tensor = by_rank_[r][i];
        for (size_t k = 0; k < tensor.data.size(); ++k) {
          float sum = 0;
          for (size_t p = 0; p < by_rank_.size(); ++p)
            sum += value(static_cast<int32_t>(p), i, k, salt);
          if (tensor.data[k] != sum) {
            return fmt::format("{}[{}] on rank {}: {} instead of {}", tensor.name, k, r,
                               tensor.data[k], sum);
          }
        }
      }
    }
    return "";
  }

 private:
  static float value(int32_t rank, size_t i, size_t k, uint64_t salt) {
    return static_cast<float>((i * 7 + k * 3 + static_cast<size_t>(rank) * 13 + salt) % 101);
  }
  std::vector<std::vector<Tensor>> by_rank_;
};

inline std::shared_ptr<runtime::WorkState> submit_named(
    World& world, runtime::Engine& engine, runtime::Group& group,
    std::vector<collective::OpRequest> requests) {
  auto work = std::make_shared<runtime::WorkState>(std::move(requests));
  work->named = true;
  engine.submit(group, work, world.now());
  return work;
}

inline std::shared_ptr<runtime::WorkState> submit_named(World& world, int32_t rank,
                                                        collective::OpRequest request) {
  std::vector<collective::OpRequest> requests;
  requests.push_back(std::move(request));
  runtime::Engine& engine = world.engine(rank);
  return submit_named(world, engine, engine.world(), std::move(requests));
}

/// Operations run and messages sent for names so far, all ranks together.
inline uint64_t operations(World& world) {
  uint64_t total = 0;
  for (int32_t r = 0; r < world.size(); ++r)
    total += world.engine(r).recorder().metrics().value(obs::Metric::kOps);
  return total;
}
inline uint64_t named_messages(World& world) {
  uint64_t total = 0;
  for (int32_t r = 0; r < world.size(); ++r)
    total += world.engine(r).recorder().metrics().value(obs::Metric::kNamedMessages);
  return total;
}

}  // namespace corro::testing
