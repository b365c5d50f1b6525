#include "collective/operation/codec.h"

#include <array>

#include "base/check.h"
#include "device/reduce.h"

namespace corro::collective {
namespace {

class CastCodec final : public Codec {
 public:
  explicit CastCodec(DType into) : into_(into) {}

  [[nodiscard]] std::string_view name() const override { return name_of(into_); }
  [[nodiscard]] bool applies_to(DType dtype) const override {
    return is_floating(dtype) && size_of(into_) < size_of(dtype);
  }
  [[nodiscard]] std::optional<DType> folds_as() const override { return into_; }
  [[nodiscard]] uint64_t encoded_bytes(DType /*dtype*/, uint64_t count) const override {
    return count * size_of(into_);
  }
  [[nodiscard]] Status encode(DType dtype, const std::byte* from, uint64_t count,
                              std::byte* into) const override {
    device::cast(dtype, from, into_, into, count);
    return {};
  }
  [[nodiscard]] Status decode(DType dtype, const std::byte* from, uint64_t count,
                              std::byte* into) const override {
    device::cast(into_, from, dtype, into, count);
    return {};
  }

 private:
  const DType into_;
};

const std::array<std::shared_ptr<const Codec>, 3>& casts() {
  static const std::array<std::shared_ptr<const Codec>, 3> kAll = {
      std::make_shared<CastCodec>(DType::kF16), std::make_shared<CastCodec>(DType::kBF16),
      std::make_shared<CastCodec>(DType::kF32)};
  return kAll;
}

}  // namespace

std::shared_ptr<const Codec> cast_codec(DType into) {
  auto codec = codec_named(name_of(into));
  CORRO_CHECK(codec != nullptr, static_cast<int>(into));
  return codec;
}

std::shared_ptr<const Codec> codec_named(std::string_view name) {
  for (const auto& codec : casts()) {
    if (codec->name() == name) return codec;
  }
  return nullptr;
}

}  // namespace corro::collective
