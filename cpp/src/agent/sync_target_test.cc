#include "agent/sync_target.h"

#include <fcntl.h>
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

SyncedFile describe(const fs::path& root, const std::string& path) {
  const std::string whole = (root / path).string();
  SyncedFile file = look_at_file(AT_FDCWD, whole).value();
  file.path = path;
  if (file.kind != SyncedKind::kFile) return file;
  ContentReader reader = ContentReader::open(AT_FDCWD, whole).value();
  uint64_t most = UINT64_MAX;
  EXPECT_TRUE(reader.read(most).ok());
  file.content = reader.finish();
  return file;
}

fs::perms mode_of(const fs::path& path) { return fs::symlink_status(path).permissions(); }

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

  [[nodiscard]] Sync list(const std::vector<std::string>& paths) const {
    Sync sync{.root = to().string(), .files = {}, .last = true};
    for (const std::string& path : paths) sync.files.push_back(describe(from(), path));
    return sync;
  }

  /// Brings the files there; returns what was said at last.
  MessageBody bring(const std::vector<std::string>& paths) {
    std::deque<MessageBody> said;
    SyncTarget target([&](MessageBody body) { said.push_back(std::move(body)); });
    target.hear(list(paths));
    if (after_list) after_list();
    for (turns = 0; target.busy(); ++turns) target.advance();
    MessageBody last;
    sent = 0;
    while (!said.empty()) {
      last = std::move(said.front());
      said.pop_front();
      const auto* want = std::get_if<Want>(&last);
      if (want == nullptr) continue;
      target.hear(read_part(paths[want->file], *want));
      ++sent;
      if (after_part) after_part();
    }
    return last;
  }
  [[nodiscard]] Part read_part(const std::string& path, const Want& want) const {
    Part part{want.file, want.offset, Bytes(kMaxPartBytes)};
    std::ifstream file(from() / path, std::ios::binary);
    file.seekg(static_cast<std::streamoff>(want.offset));
    file.read(reinterpret_cast<char*>(part.bytes.data()), kMaxPartBytes);
    part.bytes.resize(static_cast<size_t>(file.gcount()));
    return part;
  }

  fs::path base_;
  size_t sent = 0;
  size_t turns = 0;
  std::function<void()> after_list, after_part;
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

TEST_F(SyncTargetTest, GivesFilesAndFoldersThePermissionsOfHere) {
  write_file(from() / "private/secret", "text");
  write_file(from() / "run", "text");
  write_file(from() / "private/empty", "");
  fs::permissions(from() / "private/secret", fs::perms(0600));
  fs::permissions(from() / "private/empty", fs::perms(0400));
  fs::permissions(from() / "private", fs::perms(0700));
  fs::permissions(from() / "run", fs::perms(0775));
  fs::permissions(from(), fs::perms(0750));
  const mode_t before = umask(022);
  const std::vector<std::string> paths = {".", "private", "private/secret", "private/empty", "run"};
  EXPECT_EQ(std::get<Lacking>(bring(paths)).files, 0);
  umask(before);
  EXPECT_EQ(mode_of(to()), fs::perms(0750));
  EXPECT_EQ(mode_of(to() / "private"), fs::perms(0700));
  EXPECT_EQ(mode_of(to() / "private/secret"), fs::perms(0600));
  EXPECT_EQ(mode_of(to() / "private/empty"), fs::perms(0400));
  EXPECT_EQ(mode_of(to() / "run"), fs::perms(0775));
}

TEST_F(SyncTargetTest, ChangesPermissionsWithoutSending) {
  write_file(from() / "a/file", "text");
  (void)bring({"a", "a/file"});
  for (const unsigned mode : {0700U, 0755U, 0500U}) {
    fs::permissions(from() / "a", fs::perms(mode));
    fs::permissions(from() / "a/file", fs::perms(mode));
    EXPECT_EQ(std::get<Lacking>(bring({"a", "a/file"})).files, 0);
    EXPECT_EQ(sent, 0);
    EXPECT_EQ(mode_of(to() / "a"), fs::perms(mode));
    EXPECT_EQ(mode_of(to() / "a/file"), fs::perms(mode));
  }
}

TEST_F(SyncTargetTest, BringsFilesIntoAFolderThatNobodyMayWriteInto) {
  write_file(from() / "a/file", "text");
  fs::permissions(from() / "a", fs::perms(0500));
  for (const char* text : {"first", "second"}) {
    write_file(from() / "a/file", text);
    EXPECT_EQ(std::get<Lacking>(bring({"a", "a/file"})).files, 0);
    EXPECT_EQ(read_file(to() / "a/file"), text);
    EXPECT_EQ(mode_of(to() / "a"), fs::perms(0500));
  }
  for (const fs::path& root : {from(), to()}) fs::permissions(root / "a", fs::perms(0700));
}

