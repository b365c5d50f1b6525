// read_tables() with a sealed memfd of the right size that begins with anything: zeros follow.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "obs/characters.h"
#include "obs/table_layout.h"
#include "obs/table_recorder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int fd = memfd_create("corro-fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  CORRO_CHECK(fd >= 0);
  CORRO_CHECK(::write(fd, data, size) == static_cast<ssize_t>(size));
  CORRO_CHECK(ftruncate(fd, sizeof(corro::obs::TableMemory)) == 0);
  CORRO_CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
  const auto tables = corro::obs::read_tables(fd);
  close(fd);
  if (!tables.ok()) return 0;
  CORRO_CHECK(tables->size() <= corro::obs::kMostShownTables);
  for (const corro::obs::TableCounts& table : *tables) {
    CORRO_CHECK(!table.name.empty());
    CORRO_CHECK(table.name.size() < sizeof(corro::obs::TableCell::name));
    CORRO_CHECK(corro::obs::is_shown(table.name));
  }
  return 0;
}
