// Little-endian reading and writing of byte spans with bounds checks: every decoder of foreign
// bytes uses it.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace corro {

using Bytes = std::vector<std::byte>;
using BytesView = std::span<const std::byte>;

static_assert(std::endian::native == std::endian::little, "corro's wire format is little-endian");

/// Appends fixed-width little-endian fields to a buffer. Loop-confined.
class ByteWriter {
 public:
  template <std::integral T>
  void write(T value) {
    const auto* raw = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), raw, raw + sizeof(T));
  }
  void write_bytes(BytesView view) { bytes_.insert(bytes_.end(), view.begin(), view.end()); }
  /// Writes a u32 length and the bytes.
  void write_string(std::string_view text) {
    write(static_cast<uint32_t>(text.size()));
    write_bytes(std::as_bytes(std::span(text)));
  }
  [[nodiscard]] const Bytes& bytes() const { return bytes_; }
  [[nodiscard]] Bytes take() { return std::move(bytes_); }

 private:
  Bytes bytes_;
};

/// Reads fixed-width fields from foreign bytes. Once a read does not fit, every later read fails
/// too. Loop-confined.
class ByteReader {
 public:
  explicit ByteReader(BytesView bytes) : rest_(bytes) {}

  template <std::integral T>
  [[nodiscard]] std::optional<T> read() {
    if (rest_.size() < sizeof(T)) return fail<T>();
    T value;
    std::memcpy(&value, rest_.data(), sizeof(T));
    rest_ = rest_.subspan(sizeof(T));
    return value;
  }
  [[nodiscard]] std::optional<BytesView> read_bytes(size_t count) {
    if (rest_.size() < count) return fail<BytesView>();
    const BytesView view = rest_.first(count);
    rest_ = rest_.subspan(count);
    return view;
  }
  /// Reads a u32 length, refuses one above `cap`, and returns the text.
  [[nodiscard]] std::optional<std::string> read_string(size_t cap) {
    const auto length = read<uint32_t>();
    if (!length || *length > cap) return fail<std::string>();
    const auto view = read_bytes(*length);
    if (!view) return std::nullopt;
    return std::string(reinterpret_cast<const char*>(view->data()), view->size());
  }
  [[nodiscard]] size_t remaining() const { return rest_.size(); }
  [[nodiscard]] bool done() const { return rest_.empty() && !failed_; }

 private:
  template <typename T>
  std::optional<T> fail() {
    failed_ = true;
    rest_ = {};
    return std::nullopt;
  }
  BytesView rest_;
  bool failed_ = false;
};

}  // namespace corro
