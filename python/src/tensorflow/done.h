// Done: what TensorFlow wants to be told at the end of an asynchronous kernel, kept until then.
//
// tensorflow/c/kernels.cc (class CAsyncOpKernel, the same from 2.13 to 2.21) gives a kernel the
// address of a std::function<void()> that is gone once the kernel has returned. So it has to be moved
// away before, and TensorFlow has no function for that. TensorFlow is built with libstdc++, whose
// std::function is moved like this, whatever this plug-in is built with: what it holds lies in two
// words, wherever those are, and one without a manager holds nothing.
#pragma once

#include "c_api.h"

namespace corro::tensorflow {

class Done {
 public:
  /// Takes it out of the kernel's argument, which stays empty.
  explicit Done(TF_AsyncOpKernelDoneCallback* argument) {
    auto& given = *reinterpret_cast<Function*>(argument);
    function_ = given;
    given.manager = nullptr;
  }
  ~Done() {
    if (function_.manager != nullptr) function_.manager(&function_, &function_, kDestroy);
  }
  Done(const Done&) = delete;
  Done& operator=(const Done&) = delete;

  void run() {
    TF_RunAsyncOpKernelDoneCallback(reinterpret_cast<TF_AsyncOpKernelDoneCallback*>(&function_));
  }

 private:
  /// std::function<void()> of libstdc++ (bits/std_function.h).
  struct Function {
    void* held[2];
    bool (*manager)(void* to, const void* from, int operation);
    void (*invoker)(const void* held);
  };
  static constexpr int kDestroy = 3;  // std::_Manager_operation's __destroy_functor.

  Function function_;
};

}  // namespace corro::tensorflow
