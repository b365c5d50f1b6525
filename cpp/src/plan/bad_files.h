// For tests of readers: a table of files that a reader has to refuse, each in one line.
//
//   {"good": "...", "cases": [["what is wrong", "a part of good", "instead of it", "the error"],
//                             ["another file", null, "its whole text", "the error"]]}
//
// An error that ends in a space is how the message begins: what follows is a parser's to say.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "plan/json.h"

namespace corro::plan {

struct BadFile {
  std::string what;
  std::string text;
  std::string error;
};

struct BadFiles {
  std::string good;
  std::vector<BadFile> cases;
  Json table;  ///< All that the file has.
};

/// `good`: instead of the table's.
inline BadFiles read_bad_files(const std::string& path, std::string good = {}) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  BadFiles files{.good = std::move(good), .cases = {}, .table = Json::parse(text.str())};
  if (files.good.empty()) files.good = files.table.at("good").get<std::string>();
  for (const Json& entry : files.table.at("cases")) {
    BadFile bad{.what = entry[0], .text = entry[2], .error = entry[3]};
    if (entry[1].is_string()) {
      const auto part = entry[1].get<std::string>();
      const size_t at = files.good.find(part);
      EXPECT_NE(at, std::string::npos) << bad.what << ": the good file has no " << part;
      if (at == std::string::npos) continue;
      bad.text = std::string(files.good).replace(at, part.size(), bad.text);
    }
    files.cases.push_back(std::move(bad));
  }
  return files;
}

inline void expect_refused(const Status& status, const std::string& error) {
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  if (error.ends_with(" ")) {
    EXPECT_THAT(status.message(), testing::StartsWith(error));
  } else {
    EXPECT_EQ(status.message(), error);
  }
  EXPECT_THAT(status.message(), testing::Not(testing::HasSubstr("\n")));
}

}  // namespace corro::plan