TEST_F(SyncTargetTest, AFileIsNeverOpenToMoreUsersOnTheWay) {
  write_file(from() / "large", std::string(2 * kMaxPartBytes, 'x'));
  fs::permissions(from() / "large", fs::perms(0644));
  const mode_t before = umask(0);
  size_t seen = 0;
  after_part = [&] {
    for (const auto& entry : fs::directory_iterator(to())) {
      if (entry.path().filename() == "large") continue;
      ++seen;
      EXPECT_EQ(mode_of(entry.path()), fs::perms(0600));
    }
  };
  (void)bring({"large"});
  umask(before);
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(mode_of(to() / "large"), fs::perms(0644));
}

TEST_F(SyncTargetTest, WritesThroughNoLinkThatIsThere) {
  write_file(from() / "a/b/file", "text");
  fs::create_directories(base_ / "outside/b");
  write_file(base_ / "outside/file", "stays");
  for (const char* link : {"a", "a/b"}) {
    fs::remove_all(to());
    fs::create_directories((to() / link).parent_path());
    fs::create_directory_symlink(base_ / "outside", to() / link);
    const auto end = bring({"a/b/file"});
    ASSERT_TRUE(std::holds_alternative<Refused>(end)) << link;
    EXPECT_NE(std::get<Refused>(end).why.find((to() / link).string() + " is a link to "),
              std::string::npos)
        << std::get<Refused>(end).why;
    EXPECT_EQ(read_file(base_ / "outside/file"), "stays");
    EXPECT_TRUE(fs::is_empty(base_ / "outside/b"));
  }
}

TEST_F(SyncTargetTest, ReplacesALinkInTheWayOfAFile) {
  write_file(from() / "file", "text");
  write_file(base_ / "outside", "text");
  fs::create_directories(to());
  fs::create_symlink(base_ / "outside", to() / "file");
  EXPECT_EQ(std::get<Lacking>(bring({"file"})).files, 0);
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(to() / "file")));
  EXPECT_TRUE(fs::exists(base_ / "outside"));
}

TEST_F(SyncTargetTest, LeavesNothingBehindWhenItIsInterrupted) {
  write_file(from() / "a/large", std::string(2 * kMaxPartBytes, 'x'));
  {
    SyncTarget target([](const MessageBody&) {});
    target.hear(list({"a", "a/large"}));
    while (target.busy()) target.advance();
    target.hear(read_part("a/large", Want{.file = 1, .offset = 0}));
    EXPECT_FALSE(fs::is_empty(to() / "a")) << "a part is there";
  }
  EXPECT_TRUE(fs::is_empty(to() / "a"));
}

TEST_F(SyncTargetTest, RemovesWhatAKilledOneHasLeft) {
  write_file(from() / "a/file", "text");
  write_file(to() / "a/.corro-part-0123456789abcdef", "left");
  (void)bring({"a", "a/file"});
  EXPECT_EQ(std::distance(fs::directory_iterator(to() / "a"), fs::directory_iterator()), 1);
}

TEST_F(SyncTargetTest, ReadsALargeFileInManyTurns) {
  constexpr size_t kTurns = 5;
  for (const fs::path& root : {from(), to()}) {
    write_file(root / "large", "");
    fs::resize_file(root / "large", kTurns * SyncTarget::kBytesAtOnce);
    fs::permissions(root / "large", fs::perms(0600));
  }
  EXPECT_EQ(std::get<Lacking>(bring({"large"})).files, 0);
  EXPECT_EQ(sent, 0);
  EXPECT_GE(turns, kTurns);
}

TEST_F(SyncTargetTest, SaysHowMuchOfALargeFileIsMissing) {
  constexpr uint64_t kSize = uint64_t{20} << 20U;
  write_file(from() / "large", "");
  fs::resize_file(from() / "large", kSize);
  std::deque<MessageBody> said;
  std::vector<uint64_t> missing;
  SyncTarget target([&](MessageBody body) { said.push_back(std::move(body)); });
  target.hear(list({"large"}));
  while (target.busy()) target.advance();
  while (!said.empty()) {
    const MessageBody body = std::move(said.front());
    said.pop_front();
    if (const auto* lacking = std::get_if<Lacking>(&body)) missing.push_back(lacking->bytes);
    if (const auto* want = std::get_if<Want>(&body)) target.hear(read_part("large", *want));
  }
  EXPECT_EQ(missing, (std::vector<uint64_t>{kSize, kSize - (8U << 20U), kSize - (16U << 20U), 0}));
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
  for (const char* path : {"../out", "/etc/out", "a/../../out", "", ".", "a//b", "./a", "a/."}) {
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
