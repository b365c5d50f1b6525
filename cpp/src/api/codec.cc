#include "api/codec.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "api/handles.h"
#include "collective/operation/request.h"

namespace corro::api {
namespace {

class GivenCodec final : public collective::Codec {
 public:
  explicit GivenCodec(const corro_codec& given) : given_(given), name_(given.name) {}

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] bool applies_to(DType dtype) const override {
    return is_floating(dtype) &&
           given_.applies_to(given_.context, static_cast<uint8_t>(dtype)) != 0;
  }
  [[nodiscard]] std::optional<DType> folds_as() const override {
    if (given_.folds == 0) return std::nullopt;
    return static_cast<DType>(given_.folded_dtype);
  }
  [[nodiscard]] uint64_t encoded_bytes(DType dtype, uint64_t count) const override {
    const uint64_t bytes = given_.encoded_bytes(given_.context, static_cast<uint8_t>(dtype), count);
    return std::min(bytes, collective::kMostElements);
  }
  [[nodiscard]] Status encode(DType dtype, const std::byte* from, uint64_t count,
                              std::byte* into) const override {
    return result("encode",
                  given_.encode(given_.context, static_cast<uint8_t>(dtype), from, count, into));
  }
  [[nodiscard]] Status decode(DType dtype, const std::byte* from, uint64_t count,
                              std::byte* into) const override {
    return result("decode",
                  given_.decode(given_.context, static_cast<uint8_t>(dtype), from, count, into));
  }

 private:
  [[nodiscard]] Status result(const char* what, int returned) const {
    if (returned == 0) return {};
    return {Code::kInternal, fmt::format("{} of codec \"{}\" returned {}", what, name_, returned)};
  }

  const corro_codec given_;
  const std::string name_;
};

constexpr std::array kCasts = {DType::kF16, DType::kBF16, DType::kF32};

template <DType Into>
corro_codec cast_to() {
  static const std::shared_ptr<const collective::Codec> kCodec = collective::cast_codec(Into);
  static const std::string kName(kCodec->name());
  return {.struct_size = sizeof(corro_codec),
          .name = kName.c_str(),
          .context = nullptr,
          .folds = 1,
          .folded_dtype = static_cast<uint8_t>(Into),
          .applies_to =
              [](void*, uint8_t dtype) {
                return dtype < kDTypeCount && kCodec->applies_to(static_cast<DType>(dtype)) ? 1 : 0;
              },
          .encoded_bytes =
              [](void*, uint8_t dtype, uint64_t count) {
                return kCodec->encoded_bytes(static_cast<DType>(dtype), count);
              },
          .encode =
              [](void*, uint8_t dtype, const void* from, uint64_t count, void* into) {
                return static_cast<int>(kCodec
                                            ->encode(static_cast<DType>(dtype),
                                                     static_cast<const std::byte*>(from), count,
                                                     static_cast<std::byte*>(into))
                                            .code());
              },
          .decode =
              [](void*, uint8_t dtype, const void* from, uint64_t count, void* into) {
                return static_cast<int>(kCodec
                                            ->decode(static_cast<DType>(dtype),
                                                     static_cast<const std::byte*>(from), count,
                                                     static_cast<std::byte*>(into))
                                            .code());
              }};
}

const std::array<corro_codec, kCasts.size()>& casts() {
  static const std::array kAll = {cast_to<DType::kF16>(), cast_to<DType::kBF16>(),
                                  cast_to<DType::kF32>()};
  return kAll;
}

Status check(const corro_codec& codec) {
  const auto wrong = [](const std::string& what) {
    return Status(Code::kInvalidArgument, "codec: " + what);
  };
  const std::string_view name = codec.name == nullptr ? "" : codec.name;
  if (name.empty() || name.size() > collective::kMostCodecName)
    return wrong(fmt::format("a name of 1 to {} bytes is needed", collective::kMostCodecName));
  if (collective::codec_named(name) != nullptr)
    return wrong(fmt::format("\"{}\" is the name of one of corro's: corro_cast_codec()", name));
  if (codec.folds != 0 && codec.folded_dtype >= kDTypeCount)
    return wrong(fmt::format("\"{}\" has unknown folded_dtype {}", name, codec.folded_dtype));
  const bool complete = codec.applies_to != nullptr && codec.encode != nullptr &&
                        codec.decode != nullptr &&
                        (codec.folds != 0 || codec.encoded_bytes != nullptr);
  return complete ? Status() : wrong(fmt::format("\"{}\" lacks a function", name));
}

}  // namespace

Result<std::shared_ptr<const collective::Codec>> read_codec(const corro_codec* given) {
  using Read = std::shared_ptr<const collective::Codec>;
  if (given == nullptr) return Read();
  for (size_t i = 0; i < kCasts.size(); ++i) {
    if (given == &casts().at(i)) return collective::cast_codec(kCasts.at(i));
  }
  corro_codec codec;
  CORRO_TRY(read_struct(given, codec));
  CORRO_TRY(check(codec));
  return Read(std::make_shared<GivenCodec>(codec));
}

}  // namespace corro::api

const corro_codec* corro_cast_codec(uint8_t dtype) {
  using corro::api::casts;
  for (const corro_codec& codec : casts()) {
    if (codec.folded_dtype == dtype) return &codec;
  }
  return nullptr;
}
