// The text is one JSON object. Its last field is the checksum of all that stands in front of that
// field, so a text that was cut or changed anywhere is recognised before it is parsed:
//
//   {"corro_checkpoint":1,"step":7,...,"tensors":[...],"crc32c":"0a1b2c3d"}\n
//   |<------------- the checksum is of this -------->|
#include "checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/quoted.h"
#include "checkpoint/crc32c.h"
#include "plan/json.h"

namespace corro::checkpoint {
namespace {

using plan::Json;
using plan::ObjectReader;
using plan::Place;
using plan::Reading;

constexpr uint64_t kVersion = 1;
constexpr std::string_view kSeal = R"(,"crc32c":")";
constexpr std::string_view kEnd = "\"}\n";
constexpr size_t kDigits = 8;  // of a checksum, hexadecimal
constexpr int64_t kMost = int64_t{1} << 62U;
constexpr int64_t kMostRanks = int64_t{1} << 20U;

std::string hexadecimal(std::span<const uint32_t> checksums) {
  std::string text;
  text.reserve(checksums.size() * kDigits);
  for (const uint32_t sum : checksums) fmt::format_to(std::back_inserter(text), "{:08x}", sum);
  return text;
}

/// Nothing if the text is anything but whole checksums.
std::optional<std::vector<uint32_t>> read_checksums(std::string_view text) {
  if (text.size() % kDigits != 0) return std::nullopt;
  std::vector<uint32_t> sums(text.size() / kDigits);
  for (size_t i = 0; i < sums.size(); ++i) {
    const char* from = text.data() + i * kDigits;
    const auto [end, error] = std::from_chars(from, from + kDigits, sums[i], 16);
    if (error != std::errc() || end != from + kDigits) return std::nullopt;
  }
  return sums;
}

uint32_t checksum_of(std::string_view text) { return crc32c(std::as_bytes(std::span(text))); }

/// The text without its seal, closed again; DATA_LOSS unless the checksum is right.
Result<std::string> unsealed(std::string_view text, std::string_view name) {
  const size_t seal = kSeal.size() + kDigits + kEnd.size();
  const Status damaged(Code::kDataLoss, fmt::format("{}: is damaged or cut", name));
  if (text.size() < seal || !text.ends_with(kEnd)) return damaged;
  const std::string_view body = text.substr(0, text.size() - seal);
  const std::string_view sealed = text.substr(body.size());
  const auto sum = read_checksums(sealed.substr(kSeal.size(), kDigits));
  if (!sealed.starts_with(kSeal) || !sum || sum->front() != checksum_of(body)) return damaged;
  return std::string(body) + "}";
}

// -- writing --------------------------------------------------------------------------------------

Json json_of(const TensorEntry& tensor) {
  Json pieces = Json::array();
  for (const Piece& piece : tensor.pieces) {
    pieces.push_back({{"file", piece.file},
                      {"offset", piece.offset},
                      {"offsets", piece.box.offsets},
                      {"shape", piece.box.shape}});
  }
  return {{"name", tensor.name},
          {"dtype", name_of(tensor.dtype)},
          {"shape", tensor.shape},
          {"pieces", std::move(pieces)}};
}

Json json_of(const FileEntry& file) {
  return {{"name", file.name}, {"bytes", file.bytes}, {"crc32c", hexadecimal(file.checksums)}};
}

Json json_of(const TableEntry& table) {
  Json json = {
      {"name", table.name}, {"steps", table.steps}, {"rows", table.rows}, {"files", table.files}};
  if (table.base) {
    json["base"] = table.base->step;
    json["base_crc32c"] = table.base->checksum;
  }
  return json;
}

template <typename Entry>
Json json_list(const std::vector<Entry>& entries) {
  Json list = Json::array();
  for (const Entry& entry : entries) list.push_back(json_of(entry));
  return list;
}

// -- reading --------------------------------------------------------------------------------------

Shape read_shape(ObjectReader& object, std::string_view field, Reading& reading) {
  Shape shape;
  object.list(field, [&](const Json& item, const Place& place) {
    const bool is_length = item.is_number_integer() && item >= 0 && item <= kMost;
    if (!is_length) return reading.fail(place, "must be an integer of at least 0");
    shape.push_back(item.get<int64_t>());
  });
  return shape;
}

/// A file lies in the checkpoint's own folder, whatever a manifest says.
bool is_file_name(std::string_view name) {
  return plan::is_name(name) && name.find('/') == std::string_view::npos && name.front() != '.';
}

FileEntry read_file_entry(const Json& json, const Place& place, Reading& reading) {
  ObjectReader object(json, place, reading, {"name", "bytes", "crc32c"});
  FileEntry file{.name = object.text("name"),
                 .bytes = static_cast<uint64_t>(object.integer("bytes", {0, kMost}))};
  if (reading.ok() && !is_file_name(file.name))
    reading.fail({&place, "name", {}}, "must be a file's name, without a folder");
  const auto sums = read_checksums(object.text("crc32c"));
  if (!sums || sums->size() != blocks_of(file.bytes))
    reading.fail({&place, "crc32c", {}}, "must be 8 digits for each MiB of the file");
  file.checksums = sums.value_or(std::vector<uint32_t>());
  return file;
}

bool is_inside(const Box& box, const Shape& whole) {
  if (box.offsets.size() != whole.size() || box.shape.size() != whole.size()) return false;
  for (size_t dim = 0; dim < whole.size(); ++dim) {
    if (box.offsets[dim] > whole[dim] || box.shape[dim] > whole[dim] - box.offsets[dim])
      return false;
  }
  return true;
}

Piece read_piece(const Json& json, const Place& place, const TensorEntry& tensor,
                 const std::vector<FileEntry>& files, Reading& reading) {
  ObjectReader object(json, place, reading, {"file", "offset", "offsets", "shape"});
  const auto last = static_cast<int64_t>(files.size()) - 1;
  Piece piece;
  piece.file = static_cast<uint32_t>(object.integer("file", {0, std::max<int64_t>(0, last)}));
  piece.offset = static_cast<uint64_t>(object.integer("offset", {0, kMost}));
  piece.box = {read_shape(object, "offsets", reading), read_shape(object, "shape", reading)};
  if (!reading.ok()) return piece;
  if (!is_inside(piece.box, tensor.shape)) {
    reading.fail(place, "is not a part of its tensor");
    return piece;
  }
  const uint64_t bytes = elements_of(piece.box.shape) * size_of(tensor.dtype);
  const uint64_t size = files.empty() ? 0 : files[piece.file].bytes;
  if (piece.offset > size || bytes > size - piece.offset)
    reading.fail(place, "lies outside of its file");
  return piece;
}

TensorEntry read_tensor(const Json& json, const Place& place, const std::vector<FileEntry>& files,
                        Reading& reading) {
  ObjectReader object(json, place, reading, {"name", "dtype", "shape", "pieces"});
  TensorEntry tensor{.name = object.text("name"),
                     .dtype = object.choice<DType>("dtype", kDTypeCount),
                     .shape = read_shape(object, "shape", reading)};
  if (reading.ok() && !is_sensible(tensor.shape, size_of(tensor.dtype)))
    reading.fail({&place, "shape", {}}, "is too large");
  object.list("pieces", [&](const Json& item, const Place& at) {
    tensor.pieces.push_back(read_piece(item, at, tensor, files, reading));
  });
  return tensor;
}

TableEntry read_table(const Json& json, const Place& place, size_t file_count, Reading& reading) {
  ObjectReader object(json, place, reading,
                      {"name", "steps", "rows", "files", "base", "base_crc32c"});
  TableEntry table{.name = object.text("name"),
                   .steps = static_cast<uint64_t>(object.integer("steps", {0, kMost})),
                   .rows = static_cast<uint64_t>(object.integer("rows", {0, kMost}))};
  object.list("files", [&](const Json& item, const Place& at) {
    if (!item.is_number_integer() || item < 0 || item >= file_count)
      return reading.fail(at, "must be the place of a file in \"files\"");
    table.files.push_back(item.get<uint32_t>());
  });
  if (object.find("base") != nullptr)
    table.base =
        Base{.step = static_cast<uint64_t>(object.integer("base", {0, kMost})),
             .checksum = static_cast<uint32_t>(object.integer("base_crc32c", {0, UINT32_MAX}))};
  return table;
}

template <typename Entry>
void check_names(const std::vector<Entry>& entries, std::string_view field, Reading& reading) {
  std::vector<std::string_view> names;
  for (const Entry& entry : entries) names.push_back(entry.name);
  std::ranges::sort(names);
  if (std::ranges::adjacent_find(names) != names.end())
    reading.fail({nullptr, field, {}}, "has a name twice");
}

// -- merging --------------------------------------------------------------------------------------

/// Those of tables are written by servers, of which there may be more or fewer than ranks.
Status check_same(const Manifest& first, const Manifest& part) {
  const bool is_of_world = part.world == first.world || !part.tables.empty();
  if (part.step == first.step && is_of_world && !part.files.empty()) return {};
  return {Code::kFailedPrecondition,
          fmt::format("a part of step {} by {} ranks cannot be merged with one of step {} by {}",
                      part.step, part.world, first.step, first.world)};
}

Status merge_tables(Manifest& merged, Manifest& part, uint32_t first_file) {
  for (TableEntry& table : part.tables) {
    for (uint32_t& file : table.files) file += first_file;
    const auto known = std::ranges::find(merged.tables, table.name, &TableEntry::name);
    if (known == merged.tables.end()) {
      merged.tables.push_back(std::move(table));
      continue;
    }
    if (known->steps != table.steps || known->base != table.base)
      return {Code::kFailedPrecondition,
              fmt::format("parts of the table {} are of its steps {} and {}, or build on others",
                          corro::quoted(table.name), known->steps, table.steps)};
    known->rows += table.rows;
    known->files.insert(known->files.end(), table.files.begin(), table.files.end());
  }
  return {};
}

/// The pieces of a tensor, by their first offset.
std::vector<const Piece*> sorted_pieces(const TensorEntry& tensor) {
  std::vector<const Piece*> pieces;
  for (const Piece& piece : tensor.pieces) {
    if (elements_of(piece.box.shape) > 0) pieces.push_back(&piece);
  }
  std::ranges::sort(pieces, {}, [](const Piece* piece) { return piece->box.offsets; });
  return pieces;
}

/// Only pieces whose intervals of the first dim meet are compared, which are few: ranks cut there.
bool has_overlap(const std::vector<const Piece*>& pieces) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Box& box = pieces[i]->box;
    for (size_t j = i + 1; j < pieces.size(); ++j) {
      const Box& next = pieces[j]->box;
      if (!box.shape.empty() && next.offsets[0] >= box.offsets[0] + box.shape[0]) break;
      if (overlap(box, next)) return true;
    }
  }
  return false;
}

}  // namespace

