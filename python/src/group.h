// corro._native.Op and corro._native.Group: operations, and the ranks that run them together.
#pragma once

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "buckets.h"
#include "engine_ref.h"
#include "late_output.h"
#include "names_in_flight.h"
#include "plans.h"

namespace corro::python {

/// One operation. Immutable; may be submitted again once it is done (buckets are), but for one with
/// a LateOutput, which has to live until then.
class Op {
 public:
  Op(uint8_t kind, uint8_t dtype, uint8_t reduce_op, int root, uint32_t tag, uintptr_t input,
     uintptr_t output, uint64_t count, std::optional<std::vector<uint64_t>> counts,
     std::optional<std::vector<uint64_t>> send_counts, double prescale, double postscale,
     const Seconds& timeout, std::optional<std::string> name,
     std::optional<std::vector<uint64_t>> dims, uintptr_t codec, std::optional<std::string> element,
     LateOutput* late)
      : counts_(std::move(counts)),
        send_counts_(std::move(send_counts)),
        name_(std::move(name)),
        dims_(std::move(dims)),
        element_(std::move(element)),
        late_(late) {
    op_.struct_size = sizeof op_;
    op_.kind = kind;
    op_.dtype = dtype;
    op_.reduce_op = reduce_op;
    op_.root = root;
    op_.tag = tag;
    op_.input = reinterpret_cast<const void*>(input);
    op_.output = reinterpret_cast<void*>(output);
    op_.count = count;
    op_.counts = counts_ ? counts_->data() : nullptr;
    op_.send_counts = send_counts_ ? send_counts_->data() : nullptr;
    op_.has_scales = 1;
    op_.prescale = prescale;
    op_.postscale = postscale;
    op_.timeout_ns = nanoseconds(timeout, 0);
    op_.name = name_ ? name_->c_str() : nullptr;
    op_.codec = reinterpret_cast<const corro_codec*>(codec);
    op_.element = element_ ? element_->c_str() : nullptr;
    if (late != nullptr) {
      op_.allocate = &LateOutput::allocate;
      op_.allocate_context = late;
      op_.row = late->row();
    }
    if (!dims_) return;
    op_.ndim = static_cast<int32_t>(dims_->size());
    dims_->reserve(1);  // A scalar's dims are an address too.
    op_.dims = dims_->data();
  }
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;

  [[nodiscard]] const corro_op& get() const { return op_; }
  [[nodiscard]] bool fits(size_t group_size) const {
    return (!counts_ || counts_->size() == group_size) &&
           (!send_counts_ || send_counts_->size() == group_size) &&
           (late_ == nullptr || late_->ranks() == group_size);
  }

 private:
  corro_op op_{};
  std::optional<std::vector<uint64_t>> counts_;
  std::optional<std::vector<uint64_t>> send_counts_;
  std::optional<std::string> name_;
  std::optional<std::vector<uint64_t>> dims_;
  std::optional<std::string> element_;
  const LateOutput* late_;
};

class Group {
 public:
  Group(EnginePtr engine, corro_group* group, bool owned)
      : engine_(std::move(engine)),
        group_(group),
        owned_(owned),
        rank_(corro_group_rank(group)),
        size_(corro_group_size(group)) {}
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() {
    if (owned_ && engine_->engine != nullptr) corro_group_destroy(group_);
  }

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }

  [[nodiscard]] std::string selection_table() const {
    static_cast<void>(engine_->get());
    std::string text(corro_group_selection_table(group_, nullptr, 0), '\0');
    corro_group_selection_table(group_, text.data(), text.size() + 1);
    return text;
  }

  /// `buffers` lives until the operations are done, also if a signal's handler raises before.
  /// `named`: members may give the operations in different orders; their names say which is which.
  void run(const std::vector<const Op*>& ops, const nb::object& buffers, bool named) {
    wait_for_rest(call(CORRO_NOW | flags_of(named), collect(ops)), buffers);
  }

  std::unique_ptr<Work> submit(const std::vector<const Op*>& ops, const nb::object& buffers,
                               bool named) {
    corro_work* work = call(flags_of(named), collect(ops));
    return std::make_unique<Work>(engine_, work, kept(buffers));
  }

  /// corro_join(). `last` is the address of 32 bits in `buffers`, which live until it is done.
  std::unique_ptr<Work> join(uintptr_t last, const nb::object& buffers, const Seconds& timeout) {
    static_cast<void>(engine_->get());
    corro_work* work = nullptr;
    engine_->checked([&](corro_error* error) {
      return corro_join(group_, reinterpret_cast<int32_t*>(last), nanoseconds(timeout, 0), &work,
                        error);
    });
    return std::make_unique<Work>(engine_, work, kept(buffers));
  }

  /// run() of one operation on arrays that have the same shape on every rank: returns `target`, or
  /// an array made for the result if that is None. None, and nothing done, if the engine cannot use
  /// the arrays as they lie.
  nb::object run_array(const Arrays& arrays, uint8_t kind, nb::object source, nb::object target,
                       const nb::int_& reduce_op, int root, double prescale, double postscale,
                       double timeout) {
    ArrayOp op(arrays, source, target);
    if (!op.usable) return nb::none();
    op.fill(kind, reduce_op, root, prescale, postscale);
    op.op.timeout_ns = nanoseconds(timeout, 0);
    corro_work* const rest = call(CORRO_NOW, {&op.op, 1});
    if (rest != nullptr) wait_for_rest(rest, nb::make_tuple(source, target));
    return target;
  }

