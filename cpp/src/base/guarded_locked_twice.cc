// Must not compile under Clang's thread-safety analysis: the second lock() would wait for ever.
#include "base/guarded.h"

int add(corro::Guarded<int>& value) {
  const int one = *value.lock();  // Fine: over at the end of the statement.
  auto held = value.lock();
  auto again = value.lock();
  return one + *held + *again;
}
