#include "obs/table_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string>

#include "base/check.h"
#include "obs/flight_layout.h"
#include "obs/table_layout.h"

namespace corro::obs {
namespace {

constexpr std::string_view kTables = "table recorder";

Status no_tables(std::string_view why) {
  return {Code::kDataLoss, fmt::format("{}: {}", kTables, why)};
}

/// Up to the first 0. What would do harm on a terminal is replaced.
std::string read_name(const decltype(TableCell::name)& words) {
  std::array<uint64_t, std::tuple_size_v<decltype(TableCell::name)>> read{};
  for (size_t i = 0; i < read.size(); ++i) read[i] = words[i].load(std::memory_order_relaxed);
  const auto bytes = std::bit_cast<std::array<char, sizeof read>>(read);
  std::string name(bytes.begin(), std::find(bytes.begin(), bytes.end() - 1, '\0'));
  std::ranges::replace_if(name, [](char c) { return c < ' ' || c > '~'; }, '?');
  return name;
}

/// The numbers of a table: where they stand, and what they are read as.
struct TableWord {
  std::atomic<uint64_t> TableCell::* word;
  uint64_t TableCounts::* value;
};
constexpr std::array<TableWord, 9> kTableWords = {{
    {&TableCell::rows, &TableCounts::rows},
    {&TableCell::bytes, &TableCounts::bytes},
    {&TableCell::shards, &TableCounts::shards},
    {&TableCell::steps, &TableCounts::steps},
    {&TableCell::pulls, &TableCounts::pulls},
    {&TableCell::pulled_rows, &TableCounts::pulled_rows},
    {&TableCell::pushes, &TableCounts::pushes},
    {&TableCell::pushed_rows, &TableCounts::pushed_rows},
    {&TableCell::pull_p99_ns, &TableCounts::pull_p99_ns},
}};

TableCounts read_table(const TableCell& cell) {
  TableCounts counts{.name = read_name(cell.name)};
  for (const auto& [word, value] : kTableWords)
    counts.*value = (cell.*word).load(std::memory_order_relaxed);
  return counts;
}

}  // namespace

// -- writing --------------------------------------------------------------------------------------

Result<std::unique_ptr<TableRecorder>> TableRecorder::create() {
  CORRO_ASSIGN(auto memory, SealedMemory::create(kTableMemfdName, sizeof(TableMemory), kTables));
  std::unique_ptr<TableRecorder> made(new TableRecorder(std::move(memory)));
  made->tables().header.magic.store(kTableMagic, std::memory_order_release);
  return made;
}

TableMemory& TableRecorder::tables() const {
  return *reinterpret_cast<TableMemory*>(memory_.bytes().get());
}

std::optional<size_t> TableRecorder::add(std::string_view name) {
  CORRO_CHECK(!name.empty());
  auto& count = tables().header.count;
  const uint64_t number = count.load(std::memory_order_relaxed);
  if (number == kMostShownTables) return std::nullopt;
  store_text(tables().cells[number].name, name);
  count.store(number + 1, std::memory_order_release);
  return number;
}

void TableRecorder::write(size_t number, const TableCounts& counts) {
  TableCell& cell = tables().cells.at(number);
  for (const auto& [word, value] : kTableWords)
    (cell.*word).store(counts.*value, std::memory_order_relaxed);
}

void TableRecorder::clear() { tables().header.count.store(0, std::memory_order_release); }

// -- reading --------------------------------------------------------------------------------------

Result<std::vector<TableCounts>> read_tables(int fd) {
  CORRO_ASSIGN(const SealedView view,
               SealedView::open(fd, sizeof(TableMemory), sizeof(TableMemory), kTables));
  const auto& memory = *reinterpret_cast<const TableMemory*>(view.data());
  const uint64_t magic = memory.header.magic.load(std::memory_order_acquire);
  if (magic != kTableMagic && magic << 8U >> 8U == kTableKind)
    return no_tables("another release of corro wrote it");
  if (magic != kTableMagic) return no_tables("memory has another format");
  const uint64_t count = memory.header.count.load(std::memory_order_acquire);
  if (count > kMostShownTables)
    return no_tables(fmt::format("{} tables, and {} are the most", count, kMostShownTables));
  std::vector<TableCounts> tables;
  for (size_t i = 0; i < count; ++i) {
    tables.push_back(read_table(memory.cells[i]));
    if (tables.back().name.empty()) return no_tables(fmt::format("table {} has no name", i));
  }
  return tables;
}

}  // namespace corro::obs