Result<std::string> manifest_to_text(const Manifest& manifest) {
  CORRO_ASSIGN(Json values, plan::parse_json(manifest.values, "values"));
  // nlohmann sorts fields by name: the version goes first by hand.
  Json fields = {{"step", manifest.step},
                 {"world", manifest.world},
                 {"block_bytes", kBlockBytes},
                 {"values", std::move(values)},
                 {"files", json_list(manifest.files)},
                 {"tensors", json_list(manifest.tensors)}};
  if (!manifest.tables.empty()) fields["tables"] = json_list(manifest.tables);
  std::string text;
  try {
    text = fields.dump();
  } catch (const Json::exception&) {
    return Status(Code::kInvalidArgument, "a name of the checkpoint is not UTF-8");
  }
  text = fmt::format(R"({{"corro_checkpoint":{},)", kVersion) + text.substr(1, text.size() - 2);
  if (text.size() + kSeal.size() + kDigits + kEnd.size() > plan::kMostJsonBytes) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("the manifest would have {} bytes, more than 64 MiB: it has {} tensors "
                    "in {} files",
                    text.size(), manifest.tensors.size(), manifest.files.size()));
  }
  const uint32_t sum = checksum_of(text);
  return text + fmt::format("{}{:08x}{}", kSeal, sum, kEnd);
}

