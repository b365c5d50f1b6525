#include "coordinator/etcd_client.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"

namespace corro::coordinator {
namespace {

using kube::Json;

/// A record of 1 MiB in base64, and what stands around it.
constexpr size_t kMostAnswerBytes = size_t{4} << 20U;
constexpr int kOk = 200;
constexpr int kNoSuchPath = 404;
constexpr int kFirstOfServer = 500;  ///< From here on the server is to blame, not the request.

/// The answer to a request that etcd, or something before it, did not carry out. etcd's own words
/// come with gRPC's code.
Status refusal_of(int http, const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const Json* code = kube::value_at(json, {"code"});
  if (code != nullptr && code->is_number_integer()) {
    const int number = code->get<int>();
    const bool is_known = number > 0 && number <= static_cast<int>(Code::kUnauthenticated);
    return {is_known ? static_cast<Code>(number) : Code::kUnknown,
            "etcd: " + kube::text_at(json, {"message"})};
  }
  if (http == kNoSuchPath) {
    return {Code::kFailedPrecondition,
            "HTTP 404: this is no etcd 3.4 or later with its JSON gateway (--enable-grpc-gateway)"};
  }
  return {http >= kFirstOfServer ? Code::kUnavailable : Code::kFailedPrecondition,
          fmt::format("HTTP {}, and no word from etcd", http)};
}

}  // namespace

EtcdClient::EtcdClient(std::vector<std::unique_ptr<kube::Transport>> endpoints,
                       std::function<Time()> now)
    : endpoints_(std::move(endpoints)), now_(std::move(now)) {
  CORRO_CHECK(!endpoints_.empty(), "an etcd cluster without endpoints");
}

EtcdClient::Attempt EtcdClient::attempt(kube::Transport& endpoint, const kube::Request& request,
                                        Time deadline) {
  int http = 0;
  std::string text;
  const auto receive = [&](const kube::Head& head, std::string_view piece) {
    http = head.status;
    text += piece;
    if (text.size() <= kMostAnswerBytes) return Status();
    return Status(Code::kResourceExhausted, "etcd: an answer that is too long");
  };
  Attempt made;
  made.status = endpoint.exchange(request, {.deadline = deadline}, {}, receive).status;
  made.may_go_on = !made.status.ok();
  if (!made.status.ok()) return made;
  if (http != kOk) {
    made.status = refusal_of(http, text);
    made.may_go_on = made.status.code() == Code::kUnavailable;
    return made;
  }
  Result<Json> answer = kube::parse_object(text, "etcd's answer", kMostAnswerBytes);
  if (answer.ok()) {
    made.answer = std::move(*answer);
  } else {
    made.status = answer.status();
  }
  return made;
}

Result<Json> EtcdClient::call(const std::string& method, const Json& body, Time deadline) {
  const kube::Request request{"POST", "/v3/" + method, kube::text_of(body), "application/json"};
  Status failed;
  for (size_t left = endpoints_.size(); left > 0; --left) {
    const Time now = now_();
    const Duration share = (deadline - now) / static_cast<int64_t>(left);
    Attempt made = attempt(*endpoints_[first_], request, now + share);
    if (made.status.ok()) return std::move(made.answer);
    if (!made.may_go_on) return made.status;
    first_ = (first_ + 1) % endpoints_.size();
    if (failed.ok()) {
      failed = made.status;
    } else {
      const bool agree = failed.code() == made.status.code();
      failed = {agree ? failed.code() : Code::kUnavailable,
                fmt::format("{}; {}", failed.message(), made.status.message())};
    }
  }
  return failed;
}

}  // namespace corro::coordinator
