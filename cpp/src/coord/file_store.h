// FileStore: a record store in a folder, for coordinators of one machine, or of several that share
// a file system with locks.
//
//   CORRO_ASSIGN(auto store, FileStore::open("/shared/job7"));  // A folder, or a file in one.
//   CORRO_ASSIGN(const auto term, store->try_lead("host1, process 4711"));
//
// For a folder the files are in it, and PATH is FOLDER/record:
//
//   PATH          the record, byte for byte
//   PATH.leader   the last leader: its term in decimal digits, a space, its name, a line end
//   PATH.lock     empty; locked by whoever leads, and never removed
//   PATH.new, PATH.leader.new   only while a file is replaced, or after a death at that moment
//
// All have mode 0600. A file is replaced by writing its .new one, fsync, rename, and fsync of the
// folder: whenever a leader dies, the file is whole, with the old text or with the new one.
//
// The lock is one of an open file (fcntl, F_OFD_SETLK), since such a lock can be seen without being
// taken, as flock's cannot. The kernel gives it up when the last descriptor of that open file is
// closed. Programs that the leader executes have none (O_CLOEXEC). A child that was forked and
// executes nothing has one, and the lead outlives a leader that was killed for as long as such a
// child lives. resign() and the destructor take the lock off for all of them.
//
// A file system may forget a lock: an NFS server whose client was away for too long, somebody who
// removes PATH.lock. So renew() and write() look at PATH.leader first, and a term that is not their
// own says that the lead is lost. Between that look and the rename another leader may still come.
// Where hosts can lose each other and the file server, etcd is the store to take.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "coord/record_store.h"
#include "io/fd.h"

namespace corro::coord {

class FileStore final : public RecordStore {
 public:
  /// Looks whether the store can be used, and makes its lock's file. NOT_FOUND if the folder is
  /// missing, PERMISSION_DENIED if it cannot be written in or the record cannot be read, else the
  /// kernel's reason: in one line, with what to do.
  [[nodiscard]] static Result<std::unique_ptr<FileStore>> open(const std::string& path);
  ~FileStore() override;
  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;

  [[nodiscard]] Result<std::optional<uint64_t>> try_lead(const std::string& name) override;
  [[nodiscard]] Result<std::string> leader() override;
  [[nodiscard]] Result<std::string> read() override;
  [[nodiscard]] Status write(const std::string& record) override;
  [[nodiscard]] Status renew() override;
  [[nodiscard]] Time leads_until() const override;
  void resign() override;

 private:
  /// The text of PATH.leader.
  struct Lead {
    uint64_t term = 0;
    std::string name = {};
  };
  explicit FileStore(std::string path) : path_(std::move(path)) {}

  [[nodiscard]] Result<io::Fd> open_lock() const;
  [[nodiscard]] Result<Lead> read_lead() const;
  /// ABORTED, and the lead given up, unless PATH.leader is this one's.
  [[nodiscard]] Status check_lead();

  const std::string path_;
  io::Fd lock_;  ///< Open and locked while this one leads.
  uint64_t term_ = 0;
};

}  // namespace corro::coord