  /// submit() of the same; returns the work and the target.
  nb::object submit_array(const Arrays& arrays, uint8_t kind, nb::object source, nb::object target,
                          const nb::int_& reduce_op, int root, double prescale, double postscale,
                          double timeout, const std::optional<nb::str>& name) {
    ArrayOp op(arrays, source, target);
    if (!op.usable) return nb::none();
    op.fill(kind, reduce_op, root, prescale, postscale);
    op.op.timeout_ns = nanoseconds(timeout, 0);
    if (name) op.op.name = name->c_str();
    corro_work* work = start(flags_of(name.has_value()), op.op);
    return nb::make_tuple(
        std::make_unique<Work>(engine_, work, kept(nb::make_tuple(source, target))), target);
  }

  /// run_array() under a name, which is claimed meanwhile; None also if is_plain() says no to it.
  nb::object run_named(const Arrays& arrays, uint8_t kind, nb::object source, nb::object target,
                       const nb::int_& reduce_op, int root, double prescale, double postscale,
                       const nb::str& name) {
    ArrayOp op(arrays, source, target);
    if (!op.usable || !is_plain(name)) return nb::none();
    op.fill(kind, reduce_op, root, prescale, postscale);
    op.op.name = name.c_str();
    const NameClaim claim(names_, name);
    corro_work* const rest = call(CORRO_NOW | CORRO_NAMED, {&op.op, 1});
    if (rest != nullptr) wait_for_rest(rest, nb::make_tuple(source, target));
    return target;
  }

  /// submit_array() under a name, which is claimed until somebody has waited for the work.
  nb::object start_named(const Arrays& arrays, uint8_t kind, nb::object source, nb::object target,
                         const nb::int_& reduce_op, int root, double prescale, double postscale,
                         const nb::str& name) {
    ArrayOp op(arrays, source, target);
    if (!op.usable || !is_plain(name)) return nb::none();
    op.fill(kind, reduce_op, root, prescale, postscale);
    op.op.name = name.c_str();
    NameClaim claim(names_, name);
    corro_work* work = start(CORRO_NAMED, op.op);
    return nb::cast(
        NamedWork(engine_, work, kept(nb::make_tuple(source, target)), target, std::move(claim)));
  }

  /// Plug-ins of frameworks find the group by this number.
  void number(int32_t number) {
    static_cast<void>(engine_->get());
    engine_->checked([&](corro_error* error) { return corro_group_number(group_, number, error); });
  }

  /// These names are in flight from now on; release() ends that. Raises ALREADY_EXISTS, and claims
  /// none, if one of them is there already.
  void claim(const nb::list& names) { names_.claim(names); }
  void release(const nb::list& names) { names_.release(names); }

  std::unique_ptr<Plan> load(const PlanSpec& spec, uint32_t first, const Seconds& timeout,
                             const GivenMemory& memory) {
    return std::make_unique<Plan>(engine_, group_, nb::find(this), spec, first, timeout, memory);
  }

  std::unique_ptr<BucketSet> buckets(const std::vector<BucketSet::Part>& parts, uint8_t reduce_op,
                                     uint32_t passes, double prescale, double postscale,
                                     uintptr_t codec, const nb::object& buffers) {
    return std::make_unique<BucketSet>(engine_, group_, nb::find(this), parts, reduce_op, passes,
                                       prescale, postscale, codec, buffers);
  }

 private:
  /// Blocks for what a call has left over: the engine has moved it as far as it could at once.
  void wait_for_rest(corro_work* rest, const nb::object& buffers) {
    if (rest != nullptr) Work(engine_, rest, kept(buffers)).wait(std::nullopt);
  }

  /// What a work in flight needs: its buffers and its group.
  [[nodiscard]] nb::object kept(const nb::object& buffers) const {
    return nb::make_tuple(nb::find(this), buffers);
  }

  static uint32_t flags_of(bool named) { return named ? uint32_t{CORRO_NAMED} : 0; }

  corro_work* call(uint32_t flags, std::span<const corro_op> list) {
    static_cast<void>(engine_->get());
    corro_work* work = nullptr;
    engine_->checked([&](corro_error* error) {
      return corro_submit(group_, list.data(), list.size(), flags, &work, error);
    });
    return work;
  }

  /// Starts an operation, which does not block: the GIL is kept.
  corro_work* start(uint32_t flags, const corro_op& op) {
    static_cast<void>(engine_->get());
    corro_work* work = nullptr;
    corro_error error;  // Filled in any case.
    if (corro_submit(group_, &op, 1, flags, &work, &error) != CORRO_OK) raise(error);
    return work;
  }

  [[nodiscard]] std::vector<corro_op> collect(const std::vector<const Op*>& ops) const {
    std::vector<corro_op> list;
    list.reserve(ops.size());
    for (const Op* op : ops) {
      if (op == nullptr || !op->fits(static_cast<size_t>(size_))) {
        raise(CORRO_INVALID_ARGUMENT, "an Op is needed, whose counts have one entry for each rank");
      }
      list.push_back(op->get());
    }
    return list;
  }

  EnginePtr engine_;
  NamesInFlight names_;
  corro_group* group_;
  bool owned_;
  int rank_;
  int size_;
};

void bind_group(nb::module_& module);

}  // namespace corro::python
