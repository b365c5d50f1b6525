#include "kube/client/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "base/stop.h"
#include "io/random.h"
#include "kube/client/api_error.h"
#include "kube/client/https_transport.h"

namespace corro::kube {
namespace {

constexpr size_t kMostErrorBytes = size_t{64} << 10U;

double random_of_kernel() {
  std::array<std::byte, sizeof(uint32_t)> bytes{};
  io::fill_random(bytes);
  uint32_t number = 0;
  std::memcpy(&number, bytes.data(), sizeof number);
  return number / 4294967296.0;
}

}  // namespace

Surroundings real_surroundings() {
  Surroundings real;
  real.random = random_of_kernel;
  real.wait = [](Duration duration, const std::stop_token& stop) {
    return wait_for_stop(stop, duration);
  };
  return real;
}

Client::Client(std::unique_ptr<Transport> transport, ClientOptions options,
               Surroundings surroundings)
    : transport_(std::move(transport)),
      options_(std::move(options)),
      surroundings_(std::move(surroundings)),
      bucket_(TokenBucket(options_.qps, options_.burst)) {}

Result<std::unique_ptr<Client>> Client::connect(const KubeAccess& access, ClientOptions options) {
  const bool is_good = options.qps > 0 && options.burst >= 1 && options.page_objects >= 1 &&
                       options.page_objects <= 10000;
  if (!is_good) return Status(Code::kInvalidArgument, "kube: qps, burst or page out of range");
  auto credentials = std::make_shared<UserCredentials>(access.user, access.cluster);
  CORRO_ASSIGN(auto transport, make_https_transport(access.cluster, std::move(credentials), {}));
  return std::make_unique<Client>(std::move(transport), std::move(options), real_surroundings());
}

Status Client::wait_for_permit(Time deadline, const std::string& name,
                               const std::stop_token& stop) {
  const Time now = surroundings_.now();
  const Duration delay = bucket_.lock()->take(now);
  if (now + delay >= deadline) {
    return {Code::kDeadlineExceeded,
            fmt::format("{}: not sent: the client's own limit of {} calls a second", name,
                        options_.qps)};
  }
  const bool is_stopped =
      delay > Duration::zero() ? surroundings_.wait(delay, stop) : stop.stop_requested();
  return is_stopped ? Status(Code::kCancelled, name + ": stopped") : Status();
}

Exchanged Client::attempt(const Call& call, Time deadline, const std::stop_token& stop,
                          Answer& answer) {
  answer = {};
  return transport_->exchange(
      call.request, {.deadline = deadline}, stop, [&](const Head& head, std::string_view piece) {
        answer.head = head;
        const size_t most = head.status < 300 ? call.most_bytes : kMostErrorBytes;
        answer.is_too_long = answer.body.size() + piece.size() > most;
        if (!answer.is_too_long) answer.body += piece;
        return answer.is_too_long ? Status(Code::kResourceExhausted, "too long") : Status();
      });
}

Result<std::string> Client::call(const Call& call, const Until& until) {
  const std::stop_token& stop = until.stop;
  const Time deadline = std::min(until.deadline, surroundings_.now() + options_.call_timeout);
  Answer answer;
  for (uint32_t i = 0;; ++i) {
    CORRO_TRY(wait_for_permit(deadline, call.name, stop));
    const Exchanged end = attempt(call, deadline, stop, answer);
    const int status = answer.head.status;
    if (answer.is_too_long && status < 300) {
      NameFinder finder;
      finder.feed(answer.body);
      const std::string name = finder.name();
      return Status(Code::kResourceExhausted,
                    fmt::format("{}: is refused: {}{}more than {} bytes", call.name, name,
                                name.empty() ? "" : " has ", call.most_bytes));
    }
    const bool is_whole = end.status.ok() || answer.is_too_long;
    if (is_whole && status >= 200 && status < 300) return std::move(answer.body);
    const Status failure = is_whole ? error_of_answer(status, answer.body, call.name)
                                    : end.status.with_context(call.name);
    const bool is_cut = !is_whole && (failure.code() == Code::kUnavailable ||
                                      (failure.code() == Code::kDeadlineExceeded && !end.sent));
    if (!is_whole && !is_cut) return failure;
    const FailedAttempt failed{is_whole ? status : 0, answer.head.headers,
                               call.may_repeat || (is_cut && !end.sent)};
    const auto delay = next_delay(failed, i, surroundings_.random(), surroundings_.wall());
    if (!delay || surroundings_.now() + *delay >= deadline) return failure;
    if (surroundings_.wait(*delay, stop)) return Status(Code::kCancelled, call.name + ": stopped");
  }
}

Result<Json> Client::call_for_object(const Call& request, const Until& until) {
  CORRO_ASSIGN(const std::string text, call(request, until));
  return parse_object(text, request.name, request.most_bytes);
}

Result<Json> Client::get_path(const std::string& target, const Until& until) {
  return call_for_object({{"GET", target}, target, options_.most_object_bytes, true}, until);
}

Result<Json> Client::get(const ResourceType& type, const ObjectKey& key, const Until& until) {
  CORRO_ASSIGN(std::string path, path_of(type, key));
  return call_for_object(
      {{"GET", std::move(path)}, describe(type, key), options_.most_object_bytes, true}, until);
}

/// POST and PUT are not repeated: the first may have been done, and the second is told 409 for it.
Result<Json> Client::write(std::string method, std::string path, std::string name, const Json& body,
                           std::string content_type, const Until& until) {
  const bool may_repeat = method == "PATCH";
  return call_for_object(
      {{std::move(method), std::move(path), text_of(body), std::move(content_type)},
       std::move(name),
       options_.most_object_bytes,
       may_repeat},
      until);
}

Result<Json> Client::create(const ResourceType& type, const ObjectKey& key, const Json& object,
                            const Until& until, std::string validation) {
  CORRO_ASSIGN(const std::string path, path_of(type, {key.space, ""}));
  const std::string query = query_of(
      {{"fieldManager", options_.field_manager}, {"fieldValidation", std::move(validation)}});
  return write("POST", path + query, describe(type, key), object, "application/json", until);
}

Result<Json> Client::replace(const ResourceType& type, const ObjectKey& key, const Json& object,
                             const Until& until) {
  CORRO_ASSIGN(const std::string path, path_of(type, key));
  const std::string query = query_of({{"fieldManager", options_.field_manager}});
  return write("PUT", path + query, describe(type, key), object, "application/json", until);
}

Result<Json> Client::merge_patch(const ResourceType& type, const ObjectKey& key, const Json& patch,
                                 std::string_view subresource, const Until& until) {
  CORRO_ASSIGN(const std::string path, path_of(type, key, subresource));
  const std::string query = query_of({{"fieldManager", options_.field_manager}});
  return write("PATCH", path + query, describe(type, key), patch, "application/merge-patch+json",
               until);
}

Result<Json> Client::apply(const ResourceType& type, const ObjectKey& key, const Json& object,
                           std::string_view subresource, const Until& until) {
  CORRO_ASSIGN(const std::string path, path_of(type, key, subresource));
  const std::string query = query_of({{"fieldManager", options_.field_manager}, {"force", "true"}});
  // JSON is YAML, and this is the content type that every server since 1.22 takes.
  return write("PATCH", path + query, describe(type, key), object, "application/apply-patch+yaml",
               until);
}

Status Client::remove(const ResourceType& type, const ObjectKey& key, const DeleteOptions& options,
                      const Until& until) {
  if (key.name.empty()) {
    return {Code::kInvalidArgument, describe(type, key) + ": one object is deleted at a time"};
  }
  CORRO_ASSIGN(std::string path, path_of(type, key));
  Json body = {
      {"kind", "DeleteOptions"}, {"apiVersion", "v1"}, {"propagationPolicy", options.propagation}};
  if (options.grace_seconds) body["gracePeriodSeconds"] = *options.grace_seconds;
  if (!options.uid.empty()) body["preconditions"] = {{"uid", options.uid}};
  // Without a uid the second request might hit a successor of the same name.
  return call({{"DELETE", std::move(path), text_of(body), "application/json"},
               describe(type, key),
               options_.most_object_bytes,
               !options.uid.empty()},
              until)
      .status();
}

Result<std::string> Client::list_page(const ResourceType& type, const std::string& space,
                                      const Selector& selector, const std::string& next,
                                      const Until& until) {
  CORRO_ASSIGN(const std::string path, path_of(type, {space, ""}));
  const std::string name = describe(type, {space, ""});
  // A page that is too long is asked for again in smaller ones.
  for (uint32_t limit = options_.page_objects;; limit = std::max(limit / 8, 1U)) {
    const std::string query = query_of({{"labelSelector", selector.labels},
                                        {"fieldSelector", selector.fields},
                                        {"limit", std::to_string(limit)},
                                        {"continue", next}});
    Result<std::string> page =
        call({{"GET", path + query}, name, options_.most_page_bytes, true}, until);
    const bool is_too_long = page.status().code() == Code::kResourceExhausted &&
                             page.status().message().find(": is refused: ") != std::string::npos;
    if (!is_too_long || limit == 1) return page;
  }
}

Result<ObjectList> Client::list(const ResourceType& type, const std::string& space,
                                const Selector& selector, const Until& until) {
  const std::string name = describe(type, {space, ""});
  ObjectList list;
  std::string next;
  bool was_restarted = false;
  while (true) {
    Result<std::string> page = list_page(type, space, selector, next, until);
    if (page.status().code() == Code::kOutOfRange && !next.empty() && !was_restarted) {
      list = {};
      next.clear();
      was_restarted = true;
      continue;
    }
    if (!page.ok()) return page.status();
    CORRO_ASSIGN(ListText cut, cut_list(*page, name));
    for (const std::string_view item : cut.items) {
      if (item.size() > options_.most_object_bytes) {
        NameFinder finder;
        finder.feed(item);
        list.refused.push_back(finder.name());
        continue;
      }
      CORRO_ASSIGN(Json object, parse_object(item, name, options_.most_object_bytes));
      list.objects.push_back(std::move(object));
    }
    list.resource_version = std::move(cut.resource_version);
    next = std::move(cut.next);
    if (next.empty()) return list;
  }
}

Status Client::stream(const Request& request, const std::string& name, const ExchangeLimits& limits,
                      const std::stop_token& stop,
                      const std::function<Status(std::string_view)>& receive,
                      std::optional<Duration>& retry) {
  CORRO_TRY(wait_for_permit(limits.deadline, name, stop));
  int status = 0;
  std::string error;
  Headers headers;
  const Exchanged end = transport_->exchange(
      request, limits, stop, [&](const Head& head, std::string_view piece) -> Status {
        status = head.status;
        if (status == 200) return receive(piece);
        if (piece.empty()) headers = head.headers;
        if (error.size() + piece.size() <= kMostErrorBytes) error += piece;
        return {};
      });
  if (status == 0 || status == 200) {
    return end.status.ok() ? end.status : end.status.with_context(name);
  }
  retry = retry_after(headers, surroundings_.wall());
  return error_of_answer(status, error, name);
}

Exchanged Client::attempt_upgrade(const Request& request, Time deadline,
                                  const std::stop_token& stop, Answer& answer, Upgraded& upgraded) {
  answer = {};
  const auto collect = [&](const Head& head, std::string_view piece) -> Status {
    answer.head = head;
    if (answer.body.size() + piece.size() <= kMostErrorBytes) answer.body += piece;
    return {};
  };
  return transport_->upgrade(request, {.deadline = deadline}, stop, collect, upgraded.stream);
}

Result<Upgraded> Client::upgrade(const Request& request, const std::string& name,
                                 const Until& until) {
  const Time deadline = std::min(until.deadline, surroundings_.now() + options_.call_timeout);
  Upgraded upgraded;
  Answer answer;
  for (int i = 0; i < 2; ++i) {
    CORRO_TRY(wait_for_permit(deadline, name, until.stop));
    const Exchanged end = attempt_upgrade(request, deadline, until.stop, answer, upgraded);
    if (!end.status.ok()) return end.status.with_context(name);
    if (answer.head.status != 401) break;
  }
  if (!upgraded.stream) return error_of_answer(answer.head.status, answer.body, name);
  upgraded.headers = std::move(answer.head.headers);
  return upgraded;
}

}  // namespace corro::kube