Result<Manifest> read_manifest(std::string_view text, std::string_view name) {
  CORRO_ASSIGN(const std::string body, unsealed(text, name));
  CORRO_ASSIGN(const Json document, plan::parse_json(body, name));
  Reading reading(name);
  plan::check_version(document, "corro_checkpoint", kVersion, reading);
  CORRO_TRY(reading.status());
  ObjectReader object(
      document, {}, reading,
      {"corro_checkpoint", "step", "world", "block_bytes", "values", "files", "tensors", "tables"});
  Manifest manifest;
  manifest.step = static_cast<uint64_t>(object.integer("step", {0, kMost}));
  manifest.world = static_cast<uint32_t>(object.integer("world", {1, kMostRanks}));
  constexpr auto kBlock = static_cast<int64_t>(kBlockBytes);
  (void)object.integer("block_bytes", {kBlock, kBlock});
  if (const Json* values = object.find("values")) manifest.values = values->dump();
  object.list("files", [&](const Json& item, const Place& place) {
    manifest.files.push_back(read_file_entry(item, place, reading));
  });
  object.list("tensors", [&](const Json& item, const Place& place) {
    manifest.tensors.push_back(read_tensor(item, place, manifest.files, reading));
  });
  object.list("tables", [&](const Json& item, const Place& place) {
    manifest.tables.push_back(read_table(item, place, manifest.files.size(), reading));
  });
  check_names(manifest.tensors, "tensors", reading);
  check_names(manifest.tables, "tables", reading);
  CORRO_TRY(reading.status());
  return manifest;
}

