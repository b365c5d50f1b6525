// What the plug-in uses of XLA's FFI (xla/ffi/api/c_api.h, in each jaxlib), declared here so that it
// is built without jaxlib. XLA hands its functions over with each call, so one binary serves every
// version of the interface that has these fields. test_jax.py compiles this with jaxlib's own header
// and compares each struct.
//
// A struct says its size first, and its extensions; newer versions add fields at its end. What
// states need has changed with each version, and is that of 0.3 here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace corro::jax {

struct Context;
struct Error;
struct Future;

struct Extension {
  size_t struct_size;
  int32_t type;
  Extension* next;
};
inline constexpr int32_t kMetadataExtension = 1;

struct Version {
  size_t struct_size;
  Extension* extensions;
  int major;
  int minor;
};

enum class DataType : int32_t {
  kBool = 1,
  kI8 = 2,
  kI16 = 3,
  kI32 = 4,
  kI64 = 5,
  kU8 = 6,
  kU16 = 7,
  kU32 = 8,
  kU64 = 9,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kBF16 = 16,
};

/// An array: dense, in C order.
struct Buffer {
  size_t struct_size;
  Extension* extensions;
  DataType dtype;
  void* data;
  int64_t rank;
  int64_t* dims;
};

/// Arguments, or results.
struct Buffers {
  size_t struct_size;
  Extension* extensions;
  int64_t size;
  int32_t* types;
  void** each;  ///< Buffer*
};

struct ByteSpan {
  const char* data;
  size_t size;
};

struct Scalar {
  DataType dtype;
  void* value;
};

struct Attributes {
  size_t struct_size;
  Extension* extensions;
  int64_t size;
  int32_t* types;
  ByteSpan** names;
  void** values;  ///< Scalar* or, of a string, ByteSpan*
};
inline constexpr int32_t kScalarAttribute = 3;
inline constexpr int32_t kStringAttribute = 4;

struct TypeId {
  int64_t number;  ///< 0: XLA is to choose one
};

struct Metadata {
  size_t struct_size;
  Version version;
  uint32_t traits;
};

struct MetadataExtension {
  Extension extension;
  Metadata* metadata;
};

enum class Stage : int32_t { kInstantiate = 0, kExecute = 3 };

struct ErrorCreate {
  size_t struct_size;
  Extension* extensions;
  const char* message;
  int32_t code;  ///< corro_code's numbers
};

struct FutureCreate {
  size_t struct_size;
  Extension* extensions;
  Future* future;  ///< out
};

struct FutureSetAvailable {
  size_t struct_size;
  Extension* extensions;
  Future* future;
};

struct FutureSetError {
  size_t struct_size;
  Extension* extensions;
  Future* future;
  Error* error;  ///< XLA's from then on
};

struct TypeInfo {
  size_t struct_size;
  Extension* extensions;
  void (*destroy)(void* state);
};

struct RegisterType {
  size_t struct_size;
  Extension* extensions;
  ByteSpan name;
  TypeId* type;  ///< in and out
  const TypeInfo* info;
};

struct SetState {
  size_t struct_size;
  Extension* extensions;
  Context* context;
  Stage stage;
  TypeId* type;
  void* state;  ///< XLA's from then on
};

struct GetState {
  size_t struct_size;
  Extension* extensions;
  Context* context;
  Stage stage;  ///< in which it was set
  TypeId* type;
  void* state;  ///< out
};

using Unused = void (*)();

struct Api {
  size_t struct_size;
  Extension* extensions;
  Version version;
  const void* internal;
  Error* (*create_error)(ErrorCreate* arguments);
  Unused get_message, destroy_error, register_handler, get_stream;
  Error* (*register_type)(RegisterType* arguments);
  Unused get_context;
  Error* (*set_state)(SetState* arguments);
  Error* (*get_state)(GetState* arguments);
  Unused allocate, free, schedule, count_threads;
  Error* (*create_future)(FutureCreate* arguments);
  Error* (*set_available)(FutureSetAvailable* arguments);
  Error* (*set_error)(FutureSetError* arguments);
};

struct CallFrame {
  size_t struct_size;
  Extension* extensions;
  const Api* api;
  Context* context;
  Stage stage;
  Buffers arguments;
  Buffers results;
  Attributes attributes;
  Future* future;  ///< out: completed later, until which XLA keeps the buffers
};

}  // namespace corro::jax
