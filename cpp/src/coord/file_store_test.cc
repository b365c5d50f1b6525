#include "coord/file_store.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>

#include "coord/record_store_suite.h"
#include "io/files.h"

namespace corro::coord {
namespace {

using testing::HasSubstr;

/// A folder that goes away with it.
class Folder {
 public:
  Folder() { EXPECT_NE(::mkdtemp(path_.data()), nullptr); }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_ = testing::TempDir() + "corro_store_XXXXXX";
};

std::unique_ptr<FileStore> open_store(const std::string& path) {
  Result<std::unique_ptr<FileStore>> store = FileStore::open(path);
  EXPECT_TRUE(store.ok()) << store.status().to_string();
  return store.ok() ? std::move(*store) : nullptr;
}

class FileWorld final : public RecordStoreWorld {
 public:
  [[nodiscard]] std::unique_ptr<RecordStore> open() override { return open_store(folder_.path()); }
  /// The next one to lead makes a lock of its own.
  void end_lead() override { std::filesystem::remove(folder_ / "record.lock"); }

 private:
  const Folder folder_;
};

std::unique_ptr<RecordStoreWorld> make_file_world() { return std::make_unique<FileWorld>(); }

INSTANTIATE_TEST_SUITE_P(File, RecordStoreSuite, testing::Values(&make_file_world));

bool leads(RecordStore& store, const std::string& name) {
  const auto term = store.try_lead(name);
  EXPECT_TRUE(term.ok()) << term.status().to_string();
  return term.ok() && *term;
}

/// A child process that runs `work` and ends; it is killed at the latest with this object.
class Child {
 public:
  template <typename Work>
  explicit Child(Work work) : pid_(::fork()) {
    if (pid_ != 0) return;
    work();
    ::_exit(0);
  }
  ~Child() { kill(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_;
};

/// Bytes by which a child says how far it is.
class Progress {
 public:
  Progress() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    read_.reset(ends[0]);
    write_.reset(ends[1]);
  }
  void say() const { (void)!::write(write_.get(), "x", 1); }
  void wait() const {
    char byte = 0;
    EXPECT_EQ(::read(read_.get(), &byte, 1), 1);
  }

 private:
  io::Fd read_;
  io::Fd write_;
};

TEST(FileStoreTest, ALeaderThatIsDestroyedLeadsNoMore) {
  const Folder folder;
  const auto second = open_store(folder.path());
  auto first = open_store(folder.path());
  EXPECT_TRUE(leads(*first, "first"));
  EXPECT_EQ(first->leads_until(), Time::never());
  EXPECT_FALSE(leads(*second, "second"));
  first.reset();
  EXPECT_EQ(*second->leader(), "");
  EXPECT_TRUE(leads(*second, "second"));
}

TEST(FileStoreTest, ALeaderThatIsKilledLeavesTheOldRecordOrTheNewOne) {
  constexpr int kRounds = 15;
  constexpr size_t kBytes = 200000;
  const Folder folder;
  const auto next = open_store(folder.path());
  uint64_t last = 0;
  for (int round = 0; round < kRounds; ++round) {
    const Progress progress;
    Child writer([&] {
      const auto store = open_store(folder.path());
      if (!leads(*store, "writer")) return;
      for (int i = 0;; ++i) {
        if (!store->write(std::string(kBytes, static_cast<char>('a' + i % 26))).ok()) return;
        progress.say();
      }
    });
    for (int i = 0; i <= round % 5; ++i) progress.wait();
    EXPECT_EQ(*next->leader(), "writer");
    // At some other place of a write each time.
    const Time moment = monotonic_now() + std::chrono::microseconds(97 * round);
    while (monotonic_now() < moment) {
    }
    writer.kill();
    const auto record = next->read();
    ASSERT_TRUE(record.ok()) << record.status().to_string();
    ASSERT_EQ(record->size(), kBytes);
    EXPECT_EQ(record->find_first_not_of(record->front()), std::string::npos);
    const auto term = next->try_lead("next");
    ASSERT_TRUE(term.ok() && *term) << term.status().to_string();
    EXPECT_GE(**term, last + 2);
    last = **term;
    next->resign();
  }
}

TEST(FileStoreTest, AProgramThatALeaderHasStartedDoesNotLeadOn) {
  const Folder folder;
  const Progress progress;
  Child leader([&] {
    const auto store = open_store(folder.path());
    if (!leads(*store, "leader")) return;
    const pid_t program = ::fork();
    if (program == 0) ::execlp("sleep", "sleep", "60", nullptr);
    std::ofstream(folder / "program") << program << '\n';
    // The kernel has closed the descriptor once the program's name is another one.
    const std::string at = "/proc/" + std::to_string(program) + "/comm";
    while (io::read_small_file(at) != "sleep\n") {
    }
    progress.say();
    ::pause();
  });
  progress.wait();
  const auto next = open_store(folder.path());
  EXPECT_FALSE(leads(*next, "next"));
  leader.kill();
  EXPECT_TRUE(leads(*next, "next"));
  ::kill(std::stoi(io::read_small_file(folder / "program")), SIGKILL);
}

TEST(FileStoreTest, AResignationCountsForForkedChildrenToo) {
  const Folder folder;
  auto first = open_store(folder.path());
  const auto second = open_store(folder.path());
  EXPECT_TRUE(leads(*first, "first"));
  const Child holder([] { ::pause(); });
  first->resign();
  EXPECT_TRUE(leads(*second, "second"));
}

TEST(FileStoreTest, FilesAreForTheirOwnerAlone) {
  const Folder folder;
  const auto store = open_store(folder / "job7");
  EXPECT_TRUE(leads(*store, "two\nlines"));
  EXPECT_TRUE(store->write("text").ok());
  EXPECT_EQ(io::read_small_file(folder / "job7"), "text");
  EXPECT_EQ(io::read_small_file(folder / "job7.leader"), "1 two lines\n");
  for (const std::string name : {"job7", "job7.leader", "job7.lock"}) {
    struct stat found{};
    EXPECT_EQ(::stat((folder / name).c_str(), &found), 0) << name;
    EXPECT_EQ(found.st_mode & 0777U, 0600U) << name;
  }
}

TEST(FileStoreTest, AFolderThatIsMissingIsRefused) {
  const Folder folder;
  const Status status = FileStore::open(folder / "none/job7").status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_EQ(
      status.message(),
      (folder / "none/job7.lock: cannot be opened: No such file or directory; make the folder ") +
          (folder / "none first"));
}

TEST(FileStoreTest, AFolderThatCannotBeWrittenInIsRefused) {
  const Status status = FileStore::open("/proc/self/job7").status();
  EXPECT_FALSE(status.ok());
  if (::geteuid() == 0) GTEST_SKIP() << "root may write in every folder";
  const Folder folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0500), 0);
  const Status refused = FileStore::open(folder.path()).status();
  EXPECT_EQ(refused.code(), Code::kPermissionDenied);
  EXPECT_THAT(refused.message(), HasSubstr("give this user the right to read and write in "));
}

TEST(FileStoreTest, ARecordThatCannotBeReadIsRefused) {
  const Folder folder;
  ASSERT_TRUE(std::filesystem::create_directory(folder / "record"));
  const Status status = FileStore::open(folder.path()).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("/record: cannot be read: Is a directory; "));
}

TEST(FileStoreTest, ALeaderFileWithoutATermIsRefused) {
  const Folder folder;
  for (const std::string text :
       {"leader\n", "7\n", "7 name", "-1 name\n", "99999999999999999999 name\n"}) {
    std::ofstream(folder / "record.leader") << text;
    const Status status = FileStore::open(folder.path()).status();
    EXPECT_EQ(status.code(), Code::kDataLoss) << text;
    EXPECT_THAT(status.message(), HasSubstr("/record.leader: holds no term; "));
  }
}

}  // namespace
}  // namespace corro::coord
