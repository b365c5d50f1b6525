#include "plan/model/model_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>

#include "plan/bad_files.h"
#include "plan/model/known_models.h"
#include "plan/model/model_writer.h"

namespace corro::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

BadFiles bad_models() { return read_bad_files(CORRO_MODEL_SOURCES "/bad_models.json"); }

TEST(ModelFile, EachBadFileIsOneLineWithFileLineAndField) {
  const BadFiles files = bad_models();
  ASSERT_TRUE(read_model(files.good, "m").ok()) << read_model(files.good, "m").status().message();
  for (const BadFile& bad : files.cases) {
    SCOPED_TRACE(bad.what);
    expect_refused(read_model(bad.text, "model.json").status(), bad.error);
  }
}

TEST(ModelFile, SaysWhatItHolds) {
  const Model model = read_model(bad_models().good, "m").value();
  EXPECT_EQ(model.dtype, DType::kF32);
  EXPECT_EQ(layer_count(model), 5);
  EXPECT_EQ(parameter_count(model), 800 + 3 * 4008);
  EXPECT_EQ(forward_flops(model), 3e9 + 1e6);
  EXPECT_EQ(model.layers[1], (LayerRun{1, 3, "h.{}"}));
  const LayerType& block = model.types[1];
  EXPECT_EQ(block.experts, 4);
  EXPECT_EQ(block.experts_moved, 2048);
  EXPECT_EQ(block.keys_and_values, 512.5);
  EXPECT_EQ(block.operators[1].inputs, (std::vector<uint32_t>{0, Operator::kLayerInput}));
  EXPECT_EQ(block.operators[0].saved, 1024);
  EXPECT_EQ(model.types[0].operators[0].most_ways, 100);
}

Model random_model(std::mt19937_64& random) {
  const auto amount = [&] {
    return random() % 3 == 0 ? 0 : std::uniform_real_distribution<double>(0, 1e18)(random);
  };
  Model model{.name = "m", .sequence = static_cast<uint32_t>(random())};
  model.dtype = static_cast<DType>(random() % kDTypeCount);
  for (size_t i = 0; i <= random() % 3; ++i) {
    LayerType type{.name = "type " + std::to_string(i), .experts = 1};
    type.experts_moved = amount();
    type.keys_and_values = amount();
    for (uint32_t j = 0; j <= random() % 5; ++j) {
      Operator op{.name = "\xc3\xb6 '{}' " + std::to_string(j)};
      op.kind = static_cast<OperatorKind>(random() % kOperatorKindCount);
      for (uint32_t k = 0; k < random() % 3; ++k) {
        op.inputs.push_back(j == 0 || random() % 2 == 0 ? Operator::kLayerInput
                                                        : static_cast<uint32_t>(random() % j));
      }
      op.flops = amount();
      op.traffic = amount();
      op.output = amount();
      op.saved = amount();
      op.parameters = random() % 1'000'000'000'000;
      op.most_ways = static_cast<uint32_t>(1 + random() % 1000);
      type.operators.push_back(op);
    }
    model.types.push_back(type);
  }
  for (size_t i = 0; i <= random() % 4; ++i) {
    model.layers.push_back({.type = static_cast<uint32_t>(random() % model.types.size()),
                            .count = static_cast<uint32_t>(1 + random() % 9),
                            .name = random() % 2 == 0 ? "" : "h.{}"});
  }
  return model;
}

TEST(ModelFile, WhatIsWrittenIsReadAgain) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Model model = random_model(random);
    const auto text = write_model(model);
    ASSERT_TRUE(text.ok()) << text.status().message();
    const auto again = read_model(*text, "again");
    ASSERT_TRUE(again.ok()) << again.status().message() << *text;
    EXPECT_EQ(*again, model) << *text;
    EXPECT_EQ(write_model(*again).value(), *text);
  }
}

TEST(ModelFile, OfATransformerIsReadAgain) {
  for (const KnownModel& known : known_models()) {
    SCOPED_TRACE(known.name);
    const auto model = make_known_model(known.name);
    ASSERT_TRUE(model.ok()) << model.status().message();
    const auto text = write_model(*model);
    ASSERT_TRUE(text.ok()) << text.status().message();
    EXPECT_EQ(read_model(*text, "again").value(), *model);
  }
}

TEST(ModelFile, WhatWouldBeRefusedIsNotWritten) {
  const auto refusal = [](auto change) {
    Model model = make_known_model("gpt2-small").value();
    change(model);
    return write_model(model).status().message();
  };
  EXPECT_EQ(refusal([](Model&) {}), "");
  EXPECT_EQ(refusal([](Model& m) { m.layers[1].type = 9; }), "model: layers[1].type: is none");
  EXPECT_THAT(refusal([](Model& m) { m.types[0].name = "\""; }),
              StartsWith("model: types[0].name"));
  EXPECT_THAT(refusal([](Model& m) { m.types[1].operators[2].inputs = {2}; }),
              StartsWith("model: types[1].operators[2].inputs: must be"));
  EXPECT_THAT(refusal([](Model& m) { m.types[1].operators[2].flops = -1; }), HasSubstr("flops"));
  EXPECT_THAT(refusal([](Model& m) {
                m.types[1].operators[2].flops = std::numeric_limits<double>::quiet_NaN();
              }),
              HasSubstr("flops"));
  EXPECT_THAT(refusal([](Model& m) { m.layers.clear(); }), HasSubstr("layers"));
  EXPECT_THAT(refusal([](Model& m) { m.tied_parameters *= 2; }), HasSubstr("tied_parameters"));
}

TEST(ModelFile, HasAtMost1e18Parameters) {
  Model model = make_known_model("gpt2-small").value();
  model.types[1].operators[1].parameters = 1'000'000'000'000'000;
  model.layers[1].count = 1001;
  EXPECT_THAT(write_model(model).status().message(), HasSubstr("more than 1e18 parameters"));
}

TEST(ModelFile, ATextThatIsTooLongIsNotRead) {
  EXPECT_EQ(read_model(std::string(kMostModelBytes + 1, ' ') + "{", "big").status().message(),
            "big: has 67108866 bytes; at most 67108864 are read");
}

TEST(ModelFile, ARecordedModelKeepsItsSequence) {
  const std::string text = write_model(make_known_model("gpt2-small").value()).value();
  EXPECT_EQ(read_model(text, "m", {.sequence = 512}).status().message(),
            "m: sequence: a model file has its own, and cannot be given another");
}

}  // namespace
}  // namespace corro::plan
