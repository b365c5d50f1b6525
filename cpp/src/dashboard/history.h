// The history of a job: lines of JSON from which the page is drawn once more when the job is over.
// The format to the byte: docs/dashboard.md#history. Pure; time is injected.
//
//   HistoryWriter writer;                             // while the job runs
//   file << writer.begin(picture);
//   file << writer.hear(happening);                   // each event
//   if (writer.due() <= now) file << writer.show(picture, now);
//   file << writer.end(picture, now);
//
//   CORRO_ASSIGN(const History history, History::read(text));   // afterwards
//   Board then = history.at(history.end());
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "dashboard/board.h"

namespace corro::dashboard {

/// Pictures are thinned out, so that they take so much in months; events are whole.
inline constexpr uint64_t kMostPictureBytes = 48U << 20U;
/// More is not written, but for the end.
inline constexpr uint64_t kMostHistoryBytes = 64U << 20U;
inline constexpr std::string_view kHistoryFile = "history.jsonl";

/// Says what the file gets next: whole lines, or "" for nothing. Externally synchronized.
class HistoryWriter {
 public:
  [[nodiscard]] std::string begin(const JobPicture& picture);
  /// Steps are left out: pictures have them.
  [[nodiscard]] std::string hear(const Happening& happening);
  /// Of the ranks what has changed.
  [[nodiscard]] std::string show(const JobPicture& picture, UnixTime now);
  /// The last picture, however much was written; no other is due after it.
  [[nodiscard]] std::string end(const JobPicture& picture, UnixTime now);
  /// When the next picture is: a second after the last one, or later if pictures are large or many.
  [[nodiscard]] UnixTime due() const { return due_; }

 private:
  [[nodiscard]] std::string line_of(const JobPicture& picture, UnixTime now);
  [[nodiscard]] std::string take(std::string line, uint64_t most);

  uint64_t bytes_ = 0;  ///< That were written.
  UnixTime due_{};
  UnixTime started_{};
  std::vector<RankRow> ranks_;     ///< As the file has them; by place.
  std::string plan_;               ///< The same.
  std::vector<TablePart> tables_;  ///< The same.
  HostLinks links_;                ///< Of the whole job.
};

/// How long after a picture of so many bytes no other is written, in a job of this age.
[[nodiscard]] std::chrono::seconds pause_after(uint64_t bytes, std::chrono::seconds age);

/// A history that was read; immutable. It keeps its text, and a board for each MiB of it.
class History {
 public:
  /// INVALID_ARGUMENT: the text is none, or of another version. What follows a line that is cut off
  /// or damaged is left out, and note() says so.
  [[nodiscard]] static Result<History> read(std::string text);

  /// Of the first line and of the last.
  [[nodiscard]] UnixTime begin() const { return begin_; }
  [[nodiscard]] UnixTime end() const { return end_; }
  /// What is missing; "": nothing.
  [[nodiscard]] const std::string& note() const { return note_; }
  /// The job as it was then. Costs at most a MiB of text, and a copy of a board.
  [[nodiscard]] Board at(UnixTime time) const;

 private:
  /// What the lines so far have made.
  struct State {
    size_t next = 0;  ///< Where the next line begins.
    UnixTime time{};
    JobPicture picture;
    Board board;
  };

  [[nodiscard]] std::string_view line_at(size_t at) const;
  [[nodiscard]] static bool apply(State& state, std::string_view line, UnixTime until);
  [[nodiscard]] bool advance(State& state, UnixTime until) const;

  std::string text_;
  UnixTime begin_{};
  UnixTime end_{};
  std::string note_;
  std::vector<State> states_;  ///< By time.
};

}  // namespace corro::dashboard