Result<Manifest> merge(std::vector<Manifest> parts) {
  Manifest merged{.step = parts.at(0).step, .world = parts[0].world, .values = parts[0].values};
  std::map<std::string, size_t> places;
  for (Manifest& part : parts) {
    CORRO_TRY(check_same(merged, part));
    const auto first_file = static_cast<uint32_t>(merged.files.size());
    std::ranges::move(part.files, std::back_inserter(merged.files));
    CORRO_TRY(merge_tables(merged, part, first_file));
    for (TensorEntry& tensor : part.tensors) {
      const auto [at, is_new] = places.emplace(tensor.name, merged.tensors.size());
      if (is_new) merged.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, {}});
      TensorEntry& known = merged.tensors[at->second];
      if (known.dtype != tensor.dtype || known.shape != tensor.shape) {
        return Status(Code::kFailedPrecondition,
                      fmt::format("ranks have different shapes or dtypes of the tensor {}",
                                  corro::quoted(tensor.name)));
      }
      for (Piece& piece : tensor.pieces) {
        piece.file += first_file;
        known.pieces.push_back(std::move(piece));
      }
    }
  }
  CORRO_TRY(check_complete(merged));
  return merged;
}

Status check_complete(const Manifest& manifest) {
  for (const TensorEntry& tensor : manifest.tensors) {
    const std::vector<const Piece*> pieces = sorted_pieces(tensor);
    uint64_t covered = 0;
    for (const Piece* piece : pieces) covered += elements_of(piece->box.shape);
    const char* what = nullptr;
    if (covered < elements_of(tensor.shape)) what = "not all of it was written";
    if (covered > elements_of(tensor.shape) || has_overlap(pieces)) what = "parts of it overlap";
    if (what != nullptr)
      return {Code::kDataLoss, fmt::format("tensor {}: {}", corro::quoted(tensor.name), what)};
  }
  return {};
}

uint64_t tensor_bytes(const Manifest& manifest) {
  uint64_t bytes = 0;
  for (const TensorEntry& tensor : manifest.tensors)
    bytes += elements_of(tensor.shape) * size_of(tensor.dtype);
  return bytes;
}

}  // namespace corro::checkpoint
