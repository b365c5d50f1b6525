// Keys of a terminal, as bytes come from it. Pure.
//
//   KeyReader keys;
//   for (const Key key : keys.feed(bytes)) ...
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace corro::app {

enum class Key : uint8_t { kUp, kDown, kPageUp, kPageDown, kQuit };

/// Keys that it does not know are left out. Externally synchronized.
class KeyReader {
 public:
  /// A sequence may come in pieces: its key comes with the last one.
  [[nodiscard]] std::vector<Key> feed(std::string_view bytes);

 private:
  /// Takes one key, or what is none, from the front; 0: more has to come.
  [[nodiscard]] size_t take(std::vector<Key>& keys) const;

  std::string rest_;
};

}  // namespace corro::app
