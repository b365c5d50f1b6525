#include "agent/sync_target.h"

#include <sys/stat.h>

#include <algorithm>

namespace corro::agent {
namespace {

constexpr uint64_t kAhead = uint64_t{2} << 20U;  ///< Bytes that are on the way.
constexpr size_t kFilesPerNews = 64;
constexpr uint64_t kBytesPerNews = uint64_t{8} << 20U;

bool is_sound(const SyncedFile& file) {
  const bool is_root = file.kind == SyncedKind::kFolder && file.path == ".";
  return (is_root || is_path_below(file.path)) && file.permissions <= kPermissions;
}

/// With it files can be brought into a folder.
bool is_writable(const SyncedFile& folder) { return (folder.permissions & S_IRWXU) == S_IRWXU; }

Status has_changed(const SyncedFile& file) {
  return {Code::kAborted, file.path + " has changed while it was sent; start again"};
}

}  // namespace

void SyncTarget::hear(const Sync& sync) {
  if (state_ != State::kListing) return;
  root_path_ = sync.root;
  const auto strange = std::ranges::find_if_not(sync.files, is_sound);
  if (strange != sync.files.end())
    return check({Code::kInvalidArgument, strange->path + ": not below the folder"});
  files_.insert(files_.end(), sync.files.begin(), sync.files.end());
  if (sync.last) state_ = State::kComparing;
}

// -- comparing ------------------------------------------------------------------------------------

void SyncTarget::advance() {
  uint64_t most = kBytesAtOnce;
  for (size_t i = 0; i < kFilesAtOnce && busy() && compared_ < files_.size() && most > 0; ++i)
    check(compare_some(most));
  if (!busy() || compared_ < files_.size()) return;
  state_ = State::kFetching;
  if (lacking_.empty()) check(finish());
  if (state_ == State::kFailed) return;
  say_lacking();
  ask_ahead();
}

/// Goes on with the file that is being compared, or begins the next one.
Status SyncTarget::compare_some(uint64_t& most) {
  const SyncedFile& file = files_[compared_];
  if (!root_) {
    CORRO_ASSIGN(root_, SyncRoot::open(root_path_));
  }
  if (!reading_) CORRO_TRY(begin_comparing(file));
  if (reading_) {
    CORRO_TRY(reading_->read(most).with_context(root_path_ + "/" + file.path));
    if (most == 0) return {};
    CORRO_TRY(end_comparing(file));
  }
  ++compared_;
  return {};
}

/// What is small enough to be known already is made at once. What is there of a file is read if it
/// has the same size.
Status SyncTarget::begin_comparing(const SyncedFile& file) {
  if (file.kind == SyncedKind::kFolder) return make_folder(file);
  CORRO_ASSIGN(const SyncRoot::Place place, root_->find(file.path));
  const auto there = look_at_file(place.folder, place.name);
  const bool alike = there.ok() && there->kind == file.kind && there->size == file.size;
  if (file.kind == SyncedKind::kLink)
    return alike && there->link == file.link ? Status() : make_small(file);
  if (alike) {
    if (auto reader = ContentReader::open(place.folder, place.name); reader.ok()) {
      reading_ = std::move(reader).value();
      return {};
    }
  }
  if (file.size == 0) return make_small(file);
  add_lacking();
  return {};
}

Status SyncTarget::end_comparing(const SyncedFile& file) {
  ContentReader here = std::move(*reading_);
  reading_.reset();
  const bool same = here.size() == file.size && here.finish() == file.content;
  if (same && here.set_permissions(file.permissions)) return {};
  if (file.size == 0) return make_small(file);
  add_lacking();
  return {};
}

/// A folder is writable until everything is there.
Status SyncTarget::make_folder(const SyncedFile& folder) {
  return root_->set_folder(folder.path, static_cast<uint16_t>(folder.permissions | S_IRWXU));
}

/// A link, or an empty file.
Status SyncTarget::make_small(const SyncedFile& file) {
  CORRO_ASSIGN(const SyncRoot::Place place, root_->find(file.path));
  CORRO_ASSIGN(SyncedPart part, file.kind == SyncedKind::kLink
                                    ? SyncedPart::create_link(place, file.link)
                                    : SyncedPart::create(place));
  return part.place(file.permissions);
}

void SyncTarget::add_lacking() {
  lacking_.push_back(static_cast<uint32_t>(compared_));
  lacking_bytes_ += files_[compared_].size;
}

// -- fetching -------------------------------------------------------------------------------------

void SyncTarget::ask_ahead() {
  while (state_ == State::kFetching && asked_ < lacking_.size() && on_the_way_ < kAhead) {
    const uint32_t number = lacking_[asked_];
    say_(Want{.file = number, .offset = asked_offset_});
    const uint64_t count = std::min<uint64_t>(kMaxPartBytes, files_[number].size - asked_offset_);
    on_the_way_ += count;
    asked_offset_ += count;
    if (asked_offset_ < files_[number].size) continue;
    ++asked_;
    asked_offset_ = 0;
  }
}

void SyncTarget::hear(const Part& part) {
  if (state_ != State::kFetching || lacking_.front() != part.file) return;
  check(take_part(part));
  if (state_ == State::kFailed) return;
  if (part_) {
    if (unsaid_ >= kBytesPerNews) say_lacking();
  } else if (lacking_.size() % kFilesPerNews == 0) {
    say_lacking();
  }
  ask_ahead();
}

/// Parts come in the order in which they were asked for.
Status SyncTarget::take_part(const Part& part) {
  const SyncedFile& file = files_[part.file];
  if (!part_) {
    CORRO_ASSIGN(const SyncRoot::Place place, root_->find(file.path));
    CORRO_ASSIGN(part_, SyncedPart::create(place));
  }
  const uint64_t expected = std::min<uint64_t>(kMaxPartBytes, file.size - part_->size());
  if (part.offset != part_->size() || part.bytes.size() != expected) return has_changed(file);
  CORRO_TRY(part_->append(part.bytes));
  on_the_way_ -= std::min<uint64_t>(on_the_way_, part.bytes.size());
  lacking_bytes_ -= std::min<uint64_t>(lacking_bytes_, part.bytes.size());
  unsaid_ += part.bytes.size();
  return part_->size() == file.size ? close_part(file) : Status();
}

/// The file is whole: it takes its place if it is the one that was announced.
Status SyncTarget::close_part(const SyncedFile& file) {
  if (part_->finish() != file.content) return has_changed(file);
  CORRO_TRY(part_->place(file.permissions));
  part_.reset();
  lacking_.pop_front();
  --asked_;
  return lacking_.empty() ? finish() : Status();
}

/// Everything is there: folders that nobody may write into get their permissions, from the inside
/// out.
Status SyncTarget::finish() {
  for (size_t i = files_.size(); i-- > 0;)
    if (files_[i].kind == SyncedKind::kFolder && !is_writable(files_[i]))
      CORRO_TRY(root_->set_folder(files_[i].path, files_[i].permissions));
  state_ = State::kDone;
  return {};
}

void SyncTarget::say_lacking() {
  unsaid_ = 0;
  say_(Lacking{.files = static_cast<uint32_t>(lacking_.size()), .bytes = lacking_bytes_});
}

void SyncTarget::check(const Status& status) {
  if (status.ok()) return;
  part_.reset();
  reading_.reset();
  state_ = State::kFailed;
  say_(Refused{.code = status.code(), .why = status.message()});
}

}  // namespace corro::agent
