#include "arrays.h"

#include <corro/corro.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "huge_pages.h"

namespace nb = nanobind;

namespace corro::python {
namespace {

/// Names of attributes as Python's objects, made once.
struct Names {
  nb::object data_ptr = intern("data_ptr"), dtype = intern("dtype"), shape = intern("shape"),
             is_cpu = intern("is_cpu"), is_contiguous = intern("is_contiguous"),
             is_neg = intern("is_neg");

  static nb::object intern(const char* name) { return nb::steal(PyUnicode_InternFromString(name)); }
  /// Never destroyed: the interpreter may end before static objects.
  static const Names& get() {
    static const auto* const names = new Names;
    return *names;
  }
};

/// The integer of `bytes` bytes.
std::optional<uint8_t> signed_integer(Py_ssize_t bytes) {
  switch (bytes) {
    case 1:
      return CORRO_I8;
    case 2:
      return CORRO_I16;
    case 4:
      return CORRO_I32;
    case 8:
      return CORRO_I64;
    default:
      return std::nullopt;
  }
}

/// The unsigned integer of `bytes` bytes.
std::optional<uint8_t> unsigned_integer(Py_ssize_t bytes) {
  switch (bytes) {
    case 1:
      return CORRO_U8;
    case 2:
      return CORRO_U16;
    case 4:
      return CORRO_U32;
    case 8:
      return CORRO_U64;
    default:
      return std::nullopt;
  }
}

/// The dtype of a format of Python's module struct in the machine's own byte order.
std::optional<uint8_t> dtype_of(const char* format, Py_ssize_t bytes) {
  if (format == nullptr || format[0] == '\0' || format[1] != '\0') return std::nullopt;
  switch (format[0]) {
    case '?':
      return CORRO_BOOL;
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
      return unsigned_integer(bytes);
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
      return signed_integer(bytes);
    case 'e':
      return CORRO_F16;
    case 'f':
      return CORRO_F32;
    case 'd':
      return CORRO_F64;
    default:
      return std::nullopt;
  }
}

/// Sets the next dim, if there is room for it.
bool add_dim(ArrayFacts& facts, Py_ssize_t dim) {
  if (dim < 0 || facts.ndim == kMostDims) return false;
  facts.dims[static_cast<size_t>(facts.ndim++)] = static_cast<uint64_t>(dim);
  facts.count *= static_cast<uint64_t>(dim);
  return true;
}

bool read_view(const Py_buffer& view, ArrayFacts& facts) {
  const auto dtype = dtype_of(view.format, view.itemsize);
  if (!dtype || PyBuffer_IsContiguous(&view, 'C') == 0) return false;
  facts.data = view.buf;
  facts.dtype = *dtype;
  return std::all_of(view.shape, view.shape + view.ndim,
                     [&facts](Py_ssize_t dim) { return add_dim(facts, dim); });
}

bool read_buffer(nb::handle array, bool writes, ArrayFacts& facts) {
  Py_buffer view;
  const int flags = PyBUF_FORMAT | PyBUF_STRIDES | (writes ? PyBUF_WRITABLE : 0);
  if (PyObject_GetBuffer(array.ptr(), &view, flags) != 0) return false;
  const bool usable = read_view(view, facts);
  PyBuffer_Release(&view);
  return usable;
}

nb::object call(nb::handle array, const nb::object& method) {
  return nb::steal(PyObject_CallMethodNoArgs(array.ptr(), method.ptr()));
}

nb::object get(nb::handle array, const nb::object& attribute) {
  return nb::steal(PyObject_GetAttr(array.ptr(), attribute.ptr()));
}

bool read_shape(nb::handle shape, ArrayFacts& facts) {
  if (!shape.is_valid() || !PyTuple_Check(shape.ptr())) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(shape.ptr()); ++i) {
    if (!add_dim(facts, PyLong_AsSsize_t(PyTuple_GET_ITEM(shape.ptr(), i)))) return false;
  }
  return true;
}

/// Dense memory of this host in the order of its elements, not negated in passing. What is to be
/// conjugated is complex, and so of none of these dtypes.
bool read_tensor(nb::handle tensor, nb::handle dtypes, ArrayFacts& facts) {
  const Names& names = Names::get();
  const nb::object dtype = get(tensor, names.dtype);
  PyObject* const number =
      dtype.is_valid() ? PyDict_GetItemWithError(dtypes.ptr(), dtype.ptr()) : nullptr;
  if (number == nullptr || !get(tensor, names.is_cpu).is(Py_True) ||
      !call(tensor, names.is_contiguous).is(Py_True) || !call(tensor, names.is_neg).is(Py_False)) {
    return false;
  }
  const nb::object data = call(tensor, names.data_ptr);
  if (!data.is_valid() || !read_shape(get(tensor, names.shape), facts)) return false;
  facts.data = PyLong_AsVoidPtr(data.ptr());
  facts.dtype = static_cast<uint8_t>(PyLong_AsLong(number));
  return true;
}

constexpr std::array<uint64_t, CORRO_U64 + 1> kItemBytes = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8, 2, 4, 8};

}  // namespace

bool ArrayFacts::same_kind_as(const ArrayFacts& other) const {
  return dtype == other.dtype && ndim == other.ndim &&
         std::equal(dims.begin(), dims.begin() + ndim, other.dims.begin());
}

bool Arrays::read(nb::handle array, bool writes, ArrayFacts& facts) const {
  facts.count = 1;
  facts.ndim = 0;
  auto* const type = reinterpret_cast<PyTypeObject*>(type_.ptr());
  const bool by_buffer = dtypes_.is_none();
  if (by_buffer ? Py_TYPE(array.ptr()) != type : PyObject_TypeCheck(array.ptr(), type) == 0)
    return false;
  const bool usable =
      by_buffer ? read_buffer(array, writes, facts) : read_tensor(array, dtypes_, facts);
  if (PyErr_Occurred() == nullptr) return usable;
  PyErr_Clear();
  return false;
}

ArrayOp::ArrayOp(const Arrays& arrays, const nb::object& source, nb::object& target) {
  const bool in_place = target.is(source);
  if (!arrays.read(source, in_place, in)) return;
  const bool made = target.is_none();
  if (made) target = arrays.empty_like(source);
  ArrayFacts out;
  if (!in_place && !(arrays.read(target, true, out) && out.same_kind_as(in))) return;
  if (made) ask_for_huge_pages(out.data, out.count * kItemBytes[out.dtype]);
  op.input = in.data;
  op.output = in_place ? in.data : out.data;
  usable = true;
}

void ArrayOp::fill(uint8_t kind, const nb::int_& reduce_op, int root, double prescale,
                   double postscale) {
  op.struct_size = sizeof op;
  op.kind = kind;
  op.dtype = in.dtype;
  op.reduce_op = static_cast<uint8_t>(PyLong_AsLong(reduce_op.ptr()));
  op.root = root;
  op.count = in.count;
  op.has_scales = 1;
  op.prescale = prescale;
  op.postscale = postscale;
  op.dims = in.dims.data();
  op.ndim = in.ndim;
}

}  // namespace corro::python
