#include "app/keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::app {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Keys, AreThoseThatScrollAndTheOneThatQuits) {
  KeyReader keys;
  EXPECT_THAT(keys.feed("\x1b[A\x1b[B\x1bOA\x1bOB"),
              ElementsAre(Key::kUp, Key::kDown, Key::kUp, Key::kDown));
  EXPECT_THAT(keys.feed("\x1b[5~\x1b[6~qQ"),
              ElementsAre(Key::kPageUp, Key::kPageDown, Key::kQuit, Key::kQuit));
}

TEST(Keys, ASequenceMayComeInPieces) {
  KeyReader keys;
  EXPECT_THAT(keys.feed("\x1b"), IsEmpty());
  EXPECT_THAT(keys.feed("["), IsEmpty());
  EXPECT_THAT(keys.feed("6"), IsEmpty());
  EXPECT_THAT(keys.feed("~"), ElementsAre(Key::kPageDown));
}

TEST(Keys, WhatItDoesNotKnowIsLeftOut) {
  KeyReader keys;
  EXPECT_THAT(keys.feed("x\n\x1b[15~\x1b[1;5A\xff\x1b[Z"), IsEmpty());
  EXPECT_THAT(keys.feed("q"), ElementsAre(Key::kQuit));
}

TEST(Keys, TheKeyEscDoesNotSwallowTheNextOne) {
  KeyReader keys;
  EXPECT_THAT(keys.feed("\x1b"), IsEmpty());
  EXPECT_THAT(keys.feed("q"), ElementsAre(Key::kQuit));
}

}  // namespace
}  // namespace corro::app
