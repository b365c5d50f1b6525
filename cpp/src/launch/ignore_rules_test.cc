#include "launch/ignore_rules.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace corro::launch {
namespace {

namespace fs = std::filesystem;

TEST(FitsPattern, KnowsWhatGitKnows) {
  EXPECT_TRUE(fits_pattern("*.o", "main.o"));
  EXPECT_FALSE(fits_pattern("*.o", "src/main.o"));
  EXPECT_TRUE(fits_pattern("data-[0-9]?", "data-7x"));
  EXPECT_FALSE(fits_pattern("data-[!0-9]", "data-7"));
  EXPECT_TRUE(fits_pattern("a/**/b", "a/b"));
  EXPECT_TRUE(fits_pattern("a/**/b", "a/x/y/b"));
  EXPECT_FALSE(fits_pattern("a/**/b", "ab"));
  EXPECT_TRUE(fits_pattern("**/cache", "x/y/cache"));
  EXPECT_TRUE(fits_pattern("logs/**", "logs/a/b"));
  EXPECT_FALSE(fits_pattern("logs/**", "logs"));
  EXPECT_TRUE(fits_pattern("\\#odd", "#odd"));
  EXPECT_TRUE(fits_pattern("[a]", "a"));
  EXPECT_TRUE(fits_pattern("[]]", "]"));
  EXPECT_FALSE(fits_pattern("[a", "[a"));
  EXPECT_TRUE(fits_pattern("[[:alpha:]_]*", "_x"));
  EXPECT_FALSE(fits_pattern("[![:digit:]]", "7"));
  EXPECT_FALSE(fits_pattern("a*b", "a/b"));
}

TEST(IgnoreRules, LetTheLastRuleWin) {
  IgnoreRules rules;
  rules.add("# comment\n\n*.pt\n!best.pt\nbuild/\n/top\n trailing \n", "");
  EXPECT_TRUE(rules.ignores("x/last.pt", false));
  EXPECT_FALSE(rules.ignores("x/best.pt", false));
  EXPECT_TRUE(rules.ignores("x/build", true));
  EXPECT_FALSE(rules.ignores("x/build", false)) << "a file of this name is no folder";
  EXPECT_TRUE(rules.ignores("top", false));
  EXPECT_FALSE(rules.ignores("x/top", false));
  EXPECT_TRUE(rules.ignores(" trailing", false));
}

TEST(IgnoreRules, HoldBelowTheirOwnFolder) {
  IgnoreRules rules;
  rules.add("*.log", "");
  rules.add("!keep.log\n/only\nsub/*.txt\n", "a/");
  EXPECT_TRUE(rules.ignores("keep.log", false));
  EXPECT_FALSE(rules.ignores("a/b/keep.log", false));
  EXPECT_TRUE(rules.ignores("a/only", true));
  EXPECT_FALSE(rules.ignores("a/b/only", true));
  EXPECT_TRUE(rules.ignores("a/sub/x.txt", false));
  EXPECT_FALSE(rules.ignores("a/b/sub/x.txt", false));
}

/// A git work tree with some files, in which git says what it ignores.
class GitIgnoreTest : public testing::Test {
 protected:
  GitIgnoreTest() {
    std::string name = testing::TempDir() + "/ignore-XXXXXX";
    root_ = mkdtemp(name.data());
    for (const std::string& path : paths()) {
      fs::create_directories((root_ / path).parent_path());
      std::ofstream(root_ / path) << "x";
    }
  }
  ~GitIgnoreTest() override { fs::remove_all(root_); }

