// For tests: what a record store has to do whose leads are leases, on a real server, in real time.
#pragma once

#include <optional>
#include <string>

#include "coord/record_store_suite.h"

namespace corro::coordinator {

/// The term if this one leads; nothing, and a failed test where the store cannot say.
[[nodiscard]] std::optional<uint64_t> lead(coord::RecordStore& store, const std::string& name);

/// A lead that is renewed outlasts its lease; one that is not ends with it, for the next one.
void expect_that_a_lease_ends(coord::RecordStoreWorld& world);

/// Of two that ask at once one leads, each time in a later term, and it alone can write.
void expect_that_one_of_two_leads(coord::RecordStoreWorld& world);

}  // namespace corro::coordinator
