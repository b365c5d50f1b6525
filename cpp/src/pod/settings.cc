#include "pod/settings.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "io/fd.h"
#include "io/socket.h"
#include "secure/token.h"

namespace corro::pod {
namespace {

constexpr std::string_view kWorker = "worker-";
constexpr int kHeadPatienceSeconds = 600;

template <typename T>
Result<T> read_number(const Variables& environment, const char* name, T otherwise) {
  const std::string text = value_of(environment, name);
  if (text.empty()) return otherwise;
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < T{})
    return Status(Code::kInvalidArgument, fmt::format("{}={} is no number", name, text));
  return value;
}

Result<std::string> require(const Variables& environment, const char* name) {
  std::string text = value_of(environment, name);
  if (text.empty())
    return Status(
        Code::kInvalidArgument,
        fmt::format("{} is not set; corro's operator sets it in the pods of a job", name));
  return text;
}

/// Of an elastic job.
Status read_limits(const Variables& environment, PodSettings& settings) {
  CORRO_ASSIGN(settings.least_workers, read_number(environment, "CORRO_MIN_WORKERS", 0));
  CORRO_ASSIGN(settings.most_workers, read_number(environment, "CORRO_MAX_WORKERS", 0));
  if (settings.most_workers == 0) return {};
  if (settings.least_workers >= 1 && settings.least_workers <= settings.most_workers) return {};
  return {Code::kInvalidArgument,
          fmt::format("CORRO_MIN_WORKERS={} has to be 1 to CORRO_MAX_WORKERS={}",
                      settings.least_workers, settings.most_workers)};
}

/// A worker's number as it is written in names.
bool is_index(std::string_view text) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return !text.empty() && std::ranges::all_of(text, is_digit) && (text == "0" || text[0] != '0');
}

}  // namespace

Result<PodSettings> read_settings(const Variables& environment) {
  PodSettings settings;
  CORRO_ASSIGN(settings.job, require(environment, "CORRO_JOB"));
  CORRO_ASSIGN(settings.identity.job_uid, require(environment, "CORRO_JOB_UID"));
  CORRO_ASSIGN(settings.identity.member, require(environment, "CORRO_MEMBER"));
  CORRO_ASSIGN(settings.identity.generation,
               read_number(environment, "CORRO_MEMBER_GENERATION", uint32_t{0}));
  CORRO_ASSIGN(settings.identity.part, read_number(environment, "CORRO_PART", uint32_t{0}));
  CORRO_TRY(secure::decode_identity(secure::encode_identity(settings.identity))
                .status()
                .with_context("CORRO_JOB_UID, CORRO_MEMBER"));
  settings.head = value_of(environment, "CORRO_HEAD");
  if (!settings.head.empty())
    CORRO_TRY(io::SocketAddress::parse(settings.head).status().with_context("CORRO_HEAD"));
  settings.runs_ranks = value_of(environment, "CORRO_KIND") == "CorroJob";
  CORRO_ASSIGN(settings.slots, read_number(environment, "CORRO_SLOTS", 1));
  CORRO_ASSIGN(settings.workers, read_number(environment, "CORRO_WORKERS", 0));
  CORRO_TRY(read_limits(environment, settings));
  settings.store = value_of(environment, "CORRO_STORE");
  settings.round = value_of(environment, "CORRO_ROUND");
  settings.sync = value_of(environment, "CORRO_SYNC");
  settings.token = value_of(environment, "CORRO_TOKEN", std::string(secure::kTokenFolder));
  CORRO_ASSIGN(const int patience,
               read_number(environment, "CORRO_HEAD_PATIENCE", kHeadPatienceSeconds));
  settings.head_patience = std::chrono::seconds(patience);
  settings.termination_log = value_of(environment, "CORRO_TERMINATION_LOG", "/dev/termination-log");
  if (settings.is_launcher())
    settings.hostfile = value_of(environment, "CORRO_HOSTFILE", "/etc/mpi/hostfile");
  return settings;
}

Result<secure::Key> read_own_key(const PodSettings& settings) {
  CORRO_ASSIGN(const secure::Key key, secure::read_token(settings.token));
  const secure::PodIdentity& identity = settings.identity;
  if (identity.member != secure::kHeadMember) return key;
  return secure::derive_member_key(key, identity.job_uid, identity.member);
}

void write_last_word(const PodSettings& settings, const std::string& word) {
  const io::Fd log(open(settings.termination_log.c_str(), O_WRONLY | O_CLOEXEC));
  if (log.valid()) (void)!write(log.get(), word.data(), word.size());
}

std::optional<std::string> member_of_host(std::string_view job, std::string_view host) {
  host.remove_prefix(host.rfind('@') + 1);  // npos + 1 is 0.
  host = host.substr(0, host.find('.'));
  if (!host.starts_with(job) || host.size() < job.size() + 1 || host[job.size()] != '-')
    return std::nullopt;
  const std::string_view member = host.substr(job.size() + 1);
  const bool is_worker = member.starts_with(kWorker) && is_index(member.substr(kWorker.size()));
  if (!is_worker && member != "launcher") return std::nullopt;
  return std::string(member);
}

std::vector<std::string> worker_names(int count) {
  std::vector<std::string> names;
  for (int worker = 0; worker < count; ++worker)
    names.push_back(fmt::format("{}{}", kWorker, worker));
  return names;
}

std::string host_of_member(std::string_view job, std::string_view member) {
  return fmt::format("{}-{}", job, member);
}

}  // namespace corro::pod