  static const std::vector<std::string>& paths() {
    static const std::vector<std::string> all = {"[a",
                                                 "]",
                                                 "-",
                                                 "a]",
                                                 "b",
                                                 "B",
                                                 "7",
                                                 "a b",
                                                 "\\",
                                                 "x\\y",
                                                 "^",
                                                 "!x",
                                                 "#x",
                                                 "a:",
                                                 "é",
                                                 "end ",
                                                 "main.o",
                                                 "src/main.o",
                                                 "src/deep/er/main.o",
                                                 "logs/x",
                                                 "logs/y/z",
                                                 "foo.txt",
                                                 "axx/yy/b",
                                                 "cache/x",
                                                 "x/cache/y",
                                                 "x/y/cache",
                                                 "top/[b]",
                                                 "data-7x",
                                                 "abc",
                                                 "a-c",
                                                 "a.b.c",
                                                 "tab\t"};
    return all;
  }
  [[nodiscard]] std::string ask_git(const std::string& command) const {
    const std::string whole = "cd " + root_.string() +
                              " && env -u GIT_DIR -u GIT_WORK_TREE GIT_CONFIG_GLOBAL=/dev/null "
                              "GIT_CONFIG_SYSTEM=/dev/null git " +
                              command + " 2>&1";
    FILE* pipe = popen(whole.c_str(), "r");
    std::string said;
    std::array<char, 4096> block{};
    for (size_t count = 1; pipe != nullptr && count > 0;) {
      count = fread(block.data(), 1, block.size(), pipe);
      said.append(block.data(), count);
    }
    status = pclose(pipe);
    return said;
  }
  /// Of paths(), those that git ignores by these rules.
  [[nodiscard]] std::set<std::string> ignored_by_git(const std::string& text) const {
    std::ofstream(root_ / ".gitignore", std::ios::binary) << text;
    std::ofstream list(root_ / "list", std::ios::binary);
    for (const std::string& path : paths()) list << path << '\0';
    list.close();
    std::set<std::string> ignored;
    std::istringstream said(ask_git("check-ignore --no-index --stdin -z < list"));
    for (std::string path; std::getline(said, path, '\0');) ignored.insert(path);
    EXPECT_LE(WEXITSTATUS(status), 1) << text;
    return ignored;
  }
  /// The same by ours: what is below a folder that is ignored is ignored.
  static std::set<std::string> ignored_by_us(const std::string& text) {
    IgnoreRules rules;
    rules.add(text, "");
    std::set<std::string> ignored;
    for (const std::string& path : paths()) {
      bool is_ignored = rules.ignores(path, false);
      for (size_t slash = path.find('/'); slash != std::string::npos;
           slash = path.find('/', slash + 1))
        is_ignored = is_ignored || rules.ignores(path.substr(0, slash), true);
      if (is_ignored) ignored.insert(path);
    }
    return ignored;
  }

  fs::path root_;
  mutable int status = 0;
};

TEST_F(GitIgnoreTest, SaysTheSame) {
  if (const std::string said = ask_git("init -q ."); status != 0)
    GTEST_SKIP() << "git does not work here: " << said;
  const std::vector<std::string> texts = {"[a",
                                          "\\[a",
                                          "[a]",
                                          "*[",
                                          "[",
                                          "[]",
                                          "[]]",
                                          "[]-a]",
                                          "[!]]",
                                          "[^a-z]",
                                          "[a-]",
                                          "[-a]",
                                          "[^]",
                                          "[!x]x",
                                          "[[:alpha:]]",
                                          "[[:upper:]]",
                                          "[![:digit:]]",
                                          "[[:digit:][:punct:]]",
                                          "data-[[:digit:]][[:lower:]]",
                                          "[[:space:]]",
                                          "a[[:space:]]b",
                                          "[[:nope:]]",
                                          "[[:alpha]",
                                          "[[:alpha:]",
                                          "[[:]",
                                          "[[:]]",
                                          "[:alpha:]",
                                          "a[[:punct:]]",
                                          "[[:alpha:]-7]",
                                          "[[:cntrl:]]",
                                          "[a-[:digit:]]",
                                          "[\\]]",
                                          "[\\\\]",
                                          "[\\a-\\z]",
                                          "[z-a]",
                                          "[*]",
                                          "?",
                                          "??",
                                          "*",
                                          "*.o",
                                          "/*.o",
                                          "src/*.o",
                                          "src/**",
                                          "src/**/main.o",
                                          "**/main.o",
                                          "**",
                                          "**/",
                                          "a**/b",
                                          "a*/**/b",
                                          "axx/**b",
                                          "**yy/b",
                                          "src/***/main.o",
                                          "*/cache",
                                          "**/cache",
                                          "cache/",
                                          "x/cache",
                                          "/cache",
                                          "cache/**",
                                          "\\",
                                          "a\\",
                                          "x\\\\y",
                                          "\\!x",
                                          "!x",
                                          "\\#x",
                                          "#x",
                                          "end\\ ",
                                          "end ",
                                          "end\\  ",
                                          "end\\\\ ",
                                          "*\n!main.o",
                                          "*.o\n!src/main.o",
                                          "logs/*\n!logs/y",
                                          "src/\n!src/main.o",
                                          "\xEF\xBB\xBF*.o",
                                          "*.o\r\nb\r\n",
                                          "/",
                                          "//",
                                          "logs//",
                                          "logs//x",
                                          "/logs/x",
                                          "foo.*",
                                          "f*o.t?t",
                                          "*.*",
                                          "a.*.c",
                                          "[a-c]-c",
                                          "a[+-.]c",
                                          "a[/]b",
                                          "logs[/]x",
                                          "logs?x",
                                          "\xC3\xA9",
                                          "tab\t",
                                          "tab\\\t",
                                          "top/[[]b[]]",
                                          "top/\\[b\\]",
                                          "*b*",
                                          "***",
                                          "a*b*c",
                                          "!*",
                                          "  ",
                                          " *.o"};
  for (const std::string& text : texts)
    EXPECT_EQ(ignored_by_us(text + "\n"), ignored_by_git(text + "\n")) << '"' << text << '"';
}

}  // namespace
}  // namespace corro::launch
