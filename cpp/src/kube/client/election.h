// Election: one of several candidates leads, by a Lease.
//
//   const LeaseOptions options{.key = {"corro", "operator"}, .me = id};
//   CORRO_ASSIGN(auto election, Election::create(client, options));
//   std::thread elector([&] { (void)election->run(on_change, on_step, stop); });
//   ... in the workers, before each write:
//   if (!election->leads()) return;
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <stop_token>
#include <string_view>

#include "base/status.h"
#include "kube/client/client.h"
#include "kube/client/lease.h"

namespace corro::kube {

/// run() belongs to one thread; leads() may be called from any thread at any time.
class Election {
 public:
  /// INVALID_ARGUMENT as check() says. `client` outlives the election.
  [[nodiscard]] static Result<std::unique_ptr<Election>> create(Client& client,
                                                                LeaseOptions options);

  /// Called on run()'s thread when this candidate begins or ceases to lead, with the reason. It
  /// must return well within options.retry: meanwhile nothing is renewed.
  using OnChange = std::function<void(bool leads, std::string_view reason)>;
  /// Called on run()'s thread after each look at the Lease, with what went wrong; as quick.
  using OnStep = std::function<void(const Status&)>;

  /// Takes part until `stop` is requested; then releases the Lease if it holds it, within one more
  /// retry, so that another candidate takes over at once. Failures of the server are waited out:
  /// the lead is lost after options.renew_within without an answer. Returns CANCELLED after a stop;
  /// PERMISSION_DENIED if the server does not allow Leases.
  [[nodiscard]] Status run(const OnChange& on_change, const OnStep& on_step,
                           const std::stop_token& stop);

  /// True while this candidate leads for certain: it turns false by itself at the end of
  /// renew_within, even while a renewal hangs. Lock-free.
  [[nodiscard]] bool leads() const;

 private:
  Election(Client& client, LeaseOptions options);

  void become(bool leads, std::string_view reason, const OnChange& on_change);
  [[nodiscard]] Status step(const OnChange& on_change, const std::stop_token& stop);
  [[nodiscard]] Status read(const Until& until);
  [[nodiscard]] Status write(const LeaseDecision& decision, const Until& until);
  void release();

  Client& client_;
  const LeaseOptions options_;
  const ResourceType type_ = kLeases;
  LeaseView view_;
  std::atomic<int64_t> leads_until_{0};  ///< Nanoseconds of the client's clock; 0: does not lead.
};

}  // namespace corro::kube
