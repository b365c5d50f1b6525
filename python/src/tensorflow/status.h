// Status: TensorFlow's place for an error.
#pragma once

#include <string>

#include "c_api.h"
#include "corro/corro.h"

namespace corro::tensorflow {

class Status {
 public:
  Status() : status_(TF_NewStatus()) {}
  ~Status() { TF_DeleteStatus(status_); }
  Status(const Status&) = delete;
  Status& operator=(const Status&) = delete;

  void set(corro_code code, const std::string& message) {
    TF_SetStatus(status_, static_cast<TF_Code>(code), message.c_str());
  }
  /// Tells the engine's error as Horovod's ops do: UnknownError where a rank, or this one's part in
  /// the job, is lost. (TensorFlow has meanings of its own for CANCELLED and UNAVAILABLE, and tells of
  /// the latter as something else.) Python finds code, culprit and text in the error's payloads
  /// (corro.tensorflow.cause_of).
  void set(const corro_error& error) {
    const bool is_lost = error.code == CORRO_CANCELLED || error.code == CORRO_ABORTED ||
                         error.code == CORRO_UNAVAILABLE;
    set(is_lost ? CORRO_UNKNOWN : error.code, error.message);
    const std::string cause =
        std::to_string(error.code) + " " + std::to_string(error.rank) + " " + error.message;
    TF_SetPayload(status_, "corro", cause.c_str());
  }
  [[nodiscard]] bool ok() const { return static_cast<int>(TF_GetCode(status_)) == CORRO_OK; }
  [[nodiscard]] TF_Status* get() const { return status_; }

 private:
  TF_Status* status_;
};

}  // namespace corro::tensorflow
