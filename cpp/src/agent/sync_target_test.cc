#include "agent/sync_target.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace corro::agent {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

/// A folder here, and one there, with a commander between them that reads files by Want.
class SyncTargetTest : public testing::Test {
 protected:
  SyncTargetTest() {
    std::string name = testing::TempDir() + "/sync-XXXXXX";
    base_ = mkdtemp(name.data());
    fs::create_directories(from());
  }
  ~SyncTargetTest() override { fs::remove_all(base_); }

  [[nodiscard]] fs::path from() const { return base_ / "from"; }
  [[nodiscard]] fs::path to() const { return base_ / "to"; }

  /// Brings the files there; returns what was said at last.
  MessageBody bring(const std::vector<std::string>& paths) {
    std::deque<MessageBody> said;
    SyncTarget target([&](MessageBody body) { said.push_back(std::move(body)); });
    Sync sync{.root = to().string(), .files = {}, .last = true};
    for (const std::string& path : paths)
      sync.files.push_back(describe_file(from().string(), path).value());
    target.hear(sync);
    if (after_list) after_list();
    while (target.busy()) target.advance();
    MessageBody last;
    sent = 0;
    while (!said.empty()) {
      last = std::move(said.front());
      said.pop_front();
      const auto* want = std::get_if<Want>(&last);
      if (want == nullptr) continue;
      const std::string all = read_file(from() / paths[want->file]);
      const std::string part =
          all.substr(std::min<size_t>(want->offset, all.size()), kMaxPartBytes);
      const BytesView bytes = std::as_bytes(std::span(part));
      ++sent;
      target.hear(Part{want->file, want->offset, Bytes(bytes.begin(), bytes.end())});
    }
    return last;
  }

  fs::path base_;
  size_t sent = 0;
  std::function<void()> after_list;
};

TEST_F(SyncTargetTest, BringsWhatIsMissingAndNothingElse) {
  const std::string large(3 * kMaxPartBytes + 5, 'x');
  write_file(from() / "large", large);
  write_file(from() / "a/b/small", "text");
  write_file(from() / "empty", "");
  write_file(from() / "run.sh", "#!/bin/sh\n");
  fs::permissions(from() / "run.sh", fs::perms::owner_all);
  fs::create_symlink("run.sh", from() / "link");
  write_file(to() / "foreign", "stays");
  const std::vector<std::string> paths = {"large", "a/b/small", "empty", "run.sh", "link"};
  EXPECT_EQ(std::get<Lacking>(bring(paths)).files, 0);
  EXPECT_EQ(sent, 4 + 1 + 1);
  EXPECT_EQ(read_file(to() / "large"), large);
  EXPECT_EQ(read_file(to() / "a/b/small"), "text");
  EXPECT_TRUE(fs::exists(to() / "empty"));
  EXPECT_EQ(fs::read_symlink(to() / "link"), "run.sh");
  EXPECT_NE(fs::status(to() / "run.sh").permissions() & fs::perms::owner_exec, fs::perms::none);
  EXPECT_EQ(read_file(to() / "foreign"), "stays");
  EXPECT_EQ(std::get<Lacking>(bring(paths)).files, 0);
  EXPECT_EQ(sent, 0) << "a second time nothing is sent";
  write_file(from() / "a/b/small", "next");
  EXPECT_EQ(std::get<Lacking>(bring(paths)).files, 0);
  EXPECT_EQ(sent, 1);
  EXPECT_EQ(read_file(to() / "a/b/small"), "next");
}

TEST_F(SyncTargetTest, ChangesPermissionsWithoutSending) {
  write_file(from() / "run", "text");
  (void)bring({"run"});
  fs::permissions(from() / "run", fs::perms::owner_exec, fs::perm_options::add);
  (void)bring({"run"});
  EXPECT_EQ(sent, 0);
  EXPECT_NE(fs::status(to() / "run").permissions() & fs::perms::owner_exec, fs::perms::none);
}

TEST_F(SyncTargetTest, RefusesAFileThatChangesOnTheWay) {
  write_file(from() / "file", "before");
  for (const char* text : {"after!", "short", "much longer"}) {
    fs::remove_all(to());
    write_file(from() / "file", "before");
    after_list = [&] { write_file(from() / "file", text); };
    const auto end = bring({"file"});
    ASSERT_TRUE(std::holds_alternative<Refused>(end)) << text;
    EXPECT_NE(std::get<Refused>(end).why.find("has changed"), std::string::npos);
    EXPECT_TRUE(fs::is_empty(to())) << "nothing is left behind";
  }
}

TEST_F(SyncTargetTest, WritesNothingOutsideOfTheFolder) {
  for (const char* path : {"../out", "/etc/out", "a/../../out", ""}) {
    MessageBody said;
    SyncTarget target([&](MessageBody body) { said = std::move(body); });
    target.hear(Sync{.root = to().string(), .files = {{.path = path}}, .last = true});
    EXPECT_TRUE(std::holds_alternative<Refused>(said)) << path;
    EXPECT_FALSE(target.busy());
  }
}

TEST_F(SyncTargetTest, NamesTheFolderThatIsInTheWay) {
  write_file(from() / "name", "text");
  write_file(to() / "name/inside", "x");
  const auto end = bring({"name"});
  ASSERT_TRUE(std::holds_alternative<Refused>(end));
  EXPECT_NE(std::get<Refused>(end).why.find((to() / "name").string()), std::string::npos);
  EXPECT_EQ(read_file(to() / "name/inside"), "x");
}

}  // namespace
}  // namespace corro::agent
