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
  [[nodiscard]] bool ok() const { return static_cast<int>(TF_GetCode(status_)) == CORRO_OK; }
  [[nodiscard]] TF_Status* get() const { return status_; }

 private:
  TF_Status* status_;
};

}  // namespace corro::tensorflow
