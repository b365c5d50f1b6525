// A kernel whose operations are on their way, and the thread that ends it when they are over.
//
// A kernel starts its operations and returns; the thread (plugin/waiting.h) runs what TensorFlow
// wants to be told (`done`), which may run the ops behind.
//
// In TensorFlow 2.12 a kernel of the C API cannot but wait. There is no `done`, and the call ends on
// the thread that began it.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "../plugin/waiting.h"
#include "c_api.h"
#include "corro/corro.h"
#include "done.h"
#include "status.h"

namespace corro::tensorflow {

struct DeleteTensor {
  void operator()(TF_Tensor* tensor) const { TF_DeleteTensor(tensor); }
};
using Tensor = std::unique_ptr<TF_Tensor, DeleteTensor>;

/// One call of a kernel. Whoever has it ends it: end() or fail(), once.
class InFlight : public plugin::Waiting {
 public:
  /// `done`: null if the kernel waits.
  InFlight(TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) : context_(context) {
    if (done != nullptr) done_.emplace(done);
  }

  [[nodiscard]] TF_OpKernelContext* context() const { return context_; }
  /// What lives as long as the call.
  class Attachment {
   public:
    Attachment() = default;
    virtual ~Attachment() = default;
    Attachment(const Attachment&) = delete;
    Attachment& operator=(const Attachment&) = delete;
  };

  TF_Tensor* keep(TF_Tensor* tensor) { return tensors_.emplace_back(tensor).get(); }
  template <typename Made>
  Made* attach(std::unique_ptr<Made> made) {
    Made* const it = made.get();
    attachments_.push_back(std::move(made));
    return it;
  }

  /// Ends the call when the work is done: on the thread, or before this returns if the kernel waits.
  static void finish(std::unique_ptr<InFlight> call, corro_work* work);
  /// The call fails with what the status says.
  static void fail(std::unique_ptr<InFlight> call, const Status& status);

  void over(corro_code code, const corro_error& error) override;

 private:
  void end();

  TF_OpKernelContext* context_;
  std::optional<Done> done_;
  std::vector<Tensor> tensors_;
  std::vector<std::unique_ptr<Attachment>> attachments_;
};

}  // namespace corro::tensorflow
