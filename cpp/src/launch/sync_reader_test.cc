#include "launch/sync_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

namespace corro::launch {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

class SyncReaderTest : public testing::Test {
 protected:
  SyncReaderTest() {
    std::string name = testing::TempDir() + "/tree-XXXXXX";
    root_ = mkdtemp(name.data());
  }
  ~SyncReaderTest() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text = "text") const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  /// Reads to the end.
  std::vector<agent::SyncedFile> read(const std::string& below = "",
                                      const std::string& without = "") {
    SyncReader reader(root_ / below, without);
    for (turns = 0; !reader.done(); ++turns) {
      const Status status = reader.advance();
      if (!status.ok()) {
        ADD_FAILURE() << status.to_string();
        break;
      }
    }
    return reader.take().files();
  }
  std::vector<std::string> paths(const std::string& below = "", const std::string& without = "") {
    std::vector<std::string> paths;
    for (const agent::SyncedFile& file : read(below, without)) paths.push_back(file.path);
    return paths;
  }

  fs::path root_;
  size_t turns = 0;
};

TEST_F(SyncReaderTest, ListsFoldersBeforeWhatIsInThem) {
  write("b/c/file");
  write("a");
  write("__pycache__/x");
  write(".git/config");
  write("b/.corro-part-1");
  write("runs/rank-0.log");
  fs::create_directory(root_ / "empty");
  fs::create_symlink("nowhere", root_ / "link");
  ASSERT_EQ(mkfifo((root_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(paths("", root_ / "runs/"),
              ElementsAre(".", "a", "link", "b", "empty", "b/c", "b/c/file"));
}

TEST_F(SyncReaderTest, LeavesOutWhatGitIgnoresAboveAndBelow) {
  fs::create_directory(root_ / ".git");
  write(".gitignore", "*.pt\n/code/data/\n");
  write("code/.gitignore", "!keep.pt\n");
  for (const char* path : {"code/a.pt", "code/keep.pt", "code/data/x", "code/sub/b.pt"})
    write(path);
  EXPECT_THAT(paths("code"), ElementsAre(".", ".gitignore", "keep.pt", "sub"));
}

TEST_F(SyncReaderTest, DescribesWhatIsThere) {
  write("file");
  write("same", "text");
  write("other", "Text");
  fs::permissions(root_ / "file", fs::perms(0640));
  fs::permissions(root_, fs::perms(0750));
  fs::create_symlink("file", root_ / "link");
  const auto files = read();
  ASSERT_EQ(files.size(), 5);
  EXPECT_EQ(files[0].kind, agent::SyncedKind::kFolder);
  EXPECT_EQ(files[0].permissions, 0750);
  EXPECT_EQ(files[1].permissions, 0640);
  EXPECT_EQ(files[1].size, 4);
  EXPECT_EQ(files[2].link, "file");
  EXPECT_EQ(files[1].content, files[4].content);
  EXPECT_NE(files[1].content, files[3].content);
}

TEST_F(SyncReaderTest, ReadsALargeFileInManyTurns) {
  constexpr size_t kTurns = 5;
  write("large");
  fs::resize_file(root_ / "large", kTurns * SyncReader::kBytesAtOnce);
  EXPECT_EQ(read().size(), 2);
  EXPECT_GE(turns, kTurns);
}

TEST_F(SyncReaderTest, ReadsManyFilesInManyTurns) {
  constexpr size_t kTurns = 3;
  for (size_t i = 0; i < kTurns * SyncReader::kEntriesAtOnce; ++i) write(std::to_string(i));
  EXPECT_EQ(read().size(), kTurns * SyncReader::kEntriesAtOnce + 1);
  EXPECT_GE(turns, kTurns);
}

}  // namespace
}  // namespace corro::launch
