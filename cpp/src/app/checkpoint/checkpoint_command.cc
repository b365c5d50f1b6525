#include "app/checkpoint/checkpoint_command.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "app/program.h"
#include "checkpoint/reader.h"
#include "diagnosis/exit_status.h"

namespace corro::app {
namespace {

using checkpoint::Manifest;
using checkpoint::Opened;
using checkpoint::TableEntry;
using checkpoint::TensorEntry;
using Json = nlohmann::ordered_json;

constexpr int kDamaged = 1;

std::string size_text(uint64_t bytes) {
  constexpr uint64_t kKib = 1024;
  if (bytes < kKib) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  while (value >= kKib && unit + 1 < std::size(kUnits)) {
    value /= kKib;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

uint64_t file_bytes(const Manifest& manifest) {
  uint64_t bytes = 0;
  for (const checkpoint::FileEntry& file : manifest.files) bytes += file.bytes;
  return bytes;
}

/// ", 2 tables"; nothing if there are none.
std::string count_of_tables(const Manifest& manifest) {
  const size_t count = manifest.tables.size();
  return count == 0 ? "" : fmt::format(", {} table{}", count, count == 1 ? "" : "s");
}

/// A name on one line of the terminal: control characters are shown as "?".
std::string shown(std::string text) {
  std::ranges::replace_if(text, [](char c) { return (c >= 0 && c < ' ') || c == '\x7F'; }, '?');
  return text;
}

/// A line that shows how far a long reading is, on a terminal alone.
class Bar {
 public:
  explicit Bar(uint64_t total) : total_(total), is_shown_(isatty(STDERR_FILENO) != 0) {}
  ~Bar() {
    if (is_shown_) fmt::print(stderr, "\r\x1b[K");
  }
  Bar(const Bar&) = delete;
  Bar& operator=(const Bar&) = delete;

  void advance(uint64_t bytes) {
    constexpr uint64_t kWidth = 30;
    done_ += bytes;
    if (!is_shown_ || total_ == 0) return;
    const uint64_t filled = std::min(kWidth, done_ * kWidth / total_);
    fmt::print(stderr, "\r[{:=<{}}{: <{}}] {} of {}", "", filled, "", kWidth - filled,
               size_text(done_), size_text(total_));
    (void)fflush(stderr);
  }

 private:
  uint64_t total_;
  bool is_shown_;
  uint64_t done_ = 0;
};

/// The steps that the command is about; it fails if there are none.
Result<std::vector<uint64_t>> chosen_steps(const CheckpointCommand& command) {
  CORRO_ASSIGN(std::vector<uint64_t> steps, checkpoint::steps_in(command.folder));
  if (steps.empty())
    return Status(Code::kNotFound, command.folder + ": there are no checkpoints in this folder");
  if (!command.step) return steps;
  if (!std::ranges::count(steps, *command.step)) {
    return Status(Code::kNotFound,
                  fmt::format("{}: there is no checkpoint of step {}; there are: {}",
                              command.folder, *command.step, fmt::join(steps, ", ")));
  }
  return std::vector{*command.step};
}

int list(const CheckpointCommand& command, const std::vector<uint64_t>& steps) {
  Json rows = Json::array();
  if (!command.json)
    fmt::print("{:>10}  {:>5}  {:>7}  {:>6}  {:>10}\n", "STEP", "RANKS", "TENSORS", "TABLES",
               "SIZE");
  for (const uint64_t step : steps) {
    const auto opened = Opened::open(command.folder, step);
    if (command.json) {
      Json row = {{"step", step}};
      if (opened.ok()) {
        row["world"] = opened->manifest().world;
        row["tensors"] = opened->manifest().tensors.size();
        row["tables"] = opened->manifest().tables.size();
        row["bytes"] = file_bytes(opened->manifest());
      } else {
        row["damaged"] = opened.status().message();
      }
      rows.push_back(std::move(row));
    } else if (opened.ok()) {
      const Manifest& manifest = opened->manifest();
      fmt::print("{:>10}  {:>5}  {:>7}  {:>6}  {:>10}\n", step, manifest.world,
                 manifest.tensors.size(), manifest.tables.size(), size_text(file_bytes(manifest)));
    } else {
      fmt::print("{:>10}  {}\n", step, opened.status().message());
    }
  }
  if (command.json) fmt::print("{}\n", rows.dump(2));
  return 0;
}

int verify(const CheckpointCommand& command, const std::vector<uint64_t>& steps) {
  int exit_status = 0;
  for (const uint64_t step : steps) {
    const auto opened = Opened::open(command.folder, step);
    Status status = opened.status();
    if (opened.ok()) {
      Bar bar(file_bytes(opened->manifest()));
      status = opened->verify([&bar](uint64_t bytes) { bar.advance(bytes); });
    }
    if (status.ok()) {
      const Manifest& manifest = opened->manifest();
      fmt::print("step {}: valid, {} in {} files{}\n", step, size_text(file_bytes(manifest)),
                 manifest.files.size(), count_of_tables(manifest));
    } else {
      fmt::print("step {}: {}\n", step, status.message());
      exit_status = kDamaged;
    }
  }
  return exit_status;
}

std::set<std::string> files_of(const TensorEntry& tensor, const Manifest& manifest) {
  std::set<std::string> names;
  for (const checkpoint::Piece& piece : tensor.pieces)
    names.insert(manifest.files[piece.file].name);
  return names;
}

uint64_t bytes_of(const TensorEntry& tensor) {
  return checkpoint::elements_of(tensor.shape) * size_of(tensor.dtype);
}

uint64_t bytes_of(const TableEntry& table, const Manifest& manifest) {
  uint64_t bytes = 0;
  for (const uint32_t file : table.files) bytes += manifest.files[file].bytes;
  return bytes;
}

Json json_tables(const Manifest& manifest) {
  Json tables = Json::array();
  for (const TableEntry& table : manifest.tables) {
    Json files = Json::array();
    for (const uint32_t file : table.files) files.push_back(manifest.files[file].name);
    const auto base = table.base ? Json(table.base->step) : Json();
    tables.push_back({{"name", table.name},
                      {"steps", table.steps},
                      {"base", base},
                      {"rows", table.rows},
                      {"bytes", bytes_of(table, manifest)},
                      {"files", std::move(files)}});
  }
  return tables;
}

void show_json(const Manifest& manifest) {
  Json tensors = Json::array();
  for (const TensorEntry& tensor : manifest.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"dtype", name_of(tensor.dtype)},
                       {"shape", tensor.shape},
                       {"bytes", bytes_of(tensor)},
                       {"files", files_of(tensor, manifest)}});
  }
  const Json document = {{"step", manifest.step},         {"world", manifest.world},
                         {"bytes", file_bytes(manifest)}, {"values", Json::parse(manifest.values)},
                         {"tensors", std::move(tensors)}, {"tables", json_tables(manifest)}};
  fmt::print("{}\n", document.dump(2));
}

void show_tables(const Manifest& manifest) {
  size_t width = 5;
  for (const TableEntry& table : manifest.tables) width = std::max(width, table.name.size());
  fmt::print("\n{:<{}}  {:>10}  {:>12}  {:>10}  {}\n", "TABLE", width, "STEPS", "ROWS", "SIZE",
             "PARTS");
  for (const TableEntry& table : manifest.tables)
    fmt::print("{:<{}}  {:>10}  {:>12}  {:>10}  {}{}\n", shown(table.name), width, table.steps,
               table.rows, size_text(bytes_of(table, manifest)), table.files.size(),
               table.base ? fmt::format(", builds on step {}", table.base->step) : "");
}

void show_tensors(const Manifest& manifest) {
  size_t width = 6;
  for (const TensorEntry& tensor : manifest.tensors) width = std::max(width, tensor.name.size());
  fmt::print("{:<{}}  {:<5}  {:>10}  {}\n", "TENSOR", width, "DTYPE", "BYTES", "SHAPE");
  for (const TensorEntry& tensor : manifest.tensors) {
    fmt::print("{:<{}}  {:<5}  {:>10}  [{}]\n", shown(tensor.name), width, name_of(tensor.dtype),
               bytes_of(tensor), fmt::join(tensor.shape, ", "));
  }
}

void show_text(const Manifest& manifest) {
  fmt::print("step {}, written by {} rank{}: {} tensors{}, {}\n\n", manifest.step, manifest.world,
             manifest.world == 1 ? "" : "s", manifest.tensors.size(), count_of_tables(manifest),
             size_text(file_bytes(manifest)));
  show_tensors(manifest);
  if (!manifest.tables.empty()) show_tables(manifest);
  fmt::print("\nvalues: {}\n", manifest.values);
}

int show(const CheckpointCommand& command, uint64_t step) {
  const auto opened = Opened::open(command.folder, step);
  if (!opened.ok()) {
    complain(fmt::format("corro checkpoint show: {}", opened.status().message()));
    return kDamaged;
  }
  command.json ? show_json(opened->manifest()) : show_text(opened->manifest());
  return 0;
}

}  // namespace

int checkpoint_command(const CheckpointCommand& command) {
  const auto steps = chosen_steps(command);
  if (!steps.ok()) {
    complain(fmt::format("corro checkpoint {}: {}", command.action, steps.status().message()));
    return diagnosis::kUsageExit;
  }
  if (command.action == "ls") return list(command, *steps);
  if (command.action == "verify") return verify(command, *steps);
  return show(command, steps->front());
}

}  // namespace corro::app
